/** When a failed task is tried again: by the policy of its job, and by the broker's settings for what that leaves open. */
import { constants } from "node:os";
import { errorFromValue } from "../model/handler-errors.js";
import type { JobId, TaskIndex } from "../model/ids.js";
import type { RetryPolicy } from "../model/job.js";
import type { Outcome } from "../model/outcome.js";
import type { Settings } from "./settings.js";

/** Whether the policy lets a task be tried again that ended like this. */
export function isRetried({ on, never }: RetryPolicy, outcome: Outcome): boolean {
  if (on === undefined && never === undefined) return true;
  const names = endNames(outcome);
  const matches = (one: number | string): boolean => names.includes(one);
  return never?.some(matches) !== true && (on === undefined || on.some(matches));
}

/** What a policy may call this end. */
function endNames({ code, signal, timedOut, value }: Outcome): (number | string)[] {
  const names: (number | string)[] = [];
  if (timedOut === true) names.push("timeout");
  else if (code !== undefined) names.push(code);
  const number = constants.signals[signal as NodeJS.Signals];
  if (timedOut !== true && number !== undefined) names.push(128 + number);
  const thrown = errorFromValue(value);
  if (thrown === undefined) return names;
  names.push(thrown.name);
  if ("code" in thrown && (typeof thrown.code === "string" || typeof thrown.code === "number")) names.push(thrown.code);
  return names;
}

/** How long a task waits that has failed so often. The same task at the same attempt always waits as long. */
export function retryWaitMs(
  settings: Settings,
  { waitMs = settings.retryBackoffMs, factor = 2, maxMs = settings.maxRetryBackoffMs, jitter = 0 }: RetryPolicy,
  failures: number,
  task: { readonly job: JobId; readonly index: TaskIndex },
): number {
  const longest = Math.min(maxMs, waitMs * factor ** (failures - 1));
  return jitter === 0 ? longest : Math.round(longest * (1 - jitter * fractionOf(task.job, task.index, failures)));
}

/** At least 0, less than 1, evenly spread over neighbouring tasks (the finalizer of MurmurHash3). */
function fractionOf(...numbers: readonly number[]): number {
  let hash = 0;
  for (const number of numbers) {
    hash = Math.imul(hash ^ (number | 0) ^ Math.floor(number / 2 ** 32), 0x9e3779b1);
    hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
    hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
    hash ^= hash >>> 16;
  }
  return (hash >>> 0) / 2 ** 32;
}
