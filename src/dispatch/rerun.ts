/** Tasks that had ended wait again: of a job that is still open, or of one that had ended and is open again. */
import type { JobId, TaskRangeId } from "../model/ids.js";
import type { Job } from "../model/job.js";
import { difference, normalize } from "../model/ranges.js";
import type { TaskRange } from "../model/store.js";
import type { Decisions } from "./decisions.js";
import { addWaiting, leaseMore, reindexJob, releaseIfNoWorker, releaseWaiting } from "./job-queue.js";
import { onJobAdded } from "./jobs.js";
import { placeWork } from "./placement.js";
import { newTaskRangeId, type State } from "./state.js";

/** Reserves task range ids for the store to use. Returns the first of them. */
export function reserveTaskRangeIds(state: State, idCount: number): TaskRangeId {
  const first = newTaskRangeId(state);
  state.nextTaskRangeId += idCount - 1;
  return first;
}

/** The store has let tasks run again. `finished` are the jobs of its `after` that have ended as it wants. */
export function onRerun(
  state: State,
  out: Decisions,
  job: Job,
  taskRanges: readonly TaskRange[],
  finished: ReadonlySet<JobId>,
  now: number,
): void {
  state.now = now;
  // Jobs that depend on it wait for its new end from now on.
  state.recentEnds.delete(job.id);
  if (!state.jobs.has(job.id)) onJobAdded(state, out, job, undefined, finished, now);
  const open = state.jobs.get(job.id);
  if (open === undefined) return;
  // Not the store's cancels as they were then: one may have been added since.
  const again = normalize(taskRanges);
  open.cancels = open.cancels.flatMap((range) => [...difference(range, again)]);
  open.failed = job.counters.failed;
  open.succeeded = job.counters.succeeded;
  open.halted = false;
  for (const taskRange of taskRanges) addWaiting(state, out, open, taskRange, now);
  reindexJob(state, open);
  // Other brokers have workers too: this broker leases only what its own can use.
  if (state.shared) releaseWaiting(state, out, open);
  leaseMore(state, out, open);
  placeWork(state, out, now);
  releaseIfNoWorker(state, out, open);
}
