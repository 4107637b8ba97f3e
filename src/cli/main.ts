/** `laboro`: finds the verb, loads it, and reports what it throws with a message and an exit code. */
import { CommanderError } from "commander";
import { EXIT, exitCodeOfUsage, isVerbose, reportFailure } from "./lib/failures.js";
import { makeProgram } from "./lib/program.js";

/** Options that every verb has may stand before it, too. */
const GLOBAL_OPTIONS = new Set(["--broker", "--data", "--verbose"]);

// A reader that has seen enough (`| head`) is no failure.
for (const stream of [process.stdout, process.stderr]) {
  stream.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code === "EPIPE") process.exit(process.exitCode ?? EXIT.ok);
    process.stderr.write(`laboro: cannot write: ${error.message}\n`);
    process.exit(EXIT.failed);
  });
}

const args = withVerb(process.argv.slice(2));
try {
  const program = await makeProgram(args.slice(0, 2));
  await program.parseAsync(args, { from: "user" });
} catch (cause) {
  process.exitCode = cause instanceof CommanderError ? exitCodeOfUsage(cause) : reportFailure(cause, isVerbose(args));
}

/** `laboro` alone, or with options only, is `laboro status`. */
function withVerb(given: readonly string[]): string[] {
  const own = new Set(["-h", "--help", "-V", "--version"]);
  const leading: string[] = [];
  let at = 0;
  for (let word = given[at]; word !== undefined; word = given[at]) {
    if (!GLOBAL_OPTIONS.has(word.replace(/=.*/s, ""))) break;
    const length = word === "--verbose" || word.includes("=") ? 1 : 2;
    leading.push(...given.slice(at, at + length));
    at += length;
  }
  const [verb, ...rest] = given.slice(at);
  if (verb === undefined) return ["status", ...leading];
  if (own.has(verb)) return [verb, ...rest];
  return verb.startsWith("-") ? ["status", ...leading, verb, ...rest] : [verb, ...leading, ...rest];
}
