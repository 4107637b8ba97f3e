/** What workers report of tasks: started, done, given back. A report counts only from the one that holds the claim. */
import type { Attempt, JobId, TaskIndex, WorkerId } from "../model/ids.js";
import { type Outcome, succeeded, type TaskResult } from "../model/outcome.js";
import { contains } from "../model/ranges.js";
import { giveBack, leaveClaim, type Returning } from "./claims.js";
import type { Decisions, TasksOf } from "./decisions.js";
import { fillWorker, placeWork, useRoom } from "./place.js";
import { requeue } from "./queue.js";
import { refund } from "./share.js";
import { reindex } from "./signature.js";
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
import { measure, measureJob } from "./stock.js";

export interface Done extends Outcome {
  readonly job: JobId;
  readonly index: TaskIndex;
  readonly attempt: Attempt;
}

/** What one claim's share of a report comes to. */
interface Tally {
  readonly results: TaskResult[];
  readonly returning: Returning[];
  readonly earlier: TaskResult[];
  /** How long they took, together. */
  lengths: number;
}

const newTally = (): Tally => ({ results: [], returning: [], earlier: [], lengths: 0 });

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
    // One that runs already was started earlier, whether or not we know when.
    if (claim?.attempt !== attempt || claim.tasks[index - claim.first] === STARTED) continue;
    claim.tasks[index - claim.first] = STARTED;
    claim.startedAt ??= new Map();
    claim.startedAt.set(index, now);
  }
}

/** Attempts have ended. Returns how many of them no longer counted. */
export function onDone(state: State, out: Decisions, id: WorkerId, done: readonly Done[], now: number): number {
  const worker = state.workers.get(id);
  if (worker === undefined) return done.length;
  const tallies = new Map<Claim, Tally>();
  const ends: boolean[] = [];
  let stale = 0;
  let last: Claim | undefined;
  let tally = newTally();
  for (const one of done) {
    const claim = claimOf(worker, one.job, one.index);
    if (claim === undefined || claim.attempt !== one.attempt) {
      stale++;
      continue;
    }
    // Results of one claim mostly come together.
    if (claim !== last) {
      tally = tallies.get(claim) ?? newTally();
      tallies.set(claim, tally);
      last = claim;
    }
    tally.lengths += one.ended - one.started;
    if (!contains(claim.job.cancels, one.index)) ends.push(succeeded(one));
    judge(state, claim, one, tally, now);
  }
  measureJobs(tallies);
  measure(worker, done.length - stale, now);
  recordTallies(state, out, tallies, now);
  countResults(state, out, worker, ends);
  fillWorker(state, out, worker, now);
  return stale;
}

function judge(state: State, claim: Claim, one: Done, tally: Tally, now: number): void {
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
    outputEnd: one.outputEnd,
  };
  if (one.code !== undefined) result.code = one.code;
  if (one.signal !== undefined) result.signal = one.signal;
  if (one.timedOut !== undefined) result.timedOut = one.timedOut;
  if (one.error !== undefined) result.error = one.error;
  if (!good && !cancelled && claim.failures < job.job.limits.retries) {
    const { retryBackoffMs, maxRetryBackoffMs } = state.settings;
    const wait = Math.min(maxRetryBackoffMs, retryBackoffMs * 2 ** claim.failures);
    const failures = claim.failures + 1;
    tally.returning.push({ index: one.index, failures, crashes: claim.crashes, notBefore: now + wait });
    tally.earlier.push(result);
    // Marked at once, so that the same end reported twice counts once.
    claim.tasks[one.index - claim.first] = GONE;
  } else {
    tally.results.push(result);
    leaveClaim(state, claim, one.index);
  }
}

function measureJobs(tallies: ReadonlyMap<Claim, Tally>): void {
  const sums = new Map<JobState, { length: number; count: number }>();
  for (const [{ job }, { lengths, results, returning }] of tallies) {
    const sum = sums.get(job) ?? { length: 0, count: 0 };
    sum.length += lengths;
    sum.count += results.length + returning.length;
    sums.set(job, sum);
  }
  for (const [job, { length, count }] of sums) measureJob(job, length / count);
}

function recordTallies(state: State, out: Decisions, tallies: ReadonlyMap<Claim, Tally>, now: number): void {
  for (const [claim, { results, returning, earlier }] of tallies) {
    if (results.length > 0) {
      const empty = claim.open === 0;
      out.writes.push({ op: "settle", job: claim.job.id, parcel: claim.parcel, results, empty });
    }
    if (returning.length > 0) giveBack(state, out, claim, { returning, earlier, avoid: true }, now);
    requeue(state, claim.job);
  }
}

/** Tasks come back unstarted: asked for, refused, or left behind at an orderly stop. They have cost nothing. */
export function onRetracted(state: State, out: Decisions, id: WorkerId, tasks: readonly TasksOf[], now: number): void {
  const worker = state.workers.get(id);
  if (worker === undefined) return;
  for (const claim of claimsOf(worker)) claim.retracting = false;
  for (const [claim, indices] of byClaim(worker, tasks)) {
    const returning: Returning[] = [];
    const cancelled: number[] = [];
    for (const index of indices) {
      if (contains(claim.job.cancels, index)) cancelled.push(index);
      else returning.push({ index, failures: claim.failures, crashes: claim.crashes, notBefore: 0 });
    }
    refund(claim.job, returning.length);
    giveBack(state, out, claim, { returning, cancelled }, now);
  }
  useRoom(state, out, worker);
  // Not `fillWorker`: it would take into stock again what was asked back for another worker.
  placeWork(state, out, now);
  if (worker.out === 0) worker.windowStart = -1;
}

/** Those of these tasks that the worker has, by the claim they are in. */
function byClaim(worker: WorkerState, tasks: readonly TasksOf[]): Map<Claim, number[]> {
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

/** The worker that had these tasks is lost. `crashed`: what had been started counts against the crash limit. */
export function loseClaims(state: State, out: Decisions, worker: WorkerState, crashed: boolean, now: number): void {
  for (const claim of claimsOf(worker)) loseClaim(state, out, claim, () => crashed, now);
}

/** Tasks of a claim are lost with their worker; `crashed` tells of which the loss counts. */
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
  const returning: Returning[] = [];
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
    else returning.push({ index, failures: claim.failures, crashes, notBefore: 0 });
  }
  for (const { index } of results) leaveClaim(state, claim, index);
  if (results.length > 0) {
    out.writes.push({ op: "settle", job: job.id, parcel: claim.parcel, results, empty: claim.open === 0 });
  }
  if (returning.length + cancelled.length > 0) giveBack(state, out, claim, { returning, cancelled }, now);
  requeue(state, job);
  reindex(worker);
}

function lostResult(claim: Claim, index: number, crashes: number, now: number): TaskResult {
  return {
    index,
    attempt: claim.attempt,
    state: "failed",
    worker: claim.worker.profile.name,
    started: now,
    ended: now,
    outputEnd: 0,
    error: `${crashes} workers were lost while they ran this task`,
  };
}
