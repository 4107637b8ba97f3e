/** `laboro`: one file a verb. */
import { readFileSync } from "node:fs";
import { Command, CommanderError } from "commander";
import { asLaboroError } from "../model/errors.js";
import { serve } from "./serve.js";
import { worker } from "./worker.js";

/** 2 for a mistake in the command, 3 where the broker cannot be reached, 1 for the rest. */
function exitCodeOf(code: string): number {
  if (code === "LABORO_BAD_INPUT") return 2;
  return code === "LABORO_BROKER_UNREACHABLE" || code === "LABORO_BROKER_GONE" ? 3 : 1;
}

const { version } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as {
  version: string;
};

const program = new Command("laboro")
  .description("Hands out work: a broker keeps it, workers do it, clients ask for it.")
  .version(version)
  .exitOverride()
  .showHelpAfterError("(laboro --help lists what there is)")
  .addCommand(serve())
  .addCommand(worker());
for (const command of program.commands) command.exitOverride();

try {
  await program.parseAsync();
} catch (cause) {
  if (cause instanceof CommanderError) {
    process.exitCode = cause.exitCode === 0 ? 0 : 2;
  } else {
    const { code, message } = asLaboroError(cause);
    console.error(`laboro: ${message} (${code})`);
    process.exitCode = exitCodeOf(code);
  }
}
