/** Tasks that had ended wait again: of a job that is still open, or of one that had ended and is open again. */
import type { JobId, ParcelId } from "../model/ids.js";
import type { Job } from "../model/job.js";
import { normalize, without } from "../model/ranges.js";
import type { Parcel } from "../model/store.js";
import type { Decisions } from "./decisions.js";
import { onJobAdded } from "./jobs.js";
import { placeWork } from "./place.js";
import { addWaiting, giveUpWaiting, refill, relinquish, requeue } from "./queue.js";
import { newParcelId, type State } from "./state.js";

/** The first of so many names for parcels, all of them free for the store to use. */
export function reserveParcels(state: State, names: number): ParcelId {
  const first = newParcelId(state);
  state.nextParcel += names - 1;
  return first;
}

/** The store has let tasks run again. `finished` are the jobs of its `after` that have ended as it wants. */
export function onRerun(
  state: State,
  out: Decisions,
  job: Job,
  parcels: readonly Parcel[],
  finished: ReadonlySet<JobId>,
  now: number,
): void {
  state.now = now;
  // Who waits for it from now on waits for its new end.
  state.ends.delete(job.id);
  if (!state.jobs.has(job.id)) onJobAdded(state, out, job, undefined, finished, now);
  const open = state.jobs.get(job.id);
  if (open === undefined) return;
  // Not the store's cancels as they were then: one may have been added since.
  const again = normalize(parcels);
  open.cancels = open.cancels.flatMap((range) => [...without(range, again)]);
  open.failed = job.counters.failed;
  for (const parcel of parcels) addWaiting(state, out, open, parcel, now);
  requeue(state, open);
  // Others have workers too: this broker leases what its own can use.
  if (state.shared) giveUpWaiting(state, out, open);
  refill(state, out, open);
  placeWork(state, out, now);
  relinquish(state, out, open);
}
