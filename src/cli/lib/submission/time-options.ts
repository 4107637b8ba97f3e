/** Options of `run` and `submit` about time: delay, keys, retries, how long a job is kept. */
import { type Command, InvalidArgumentError, Option } from "commander";
import { badInput } from "../../../base/errors.js";
import { definedOnly } from "../../../model/input.js";
import { IF_EXISTS, type IfExists } from "../../../model/job.js";
import type { Submission } from "../../../model/job-input.js";
import { decimal, parseDuration, parseKeep, parseTime, textLike } from "../option-parsers.js";

export interface TimeOptions {
  readonly retryWait?: number;
  readonly retryFactor?: number;
  readonly retryMax?: number;
  readonly retryJitter?: number;
  readonly retryOn?: readonly (number | string)[];
  readonly neverOn?: readonly (number | string)[];
  readonly keep?: number;
  readonly keepFailed?: number;
  // For `submit` only.
  readonly in?: number;
  readonly at?: number;
  readonly key?: string;
  readonly keyFor?: number;
  readonly ifExists?: IfExists;
}

/** Options that mean something only for a job that is not waited for. */
export function addDelayAndKeyOptions(command: Command): Command {
  return command
    .option("--in <duration>", "start this long from now, or later: 10m", parseDuration)
    .option(
      "--at <time>",
      "start no earlier than this: 2026-12-24T18:00, local time here, or with +01:00 or Z",
      parseTime,
    )
    .option("--key <key>", "one job at a time has this key, until it ends: see --if-exists", parseKey)
    .option("--key-for <duration>", "the job keeps its key for this long after its end", parseDuration)
    .addOption(
      new Option(
        "--if-exists <what>",
        "if another job has the key: return its number, refuse the new job, or cancel the other one",
      )
        .choices([...IF_EXISTS])
        .default(undefined, "return"),
    );
}

/** When tasks are retried, and how long the job is kept. */
export function addRetryAndKeepOptions(command: Command): Command {
  return command
    .option("--retry-wait <duration>", "the wait before the first retry (default: 1s)", parseDuration)
    .option("--retry-factor <n>", "the factor between two successive waits (default: 2)", decimal(1.5, 1, 100))
    .option("--retry-max <duration>", "the longest wait before a retry (default: 1m)", parseDuration)
    .option("--retry-jitter <part>", "the part of each wait that is random, 0 to 1 (default: 0)", decimal(0.2, 0, 1))
    .option(
      "--retry-on <ends>",
      "retry only these ends: exit codes (137 is SIGKILL), timeout, names of a handler's errors: 75,timeout",
      parseEnds,
    )
    .option("--never-on <ends>", "never retry these ends", parseEnds)
    .option(
      "--keep <duration>",
      "how long to keep the job after its end: 7d; none: for ever (default: the broker's --keep)",
      parseKeep,
    )
    .option("--keep-failed <duration>", "the same for a job that does not succeed (default: as --keep)", parseKeep);
}

const parseKey = textLike("nightly", "at most 200 printable ASCII characters without blanks", /^[\x21-\x7e]{1,200}$/);

function parseEnds(text: string): readonly (number | string)[] {
  const ends = text.split(",").map((one) => one.trim());
  if (ends.includes("")) throw new InvalidArgumentError("expected exit codes or names, such as 75,timeout");
  return ends.map((one) => (/^-?\d+$/.test(one) ? exitCode(Number(one), one) : one));
}

/** A task that exited with 0 has not failed. */
function exitCode(code: number, text: string): number {
  if (Number.isInteger(code) && code >= 1 && code <= 255) return code;
  throw new InvalidArgumentError(`expected an exit code from 1 to 255, such as 75, got ${text}`);
}

function retryOf(options: TimeOptions & { readonly retries?: number }): Pick<Submission, "retry"> {
  const { retryWait, retryFactor, retryMax, retryJitter, retryOn, neverOn } = options;
  const retry = {
    ...definedOnly({
      waitMs: retryWait,
      factor: retryFactor,
      maxMs: retryMax,
      jitter: retryJitter,
      on: retryOn,
      never: neverOn,
    }),
  };
  if (Object.keys(retry).length === 0) return {};
  if (options.retries === undefined)
    throw badInput("--retry-on, --never-on and --retry-wait have no effect without --retries, such as --retries 3");
  return { retry };
}

export function timesOf(
  options: TimeOptions & { readonly retries?: number },
): Omit<Submission, "recipe" | "entries" | "numbers"> {
  const { in: delayMs, at, key, keyFor, ifExists, keep, keepFailed } = options;
  if (delayMs !== undefined && at !== undefined) throw badInput("--in and --at exclude each other");
  if (key === undefined && (keyFor !== undefined || ifExists !== undefined))
    throw badInput("--key-for and --if-exists go with --key only");
  return {
    ...retryOf(options),
    ...definedOnly({ delayMs, at, key, keyForMs: keyFor, ifExists, keepMs: keep, keepFailedMs: keepFailed }),
  };
}
