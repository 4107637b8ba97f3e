/** The invariant of the contract's head, task by task. */
import type { JobId } from "../../src/model/ids.js";
import { finishedCount } from "../../src/model/job.js";
import { contains } from "../../src/model/ranges.js";
import type { ModelJob, ModelWorld } from "./model-store.js";

export function checkWorld(world: ModelWorld): void {
  for (const [id, { parcel }] of world.parcels) {
    const known = world.jobs.get(parcel.job);
    require(known !== undefined, `parcel ${id} is of job ${parcel.job}, which is not there`);
    require(parcel.id === id, `parcel ${id} calls itself ${parcel.id}`);
    require(parcel.first >= 0 && parcel.first <= parcel.last, `parcel ${id} holds ${parcel.first}-${parcel.last}`);
  }
  for (const [id, known] of world.jobs) checkJob(world, id, known);
}

function checkJob(world: ModelWorld, id: JobId, known: ModelJob): void {
  const { job, results } = known;
  const holders = holdersOf(world, known);
  const counted = { succeeded: 0, failed: 0, cancelled: 0 };
  for (let index = 0; index < job.count; index++) {
    const task = `task ${id}.${index}`;
    const parcels = holders[index] ?? [];
    const result = results.get(index);
    require(parcels.length <= 1, `${task} is in parcels ${parcels.map((parcel) => parcel.id)}`);
    if (index >= job.cursor) {
      require(parcels.length === 0 &&
        result === undefined, `${task} lies beyond the cursor, yet has a parcel or result`);
    } else if (result !== undefined) {
      require(parcels[0] === undefined || parcels[0].worker !== undefined, `${task} has a result and waits`);
      counted[result.state]++;
    } else if (parcels.length === 0) {
      require(contains(job.cancels, index), `${task} is nowhere`);
      counted.cancelled++;
    }
  }
  for (const state of ["succeeded", "failed", "cancelled"] as const) {
    const { [state]: kept } = job.counters;
    require(kept === counted[state], `job ${id} counts ${kept} ${state}, there are ${counted[state]}`);
  }
  const over = finishedCount(counted) === job.count;
  require(over === (job.ended !== undefined), `job ${id}: all recorded ${over}, ended ${job.ended?.state}`);
}

function holdersOf(world: ModelWorld, { job }: ModelJob) {
  const holders: { readonly id: number; readonly worker?: string }[][] = Array.from({ length: job.count }, () => []);
  for (const { parcel } of world.parcels.values()) {
    if (parcel.job !== job.id) continue;
    for (let index = parcel.first; index <= parcel.last; index++) {
      const list = holders[index];
      require(list !== undefined, `parcel ${parcel.id} reaches beyond the ${job.count} tasks of job ${job.id}`);
      list.push(parcel);
    }
  }
  return holders;
}

function require(holds: boolean, otherwise: string): asserts holds {
  if (!holds) throw new Error(`the model's invariant is broken: ${otherwise}`);
}
