/** Workers' reports about tasks: started, done, returned. A report counts only from the holder of the claim. */
import { constants } from "node:os";
import type { Attempt, JobId, TaskIndex, WorkerId } from "../model/ids.js";
import type { RetryPolicy } from "../model/job.js";
import { type Outcome, succeeded, type TaskResult } from "../model/outcome.js";
import { contains } from "../model/ranges.js";
import { errorFromValue } from "../model/task-definition.js";
import { checkHalt } from "./cancel.js";
import { type ReturnedTask, removeFromClaim, returnToQueue, setTaskState } from "./claims.js";
import type { AttemptRange, Decisions } from "./decisions.js";
import { refund, reindexJob } from "./job-queue.js";
import { isLimitedByStore } from "./limits.js";
import { fillWorker, placeWork, useFreeSlots } from "./placement.js";
import { measureRate, measureRoundTrip, updateMeanDuration } from "./prefetch.js";
import type { Settings } from "./settings.js";
import { reindexWorker } from "./signature.js";
import { countResults } from "./standing.js";
import {
  type Claim,
  claimOf,
  claimsOf,
  claimsWithin,
  GONE,
  type JobState,
  STARTED,
  type State,
  type WorkerState,
} from "./state.js";

export interface Done extends Outcome {
  readonly job: JobId;
  readonly index: TaskIndex;
  readonly attempt: Attempt;
}

/** The results of one report that belong to one claim. */
interface ClaimResults {
  readonly results: TaskResult[];
  readonly returned: ReturnedTask[];
  readonly earlierAttempts: TaskResult[];
  /** The sum of their durations. */
  totalMs: number;
}

const newClaimResults = (): ClaimResults => ({ results: [], returned: [], earlierAttempts: [], totalMs: 0 });

export function onStarted(
  state: State,
  id: WorkerId,
  tasks: readonly { readonly job: JobId; readonly index: TaskIndex; readonly attempt: Attempt }[],
  now: number,
): void {
  const worker = state.workers.get(id);
  if (worker === undefined) return;
  for (const { job, index, attempt } of tasks) {
    const claim = claimOf(worker, job, index);
    // A running task was started earlier, even if the time is unknown.
    if (claim?.attempt !== attempt || claim.tasks[index - claim.first] === STARTED) continue;
    setTaskState(claim, index, STARTED);
    claim.startedAt ??= new Map();
    claim.startedAt.set(index, now);
  }
}

/** Whether the worker's reports must be committed at once. With prefetched tasks it continues without an answer. */
export const isUrgent = (worker: WorkerState | undefined): boolean => worker === undefined || worker.prefetched === 0;

/** Attempts have ended. Returns how many of the results are stale. */
export function onDone(state: State, out: Decisions, id: WorkerId, done: readonly Done[], now: number): number {
  const worker = state.workers.get(id);
  if (worker === undefined) return done.length;
  const resultsByClaim = new Map<Claim, ClaimResults>();
  const successes: boolean[] = [];
  // The steps below set it again if something may not wait.
  out.urgent = isUrgent(worker);
  let stale = 0;
  let last: Claim | undefined;
  let claimResults = newClaimResults();
  for (const one of done) {
    // A result counts only from the worker that holds the claim, for the attempt of that claim.
    const claim = claimOf(worker, one.job, one.index);
    if (claim === undefined || claim.attempt !== one.attempt) {
      stale++;
      continue;
    }
    // Results of one claim usually come together.
    if (claim !== last) {
      claimResults = resultsByClaim.get(claim) ?? newClaimResults();
      resultsByClaim.set(claim, claimResults);
      last = claim;
    }
    claimResults.totalMs += one.ended - one.started;
    if (!contains(claim.job.cancels, one.index)) successes.push(succeeded(one));
    classify(state, claim, one, claimResults, now);
  }
  updateMeanDurations(resultsByClaim);
  measureRate(worker, done.length - stale, now);
  const probed = worker.roundTripProbe && resultsByClaim.get(worker.roundTripProbe.claim);
  if (probed !== undefined) measureRoundTrip(worker, probed.totalMs, now);
  recordResults(state, out, resultsByClaim, now);
  countResults(state, out, worker, successes);
  fillWorker(state, out, worker, now);
  return stale;
}

function classify(state: State, claim: Claim, one: Done, claimResults: ClaimResults, now: number): void {
  const { job } = claim;
  const cancelled = contains(job.cancels, one.index);
  const good = succeeded(one);
  const result: { -readonly [K in keyof TaskResult]: TaskResult[K] } = {
    index: one.index,
    attempt: one.attempt,
    state: cancelled ? "cancelled" : good ? "succeeded" : "failed",
    worker: claim.worker.profile.name,
    started: one.started,
    ended: one.ended,
    outputBytes: one.outputBytes,
  };
  if (one.code !== undefined) result.code = one.code;
  if (one.signal !== undefined) result.signal = one.signal;
  if (one.timedOut !== undefined) result.timedOut = one.timedOut;
  if (one.error !== undefined) result.error = one.error;
  if (one.cpuMs !== undefined) result.cpuMs = one.cpuMs;
  if (one.peakMemory !== undefined) result.peakMemory = one.peakMemory;
  if (one.output !== undefined) result.output = one.output;
  if (one.value !== undefined) result.value = one.value;
  const { retryAfterMs } = one;
  const { retries, retry = {} } = job.job.limits;
  const mayRetry = !job.halted && retryAfterMs !== "never" && claim.failures < retries;
  if (!good && !cancelled && mayRetry && isRetried(retry, one)) {
    const failures = claim.failures + 1;
    const waitMs = retryAfterMs ?? retryWaitMs(state.settings, retry, failures, one);
    const wait = waitMs > 0 ? { notBefore: now + waitMs, waitMs } : { notBefore: 0 };
    claimResults.returned.push({ index: one.index, failures, crashes: claim.crashes, ...wait });
    claimResults.earlierAttempts.push(result);
    // Marked at once, so that a repeated report counts once.
    setTaskState(claim, one.index, GONE);
  } else {
    claimResults.results.push(result);
    removeFromClaim(state, claim, one.index);
  }
}

function updateMeanDurations(resultsByClaim: ReadonlyMap<Claim, ClaimResults>): void {
  const sums = new Map<JobState, { length: number; count: number }>();
  for (const [{ job }, { totalMs, results, returned }] of resultsByClaim) {
    const sum = sums.get(job) ?? { length: 0, count: 0 };
    sum.length += totalMs;
    sum.count += results.length + returned.length;
    sums.set(job, sum);
  }
  for (const [job, { length, count }] of sums) {
    updateMeanDuration(job, length / count);
    updateMeanDuration(job.signature, length / count);
  }
}

function recordResults(
  state: State,
  out: Decisions,
  resultsByClaim: ReadonlyMap<Claim, ClaimResults>,
  now: number,
): void {
  for (const [claim, { results, returned, earlierAttempts }] of resultsByClaim) {
    settle(state, out, claim, results);
    if (returned.length > 0) returnToQueue(state, out, claim, { returned, earlierAttempts, avoid: true }, now);
    // A caller may wait for the end of the job.
    if (!hasOpenTasks(claim.job)) out.urgent = true;
    reindexJob(state, claim.job);
  }
  // Before tasks of these jobs are assigned again.
  for (const { job } of resultsByClaim.keys()) checkHalt(state, out, job);
}

/** False if the recorded results end the job. */
const hasOpenTasks = ({ assigned, waiting, inBackoff, pending, mayLease }: JobState): boolean =>
  assigned > 0 || waiting.front !== undefined || inBackoff.size > 0 || pending.size > 0 || mayLease;

function settle(state: State, out: Decisions, claim: Claim, results: readonly TaskResult[]): void {
  if (results.length === 0) return;
  const { job, rangeId } = claim;
  const empty = claim.open === 0;
  if (!isLimitedByStore(state, job.job.limits)) out.writes.push({ op: "settle", job: job.id, rangeId, results, empty });
  else out.writes.push({ op: "settle", job: job.id, rangeId, results, empty, limited: true });
  // The store's count replaces it after the commit.
  for (const { state } of results) {
    if (state === "failed") job.failed++;
    else if (state === "succeeded") job.succeeded++;
  }
}

/** Tasks return unstarted: retracted, refused, or left at an orderly stop. This does not count as a failure. */
export function onRetracted(
  state: State,
  out: Decisions,
  id: WorkerId,
  tasks: readonly AttemptRange[],
  now: number,
): void {
  const worker = state.workers.get(id);
  if (worker === undefined) return;
  for (const claim of claimsOf(worker)) claim.retracting = false;
  for (const [claim, indices] of byClaim(worker, tasks)) {
    const returned: ReturnedTask[] = [];
    const cancelled: number[] = [];
    for (const index of indices) {
      if (contains(claim.job.cancels, index)) cancelled.push(index);
      else returned.push({ index, failures: claim.failures, crashes: claim.crashes, notBefore: 0 });
    }
    refund(claim.job, returned.length);
    returnToQueue(state, out, claim, { returned, cancelled }, now);
  }
  useFreeSlots(state, out, worker);
  // Not `fillWorker`: the worker would prefetch again the tasks that were retracted for another one.
  placeWork(state, out, now);
  if (worker.assigned === 0) worker.rateWindowStart = -1;
}

/** The tasks that the worker has, by claim. */
function byClaim(worker: WorkerState, tasks: readonly AttemptRange[]): Map<Claim, number[]> {
  const found = new Map<Claim, number[]>();
  for (const { job, first, last, attempt } of tasks) {
    for (const claim of claimsWithin(worker, job, { first, last })) {
      if (claim.attempt !== attempt) continue;
      for (let index = Math.max(first, claim.first); index <= Math.min(last, claim.last); index++) {
        if (claim.tasks[index - claim.first] === GONE) continue;
        const indices = found.get(claim);
        if (indices === undefined) found.set(claim, [index]);
        else indices.push(index);
      }
    }
  }
  return found;
}

/** The worker is lost with all its tasks. `crashed`: started tasks count against the crash limit. */
export function loseClaims(state: State, out: Decisions, worker: WorkerState, crashed: boolean, now: number): void {
  for (const claim of claimsOf(worker)) loseClaim(state, out, claim, () => crashed, now);
}

/** Tasks of a claim are lost with their worker. `crashed`: the tasks for which this counts as a crash. */
export function loseClaim(
  state: State,
  out: Decisions,
  claim: Claim,
  crashed: (index: number) => boolean,
  now: number,
  lost: (index: number) => boolean = () => true,
): void {
  const { job, worker } = claim;
  const { crashLimit } = job.job.limits;
  const returned: ReturnedTask[] = [];
  const cancelled: number[] = [];
  const results: TaskResult[] = [];
  for (let i = 0; i < claim.tasks.length; i++) {
    const index = claim.first + i;
    const task = claim.tasks[i];
    if (task === GONE || !lost(index)) continue;
    const counts = task === STARTED && crashed(index);
    const crashes = claim.crashes + (counts ? 1 : 0);
    if (contains(job.cancels, index)) cancelled.push(index);
    else if (counts && crashLimit > 0 && crashes >= crashLimit) results.push(lostResult(claim, index, crashes, now));
    else returned.push({ index, failures: claim.failures, crashes, notBefore: 0 });
  }
  for (const { index } of results) removeFromClaim(state, claim, index);
  settle(state, out, claim, results);
  if (returned.length + cancelled.length > 0) returnToQueue(state, out, claim, { returned, cancelled }, now);
  reindexJob(state, job);
  reindexWorker(worker);
  checkHalt(state, out, job);
}

function lostResult(claim: Claim, index: number, crashes: number, now: number): TaskResult {
  return {
    index,
    attempt: claim.attempt,
    state: "failed",
    worker: claim.worker.profile.name,
    started: now,
    ended: now,
    outputBytes: 0,
    error: `${crashes} workers were lost while they ran this task`,
  };
}

// When a failed task is tried again: by the policy of its job, completed by the broker's settings.

/** Whether the policy permits a retry after this end. */
export function isRetried({ on, never }: RetryPolicy, outcome: Outcome): boolean {
  if (on === undefined && never === undefined) return true;
  const names = endNames(outcome);
  const matches = (one: number | string): boolean => names.includes(one);
  return never?.some(matches) !== true && (on === undefined || on.some(matches));
}

/** The names of this end in a policy. */
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

/** The wait of a task with this many failures. The same task at the same attempt always waits equally long. */
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
