/** Compares the tasks that a worker reports, as it joins or later, with the tasks assigned to it. */
import type { Attempt, JobId, TaskIndex, WorkerId } from "../model/ids.js";
import { contains, difference, type Range, rangesOf } from "../model/ranges.js";
import type { TaskRange } from "../model/store.js";
import { addClaim, placePrefetched, setTaskState } from "./claims.js";
import type { AttemptRange, Decisions } from "./decisions.js";
import { addWaiting, reindexJob, replaceRange, replaceWaiting } from "./job-queue.js";
import { spareRuns, spareStarts } from "./limits.js";
import { loseClaim } from "./results.js";
import { reindexWorker } from "./signature.js";
import {
  type Claim,
  claimOf,
  claimsOf,
  claimsWithin,
  GONE,
  type JobState,
  newTaskRangeId,
  STARTED,
  type State,
  UNSTARTED,
  type WaitingRange,
  type WorkerState,
} from "./state.js";

export interface ReportedTasks extends Range {
  readonly job: JobId;
  readonly attempt: Attempt;
  readonly state: "prefetched" | "running" | "finished";
  /** The broker process that accepted the job, if known. A job of another store may have the same number. */
  readonly acceptedBy?: string | undefined;
}

export interface Reconciled {
  /** Running or finished tasks that the worker keeps. */
  readonly keep: readonly { readonly job: JobId; readonly index: number; readonly attempt: Attempt }[];
  /** Tasks that are no longer its own. */
  readonly drop: readonly AttemptRange[];
}

/** Listed tasks that are not the worker's are dropped. Assigned tasks that it does not list return to the queue. */
export function reconcile(
  state: State,
  out: Decisions,
  worker: WorkerState,
  reported: readonly ReportedTasks[],
  sameSession: boolean,
  now: number,
): Reconciled {
  const keep: { job: JobId; index: number; attempt: Attempt }[] = [];
  const drop: AttemptRange[] = [];
  const has = new Map<Claim, Set<number>>();
  for (const { job, first, last, attempt, acceptedBy, state: what } of reported) {
    const known: number[] = [];
    for (const claim of claimsWithin(worker, job, { first, last })) {
      if (claim.attempt !== attempt) continue;
      if (acceptedBy !== undefined && acceptedBy !== claim.job.job.acceptedBy) continue;
      const listed = has.get(claim) ?? new Set<number>();
      has.set(claim, listed);
      for (let index = Math.max(first, claim.first); index <= Math.min(last, claim.last); index++) {
        if (claim.tasks[index - claim.first] === GONE) continue;
        known.push(index);
        listed.add(index);
        setTaskState(claim, index, what === "prefetched" ? UNSTARTED : STARTED);
        if (what !== "prefetched") keep.push({ job, index, attempt });
      }
    }
    for (const range of difference({ first, last }, rangesOf(known))) drop.push({ job, attempt, ...range });
  }
  for (const claim of claimsOf(worker)) {
    const listed = has.get(claim);
    if (listed?.size === claim.open) continue;
    // In the same session they never arrived. In a new session, the old process has lost the started tasks.
    loseClaim(
      state,
      out,
      claim,
      () => !sameSession,
      now,
      (index) => listed?.has(index) !== true,
    );
  }
  return { keep, drop };
}

// A worker reports a task that is no longer assigned to it: its connection broke, its tasks returned to the queue, and
// no other worker has this one yet. The task is assigned to it again instead of running twice.

/**
 * The attempt to continue. Undefined if another worker has the task, it ended, was never assigned, or maxRunning is
 * reached. `crashedOnly`: only if its worker was counted as lost while it ran the task.
 */
export function onReclaim(
  state: State,
  out: Decisions,
  id: WorkerId,
  of: JobId,
  index: TaskIndex,
  now: number,
  crashedOnly = false,
): Attempt | undefined {
  const worker = state.workers.get(id);
  const job = state.jobs.get(of);
  if (worker?.connected !== true || job === undefined) return undefined;
  const own = claimOf(worker, of, index);
  if (own !== undefined) return crashedOnly && own.crashes === 0 ? undefined : own.attempt;
  if (contains(job.cancels, index) || spareRuns(job) <= 0) return undefined;
  if (!state.shared && spareStarts(job.signature) <= 0) return undefined;
  const found = waitingAt(job, index);
  if (found === undefined || found.attempt === 0 || (crashedOnly && found.crashes === 0)) return undefined;
  const attempt = found.attempt + 1;
  const rangeId = newTaskRangeId(state);
  const { failures } = found;
  // Its worker was not lost, so the crash does not count.
  const crashes = Math.max(0, found.crashes - 1);
  const from = extractTask(state, out, job, found, { index, crashes }, now);
  out.writes.push({ op: "claim", from, rangeId, first: index, last: index, attempt, worker: id });
  const claim = addClaim(state, worker, job, { rangeId, first: index, last: index, attempt, failures, crashes });
  setTaskState(claim, index, STARTED);
  placePrefetched(state, claim);
  reindexWorker(worker);
  reindexJob(state, job);
  return attempt;
}

function waitingAt(job: JobState, index: TaskIndex): WaitingRange | undefined {
  const within = ({ first, last }: WaitingRange): boolean => first <= index && index <= last;
  for (const waiting of job.waiting) if (within(waiting)) return waiting;
  for (const waiting of job.inBackoff) if (within(waiting)) return waiting;
  return undefined;
}

/** Removes one task from the queue. Returns the task range that now holds this task alone. */
function extractTask(
  state: State,
  out: Decisions,
  job: JobState,
  waiting: WaitingRange,
  { index, crashes }: { readonly index: TaskIndex; readonly crashes: number },
  now: number,
): TaskRange["id"] {
  if (!job.inBackoff.delete(waiting)) {
    const others = [...job.waiting].filter((other) => other !== waiting);
    replaceWaiting(job, others);
  }
  const { rangeId, first, last, ...history } = waiting;
  if (first === last && crashes === waiting.crashes) return rangeId;
  const piece = (from: number, to: number): TaskRange => ({
    ...history,
    id: newTaskRangeId(state),
    job: job.id,
    first: from,
    last: to,
  });
  const alone = { ...piece(index, index), crashes };
  const beside: TaskRange[] = [];
  if (first < index) beside.push(piece(first, index - 1));
  if (index < last) beside.push(piece(index + 1, last));
  replaceRange(state, out, job, rangeId, [...beside, alone]);
  for (const left of beside) addWaiting(state, out, job, left, now);
  return alone.id;
}
