/** Where a task is and why it does not run, from all brokers of the group. */

import { now } from "../../base/clock.js";
import { explain } from "../../dispatch/index.js";
import { claimOf, STARTED } from "../../dispatch/state.js";
import type { JobId, TaskIndex } from "../../model/ids.js";
import type { Core } from "../core.js";

/** The answer of the broker with the highest rank counts: its worker has the task; the task waits there; a worker could take it; it has workers. */
const RANK = { claimed: 4, waiting: 3, capable: 2, workers: 1, none: 0 } as const;

export interface TaskLocation {
  readonly rank: number;
  readonly reason: string;
  readonly claim?: LocalClaim;
}

export interface LocalClaim {
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
  const waits = [...job.waiting, ...job.inBackoff].some(({ first, last }) => first <= index && index <= last);
  if (waits) return { rank: RANK.waiting, reason };
  if (job.signature.capable.size > 0) return { rank: RANK.capable, reason };
  const workers = [...core.state.workers.values()].some(({ connected }) => connected);
  return { rank: workers ? RANK.workers : RANK.none, reason };
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
