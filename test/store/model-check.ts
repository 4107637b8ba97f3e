/** The invariant of the contract's head, task by task. */
import type { JobId } from "../../src/model/ids.js";
import { finishedCount } from "../../src/model/job.js";
import { contains } from "../../src/model/ranges.js";
import type { TaskRange } from "../../src/model/store.js";
import type { ModelJob, ModelWorld } from "./model-store.js";

export function checkWorld(world: ModelWorld): void {
  const held = new Map<JobId, TaskRange[]>();
  for (const [id, { taskRange }] of world.taskRanges) {
    if (!world.jobs.has(taskRange.job)) fail(`task range ${id} is of job ${taskRange.job}, which is not there`);
    if (taskRange.id !== id) fail(`task range ${id} calls itself ${taskRange.id}`);
    if (taskRange.first < 0 || taskRange.first > taskRange.last)
      fail(`task range ${id} holds ${taskRange.first}-${taskRange.last}`);
    const list = held.get(taskRange.job);
    if (list === undefined) held.set(taskRange.job, [taskRange]);
    else list.push(taskRange);
  }
  for (const [id, known] of world.jobs) checkJob(id, known, held.get(id) ?? []);
}

function checkJob(id: JobId, known: ModelJob, taskRanges: readonly TaskRange[]): void {
  const { job, results } = known;
  const holders = holdersOf(known, taskRanges);
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
  const over = finishedCount(counted) === job.count && job.open !== true;
  if (over !== (job.ended !== undefined)) fail(`job ${id}: all recorded ${over}, ended ${job.ended?.state}`);
}

/** By task, up to the cursor: beyond it nobody holds any. */
function holdersOf({ job }: ModelJob, taskRanges: readonly TaskRange[]): (TaskRange | undefined)[] {
  const holders = new Array<TaskRange | undefined>(job.cursor).fill(undefined);
  for (const taskRange of taskRanges) {
    if (taskRange.last >= job.count)
      fail(`task range ${taskRange.id} reaches beyond the ${job.count} tasks of job ${job.id}`);
    if (taskRange.last >= job.cursor) fail(`task range ${taskRange.id} reaches beyond the cursor of job ${job.id}`);
    for (let index = taskRange.first; index <= taskRange.last; index++) {
      const other = holders[index];
      if (other !== undefined) fail(`task ${job.id}.${index} is in task ranges ${other.id} and ${taskRange.id}`);
      holders[index] = taskRange;
    }
  }
  return holders;
}

/** Said only where it is: the invariant is looked at after every step of thousands. */
function fail(what: string): never {
  throw new Error(`the model's invariant is broken: ${what}`);
}
