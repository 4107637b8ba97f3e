/**
 * A worker reports a task that is no longer assigned to it: its connection broke, its tasks returned to the queue, and no other
 * worker has this one yet. The task is assigned to the worker again instead of being run twice.
 */
import type { Attempt, JobId, TaskIndex, WorkerId } from "../model/ids.js";
import { contains } from "../model/ranges.js";
import type { TaskRange } from "../model/store.js";
import { addClaim, placePrefetched, setTaskState } from "./claims.js";
import type { Decisions } from "./decisions.js";
import { addWaiting, reindexJob, replaceWaiting } from "./job-queue.js";
import { spareStarts } from "./named-limits.js";
import { spareRuns } from "./run-limits.js";
import { reindexWorker } from "./signature.js";
import { claimOf, type JobState, newTaskRangeId, STARTED, type State, type WaitingRange } from "./state.js";

/**
 * The attempt of the task as it is now assigned; undefined where another worker has it, it has ended, was never handed out, or maxRunning
 * is reached. `crashedOnly`: also where no worker was lost while it ran the task.
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
  // Its worker was not lost after all: the crash that was counted is taken back.
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

/** Takes one task out of the queue. Returns the task range that holds this task alone and is no longer in the queue. */
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
  out.writes.push({
    op: "replace",
    job: job.id,
    rangeId,
    replacements: [...beside, alone],
    earlierAttempts: [],
    cancelled: 0,
  });
  for (const left of beside) addWaiting(state, out, job, left, now);
  return alone.id;
}
