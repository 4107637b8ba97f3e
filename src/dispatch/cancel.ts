/** Cancels are durable. A cancelled task ends as cancelled even if a result arrives later. */
import type { JobId } from "../model/ids.js";
import { haltRuleOf, leftToHalt } from "../model/job.js";
import {
  ALL_TASKS,
  contains,
  countOf,
  difference,
  intersection,
  normalize,
  type Ranges,
  rangesOf,
  union,
} from "../model/ranges.js";
import { openTasks } from "./claims.js";
import type { AttemptRange, Decisions } from "./decisions.js";
import { haltReason, reindexJob, replaceRange, replaceWaiting } from "./job-queue.js";
import { placeWork } from "./placement.js";
import { retractClaims } from "./prefetch.js";
import { type JobState, newTaskRangeId, type State, type WaitingRange, type WorkerState } from "./state.js";

/** Cancels tasks of a job: waiting tasks at once, assigned ones when the worker reports their end. */
export function onCancel(state: State, out: Decisions, id: JobId, ranges: Ranges, reason?: string): void {
  if (!state.jobs.has(id)) return;
  out.writes.push({ op: "cancel", job: id, ranges, ...(reason === undefined ? {} : { reason }) });
  onRemoteCancel(state, out, id, ranges);
}

/** Like `onCancel`, for a cancel that another broker has stored. */
export function onRemoteCancel(state: State, out: Decisions, id: JobId, ranges: Ranges): void {
  const job = state.jobs.get(id);
  if (job === undefined) return;
  job.cancels = union(job.cancels, intersection({ first: 0, last: job.job.count - 1 }, normalize(ranges)));
  dropCancelled(state, out, job);
  reindexJob(state, job);
  for (const worker of workersOf(job)) cancelAt(state, out, worker, id);
  // A worker that was reserved for the job is free for others.
  placeWork(state, out, state.now);
}

/** Applies the halt rule: cancels the rest of the job when enough tasks have ended. */
export function checkHalt(state: State, out: Decisions, job: JobState): void {
  const rule = haltRuleOf(job.job.limits);
  if (rule === undefined || job.halted || leftToHalt(rule, job) > 0) return;
  job.halted = true;
  const all = { first: 0, last: job.job.count - 1 };
  const reason = haltReason(job);
  if (rule.now === true) {
    onCancel(state, out, job.id, [ALL_TASKS], reason);
    return;
  }
  out.writes.push({ op: "cancel", job: job.id, ranges: [ALL_TASKS], reason, unclaimed: true });
  onRemoteCancel(state, out, job.id, difference(all, normalize([...job.claims])));
  for (const worker of workersOf(job)) retractClaims(out, worker, worker.claims.get(job.id) ?? []);
}

export const workersOf = (job: JobState): Set<WorkerState> => new Set(Array.from(job.claims, (claim) => claim.worker));

function dropCancelled(state: State, out: Decisions, job: JobState): void {
  const carve = (waiting: WaitingRange): WaitingRange[] | undefined => {
    const cancelled = countOf(intersection(waiting, job.cancels));
    if (cancelled === 0) return undefined;
    const { attempt, failures, crashes, notBefore, waitMs, avoid } = waiting;
    const wait = waitMs === undefined ? { notBefore } : { notBefore, waitMs };
    const history = { attempt, failures, crashes, ...wait, ...(avoid === undefined ? {} : { avoid }) };
    const pieces = difference(waiting, job.cancels).map((range) => ({
      ...range,
      ...history,
      id: newTaskRangeId(state),
      job: job.id,
    }));
    replaceRange(state, out, job, waiting.rangeId, pieces, { cancelled });
    return pieces.map(({ id, first, last }) => ({ rangeId: id, first, last, ...history }));
  };
  replaceWaiting(
    job,
    [...job.waiting].flatMap((waiting) => carve(waiting) ?? [waiting]),
  );
  for (const pending of [...job.pending]) {
    const { id: rangeId, ...rest } = pending;
    const pieces = carve({ ...rest, rangeId });
    if (pieces === undefined) continue;
    job.pending.delete(pending);
    for (const piece of pieces)
      job.pending.add({ ...pending, first: piece.first, last: piece.last, id: piece.rangeId });
  }
  for (const waiting of [...job.inBackoff]) {
    const pieces = carve(waiting);
    if (pieces === undefined) continue;
    job.inBackoff.delete(waiting);
    for (const piece of pieces) {
      job.inBackoff.add(piece);
      state.timers.upsert({ at: piece.notBefore, kind: "retry", job, waiting: piece });
    }
  }
}

/** Tells a worker which of its tasks were cancelled. */
export function cancelAt(state: State, out: Decisions, worker: WorkerState, id: JobId): void {
  const job = state.jobs.get(id);
  if (job === undefined || job.cancels.length === 0 || !worker.connected) return;
  const tasks: AttemptRange[] = [];
  for (const claim of worker.claims.get(id) ?? []) {
    const indices = openTasks(claim).filter((index) => contains(job.cancels, index));
    for (const range of rangesOf(indices)) tasks.push({ job: id, attempt: claim.attempt, ...range });
  }
  if (tasks.length === 0) return;
  out.sends.push({ kind: "cancel", worker: worker.profile.id, tasks });
  out.urgent = true;
}
