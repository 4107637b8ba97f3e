/**
 * A worker says that it has a task which nobody was known to have any more: it was cut off, its tasks went back to the line, and nobody
 * else has taken this one yet. Then it stays with that worker, rather than being run twice.
 */
import type { Attempt, JobId, TaskIndex, WorkerId } from "../model/ids.js";
import { contains } from "../model/ranges.js";
import type { TaskRange } from "../model/store.js";
import { addClaim, placePrefetched } from "./claims.js";
import type { Decisions } from "./decisions.js";
import { addWaiting, replaceWaiting, reindexJob } from "./job-queue.js";
import { reindexWorker } from "./signature.js";
import { claimOf, type JobState, newTaskRangeId, STARTED, type State, type WaitingRange } from "./state.js";

/** The attempt under which the task is now this worker's; undefined where it is another's, over, was never handed out, or would be one too many of its job. */
export function onReclaim(
  state: State,
  out: Decisions,
  id: WorkerId,
  of: JobId,
  index: TaskIndex,
  now: number,
): Attempt | undefined {
  const worker = state.workers.get(id);
  const job = state.jobs.get(of);
  if (worker?.connected !== true || job === undefined) return undefined;
  const own = claimOf(worker, of, index);
  if (own !== undefined) return own.attempt;
  if (contains(job.cancels, index) || job.assigned >= (job.job.limits.maxRunning ?? Number.POSITIVE_INFINITY))
    return undefined;
  const found = waitingAt(job, index);
  if (found === undefined || found.attempt === 0) return undefined;
  const attempt = found.attempt + 1;
  const rangeId = newTaskRangeId(state);
  const { failures } = found;
  // Its worker was not lost after all; what the cut had counted is taken back.
  const crashes = Math.max(0, found.crashes - 1);
  const from = extractTask(state, out, job, found, { index, crashes }, now);
  out.writes.push({ op: "claim", from, rangeId, first: index, last: index, attempt, worker: id });
  const claim = addClaim(state, worker, job, { rangeId, first: index, last: index, attempt, failures, crashes });
  claim.tasks[0] = STARTED;
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

/** Takes one task out of the line. The parcel that is left of it holds that task alone, and is no longer known to wait. */
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
  out.writes.push({ op: "replace", job: job.id, rangeId, replacements: [...beside, alone], earlierAttempts: [], cancelled: 0 });
  for (const left of beside) addWaiting(state, out, job, left, now);
  return alone.id;
}
