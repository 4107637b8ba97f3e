/** `laboro doctor`: check an installation, one line a check. */
import { Command } from "commander";
import { dataDirectory } from "../../client/find-broker.js";
import { addBrokerOptions, type BrokerChoice, localDataOf } from "../lib/broker-connection.js";
import { EXIT } from "../lib/failures.js";
import { printJson, printLines } from "../lib/print.js";
import { resolveStoreUrl } from "../lib/store-url.js";
import { detectTerminal, paint, stateColour, type Terminal } from "../lib/terminal/terminal.js";
import { escapeControls } from "../lib/terminal/text.js";
import { checkBroker } from "./doctor/broker.js";
import type { Check } from "./doctor/check.js";
import { checkDataDirectory } from "./doctor/data-directory.js";
import { checkMachine } from "./doctor/machine.js";
import { checkPostgres } from "./doctor/postgres.js";

interface Options extends BrokerChoice {
  readonly json?: boolean;
  readonly store?: string;
}

export function doctor(): Command {
  const command = new Command("doctor")
    .description(
      "Check this machine, the data directory and the connection to the broker. Each line is ok, warn or FAIL and says what to do; " +
        "the exit code is 1 if one failed.",
    )
    .option("--json", "one JSON document")
    .option("--store <url>", "check this PostgreSQL database too, or @FILE (default: $LABORO_STORE)")
    .addHelpText(
      "after",
      "\nExamples:\n  laboro doctor\n  laboro doctor --broker @client.url\n  laboro doctor --store postgres://laboro@db/laboro",
    )
    .action(run);
  return addBrokerOptions(command);
}

async function run(options: Options): Promise<void> {
  const isLocal = options.local === true;
  const dir = isLocal ? localDataOf(options) : dataDirectory({ data: options.data });
  const store = resolveStoreUrl(options.store);
  const database = store === undefined ? [] : await checkPostgres(store);
  const checks = [
    ...checkMachine(),
    ...checkDataDirectory(dir),
    ...database,
    ...(isLocal ? [] : await checkBroker(options)),
  ];
  const terminal = detectTerminal();
  if (options.json === true) printJson({ checks });
  else printLines(...checks.map((check) => lineOf(check, terminal)));
  if (checks.some(({ state }) => state === "FAIL")) process.exitCode = EXIT.failed;
}

function lineOf({ state, message, remedy }: Check, terminal: Terminal): string {
  const head = paint(terminal, stateColour(state), state.padEnd(4));
  return `${head}  ${escapeControls(message)}${remedy === undefined ? "" : `; ${escapeControls(remedy)}`}`;
}
