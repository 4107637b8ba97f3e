/** Where a task is and why it does not run, by what all brokers of the group know. */

import { now } from "../../base/clock.js";
import { explain } from "../../dispatch/index.js";
import { claimOf } from "../../dispatch/state.js";
import type { JobId, TaskIndex } from "../../model/ids.js";
import type { Core } from "../core.js";

/** The one who knows most speaks: a worker there has the task; it waits there; a worker there could take it; there are workers. */
const RANK = { claimed: 4, waiting: 3, capable: 2, workers: 1, none: 0 } as const;

export interface TaskLocation {
  readonly rank: number;
  readonly why: string;
  readonly claim?: { readonly attempt: number; readonly worker: string };
}

export function localTaskLocation(core: Core, id: JobId, index: TaskIndex): TaskLocation {
  const why = explain(core.state, id, index, now());
  const place = localClaim(core, id, index);
  if (place !== undefined) return { rank: RANK.claimed, why, claim: place };
  const job = core.state.jobs.get(id);
  if (job === undefined) return { rank: RANK.none, why };
  const waits = [...job.waiting, ...job.inBackoff].some(({ first, last }) => first <= index && index <= last);
  if (waits) return { rank: RANK.waiting, why };
  if (job.signature.capable.size > 0) return { rank: RANK.capable, why };
  const workers = [...core.state.workers.values()].some(({ connected }) => connected);
  return { rank: workers ? RANK.workers : RANK.none, why };
}

export async function taskLocation(core: Core, job: JobId, index: TaskIndex): Promise<TaskLocation> {
  const here = localTaskLocation(core, job, index);
  if (core.peers === undefined || here.rank === RANK.claimed) return here;
  const others = await core.peers.askAll<TaskLocation>("peer.whereabouts", { job, index });
  return others.reduce((best, { answer }) => (answer.rank > best.rank ? answer : best), here);
}

/** Which worker of this broker has it, and as which attempt. */
export function localClaim(core: Core, id: JobId, at: number): { attempt: number; worker: string } | undefined {
  for (const { worker } of core.state.jobs.get(id)?.claims ?? []) {
    const claim = claimOf(worker, id, at);
    if (claim !== undefined) return { attempt: claim.attempt, worker: worker.profile.name };
  }
  return undefined;
}
