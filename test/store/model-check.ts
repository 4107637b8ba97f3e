/** The invariant of the contract's head, task by task. */
import type { JobId } from "../../src/model/ids.js";
import { finishedCount } from "../../src/model/job.js";
import { contains } from "../../src/model/ranges.js";
import type { Parcel } from "../../src/store/contract.js";
import type { ModelJob, ModelWorld } from "./model-store.js";

export function checkWorld(world: ModelWorld): void {
  const held = new Map<JobId, Parcel[]>();
  for (const [id, { parcel }] of world.parcels) {
    if (!world.jobs.has(parcel.job)) fail(`parcel ${id} is of job ${parcel.job}, which is not there`);
    if (parcel.id !== id) fail(`parcel ${id} calls itself ${parcel.id}`);
    if (parcel.first < 0 || parcel.first > parcel.last) fail(`parcel ${id} holds ${parcel.first}-${parcel.last}`);
    const list = held.get(parcel.job);
    if (list === undefined) held.set(parcel.job, [parcel]);
    else list.push(parcel);
  }
  for (const [id, known] of world.jobs) checkJob(id, known, held.get(id) ?? []);
}

function checkJob(id: JobId, known: ModelJob, parcels: readonly Parcel[]): void {
  const { job, results } = known;
  const holders = holdersOf(known, parcels);
  const counted = { succeeded: 0, failed: 0, cancelled: 0 };
  for (const index of results.keys()) {
    if (index >= job.cursor) fail(`task ${id}.${index} lies beyond the cursor, yet has a result`);
  }
  for (let index = 0; index < job.cursor; index++) {
    const holder = holders[index];
    const result = results.get(index);
    if (result !== undefined) {
      if (holder !== undefined && holder.worker === undefined) fail(`task ${id}.${index} has a result and waits`);
      counted[result.state]++;
    } else if (holder === undefined) {
      if (!contains(job.cancels, index)) fail(`task ${id}.${index} is nowhere`);
      counted.cancelled++;
    }
  }
  for (const state of ["succeeded", "failed", "cancelled"] as const) {
    const { [state]: kept } = job.counters;
    if (kept !== counted[state]) fail(`job ${id} counts ${kept} ${state}, there are ${counted[state]}`);
  }
  const over = finishedCount(counted) === job.count;
  if (over !== (job.ended !== undefined)) fail(`job ${id}: all recorded ${over}, ended ${job.ended?.state}`);
}

/** By task, up to the cursor: beyond it nobody holds any. */
function holdersOf({ job }: ModelJob, parcels: readonly Parcel[]): (Parcel | undefined)[] {
  const holders = new Array<Parcel | undefined>(job.cursor).fill(undefined);
  for (const parcel of parcels) {
    if (parcel.last >= job.count) fail(`parcel ${parcel.id} reaches beyond the ${job.count} tasks of job ${job.id}`);
    if (parcel.last >= job.cursor) fail(`parcel ${parcel.id} reaches beyond the cursor of job ${job.id}`);
    for (let index = parcel.first; index <= parcel.last; index++) {
      const other = holders[index];
      if (other !== undefined) fail(`task ${job.id}.${index} is in parcels ${other.id} and ${parcel.id}`);
      holders[index] = parcel;
    }
  }
  return holders;
}

/** Said only where it is: the invariant is looked at after every step of thousands. */
function fail(what: string): never {
  throw new Error(`the model's invariant is broken: ${what}`);
}
