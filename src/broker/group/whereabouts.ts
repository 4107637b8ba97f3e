/** Where a task is and why it does not run, by what all brokers of the group know. */
import { explain } from "../../dispatch/index.js";
import { claimOf } from "../../dispatch/state.js";
import type { JobId, TaskIndex } from "../../model/ids.js";
import * as s from "../../model/schema.js";
import { now } from "../clock.js";
import type { Core } from "../core.js";

/** The one who knows most speaks: a worker there has the task; it waits there; a worker there could take it; anything else. */
const RANK = { claimed: 3, waiting: 2, capable: 1, none: 0 } as const;

export const whereabouts = s.object({
  rank: s.integer(RANK.none, RANK.claimed),
  why: s.text(65_536),
  place: s.optional(s.object({ attempt: s.count(), worker: s.text() })),
});

export type Whereabouts = s.ReadBy<typeof whereabouts>;

export function whereIsItHere(core: Core, id: JobId, index: TaskIndex): Whereabouts {
  const why = explain(core.state, id, index, now());
  const place = placeOf(core, id, index);
  if (place !== undefined) return { rank: RANK.claimed, why, place };
  const job = core.state.jobs.get(id);
  if (job === undefined) return { rank: RANK.none, why };
  const waits = [...job.waiting, ...job.later].some(({ first, last }) => first <= index && index <= last);
  if (waits) return { rank: RANK.waiting, why };
  return { rank: job.signature.capable.size > 0 ? RANK.capable : RANK.none, why };
}

export async function whereIsIt(core: Core, job: JobId, index: TaskIndex): Promise<Whereabouts> {
  const here = whereIsItHere(core, job, index);
  if (core.peers === undefined || here.rank === RANK.claimed) return here;
  const others = await core.peers.gather("peer.whereabouts", { job, index }, whereabouts);
  return others.reduce((best, { answer }) => (answer.rank > best.rank ? answer : best), here);
}

/** Which worker of this broker has it, and as which attempt. */
export function placeOf(core: Core, id: JobId, at: number): { attempt: number; worker: string } | undefined {
  for (const { worker } of core.state.jobs.get(id)?.claims ?? []) {
    const claim = claimOf(worker, id, at);
    if (claim !== undefined) return { attempt: claim.attempt, worker: worker.profile.name };
  }
  return undefined;
}
