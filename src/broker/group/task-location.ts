/** Where a task is and why it does not run, from all brokers of the group. */

import { now } from "../../base/clock.js";
import { explain, whyDelayed } from "../../dispatch/index.js";
import { claimOf, STARTED } from "../../dispatch/state.js";
import type { JobId, TaskIndex } from "../../model/ids.js";
import type { Job } from "../../model/job.js";
import { contains } from "../../model/ranges.js";
import type { Core } from "../core.js";

/** The answer of the broker with the highest rank counts: its worker has the task; the task waits there; a worker could take it; it has workers. */
const RANK = { claimed: 4, waiting: 3, capable: 2, workers: 1, none: 0 } as const;

export interface TaskLocation {
  readonly rank: number;
  readonly reason: string;
  readonly claim?: LocalClaim;
}

interface LocalClaim {
  readonly attempt: number;
  readonly worker: string;
  /** False while it is prefetched. */
  readonly started: boolean;
}

export function localTaskLocation(core: Core, id: JobId, index: TaskIndex): TaskLocation {
  const reason = explain(core.state, id, index, now());
  const claim = localClaim(core, id, index);
  if (claim !== undefined) return { rank: RANK.claimed, reason, claim };
  const job = core.state.jobs.get(id);
  if (job === undefined) return { rank: RANK.none, reason };
  const waits = [...job.waiting, ...job.inBackoff, ...job.pending].some(
    ({ first, last }) => first <= index && index <= last,
  );
  if (waits) return { rank: RANK.waiting, reason };
  if (job.signature.capable.size > 0) return { rank: RANK.capable, reason };
  const workers = [...core.state.workers.values()].some(({ connected }) => connected);
  return { rank: workers ? RANK.workers : RANK.none, reason };
}

/** Where a task without a result is. What was cancelled before it ran is nowhere. */
export async function locateTask(core: Core, job: Job, at: TaskIndex): Promise<Omit<TaskLocation, "rank">> {
  const { id, cancels, reason } = job;
  if (job.delayed === true && !contains(cancels, at))
    return { reason: job.held ? "its job is held" : whyDelayed(job, core.delays.msUntil(job)) };
  const found = await taskLocation(core, id, at);
  if (found.claim !== undefined) return found;
  if (!contains(cancels, at)) {
    const allocators = await core.allocators.explain(id);
    return allocators === undefined ? found : { ...found, reason: `${found.reason}; ${allocators}` };
  }
  const why = reason === undefined ? "" : `: ${reason}`;
  return { reason: `it was cancelled before it ran${why}` };
}

export async function taskLocation(core: Core, job: JobId, index: TaskIndex): Promise<TaskLocation> {
  const here = localTaskLocation(core, job, index);
  if (core.peers === undefined || here.rank === RANK.claimed) return here;
  const others = await core.peers.askAll<TaskLocation>("peer.taskLocation", { job, index });
  return others.reduce((best, { answer }) => (answer.rank > best.rank ? answer : best), here);
}

/** The worker of this broker that has the task, and the attempt. */
export function localClaim(core: Core, id: JobId, at: number): LocalClaim | undefined {
  for (const { worker } of core.state.jobs.get(id)?.claims ?? []) {
    const claim = claimOf(worker, id, at);
    if (claim === undefined) continue;
    const started = claim.tasks[at - claim.first] === STARTED;
    return { attempt: claim.attempt, worker: worker.profile.name, started };
  }
  return undefined;
}
