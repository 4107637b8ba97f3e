/** Failures on the command line: what failed, what to do about it, and the exit code. */
import type { CommanderError } from "commander";
import { asLaboroError, type ErrorCode } from "../../base/errors.js";
import { escapeLines } from "./print.js";

export const EXIT = { ok: 0, failed: 1, usage: 2, unreachable: 3, interrupted: 130, outputClosed: 141 } as const;

const REMEDIES: Partial<Record<ErrorCode, string>> = {
  LABORO_BAD_TOKEN: "copy client.url (for workers join.url) from the broker's data directory again",
  LABORO_BROKER_GONE:
    "the command may or may not have taken effect: check with laboro status --wait 10s before you repeat it",
  LABORO_BROKER_STOPPING: "laboro status --wait 30s waits until it is back",
  LABORO_BROKER_UNREACHABLE:
    "start one with laboro serve, or name it with --broker or --data; laboro doctor looks closer",
  LABORO_DATA_CORRUPT: "nothing was changed; restore the file, or give another directory with --data",
  LABORO_DEADLINE: "laboro services and laboro workers show who could answer",
  LABORO_DISK_FULL: "free disk space, for example with laboro clean --older-than 7d; dispatch resumes by itself",
  LABORO_INTERNAL: "this is a bug in laboro: please report it with the output of LABORO_VERBOSE=1",
  LABORO_NO_DESCRIPTORS: "raise ulimit -n of the broker; dispatch resumes by itself",
  LABORO_NO_SUCH_JOB: "laboro status --all lists all jobs",
  LABORO_VERSION: "use the same version of laboro on both sides",
};

function exitCodeOf(code: ErrorCode): number {
  if (code === "LABORO_BAD_INPUT") return EXIT.usage;
  return code === "LABORO_BROKER_UNREACHABLE" || code === "LABORO_BROKER_GONE" ? EXIT.unreachable : EXIT.failed;
}

/** Writes the failure to standard error and returns the exit code. */
export function reportFailure(cause: unknown, verbose: boolean): number {
  const error = asLaboroError(cause);
  process.stderr.write(`laboro: ${escapeLines(error.message)} (${error.code})\n`);
  printRemedy(error);
  if (verbose) process.stderr.write(`${escapeLines(stackOf(error))}\n`);
  return exitCodeOf(error.code);
}

/** Some messages already say what to do. */
export function printRemedy({ code, message }: { readonly code: ErrorCode; readonly message: string }): void {
  const remedy = REMEDIES[code];
  if (remedy !== undefined && !message.includes("laboro ")) process.stderr.write(`  ${remedy}\n`);
}

/** With the stacks of all causes. */
function stackOf(error: Error): string {
  const own = error.stack ?? error.message;
  return error.cause instanceof Error ? `${own}\ncaused by ${stackOf(error.cause)}` : own;
}

/** Commander's messages in laboro's form. */
export function usageText(text: string): string {
  const [first = "", ...rest] = text.trimEnd().split("\n");
  const message = first
    .replace(/^error: /, "")
    .replace(
      /^command-argument value '(.*)' is invalid for argument '.*'\. Allowed choices are (.*)\.$/,
      "expected one of $2, got $1",
    );
  return [`laboro: ${message} (LABORO_BAD_INPUT)`, ...rest.map((line) => `  ${line.trim()}`), ""].join("\n");
}

/** Help and version are CommanderErrors with exit code 0. */
export const exitCodeOfUsage = (cause: CommanderError): number => (cause.exitCode === 0 ? EXIT.ok : EXIT.usage);

export function isVerbose(args: readonly string[]): boolean {
  const end = args.indexOf("--");
  const own = end < 0 ? args : args.slice(0, end);
  return own.includes("--verbose") || !["", "0", undefined].includes(process.env.LABORO_VERBOSE);
}
