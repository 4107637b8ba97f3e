/** Fields that several operations share. */
import { LaboroError } from "../../base/errors.js";
import { JobId } from "../../model/ids.js";
import type { Job } from "../../model/job.js";
import { normalize, type Ranges } from "../../model/ranges.js";
import * as s from "../../model/schema.js";
import type { Core } from "../core.js";

/** The longest long poll. */
const MAX_WAIT = 600_000;

export const job = s.mapped(s.integer(1, Number.MAX_SAFE_INTEGER, "the number of the job"), JobId);
export const index = s.count("the place of the task in its job, from 0");
export const number = s.count(
  "what people call the task: its number in the array, or else its place from 1; a resumed batch keeps its numbers",
);
export const progress = s.described(s.text(4096), "how far its handler is, as JSON");
export const waitMs = s.withDefault(s.integer(0, MAX_WAIT, "wait up to this many milliseconds for something new"), 0);
export const limit = (most: number, usual = most) =>
  s.withDefault(s.integer(1, most, "at most this many in one answer"), usual);

export const range = s.mapped(
  s.object({ first: s.count(), last: s.optional(s.count()) }),
  ({ first, last = first }, what) => ({
    first,
    last: s.integer(first, Number.MAX_SAFE_INTEGER).read(last, `${what}.last`),
  }),
);
export const ranges = s.described(s.list(range, 100_000), "ranges of task indices; all if absent");
export const rangesOut = s.list(s.object({ first: s.count(), last: s.count() }), 100_000);
export const nothing = s.object({});

export async function requireJob(core: Core, id: JobId): Promise<Job> {
  const found = (await core.store.job(id)) ?? (await core.submitted(id));
  if (found === undefined) throw new LaboroError("LABORO_NO_SUCH_JOB", `there is no job ${id}`);
  return found;
}

/** A job that can still be changed. */
export async function requireOpenJob(core: Core, id: JobId): Promise<Job> {
  const found = await requireJob(core, id);
  await core.jobs.unlocked(id);
  if (found.ended === undefined) return found;
  // It may have been rerun meanwhile.
  if (core.state.jobs.has(id)) return requireJob(core, id);
  throw new LaboroError("LABORO_JOB_ENDED", `job ${id} has ${found.ended.state} already`);
}

export function tasksWithin({ id, count }: Job, given: Ranges | undefined): Ranges {
  const found = normalize(given ?? [{ first: 0, last: count - 1 }]);
  for (const { last } of found) if (last >= count) throw noSuchTask({ id, count });
  return found;
}

export const noSuchTask = ({ id, count }: Pick<Job, "id" | "count">): LaboroError =>
  new LaboroError(
    "LABORO_NO_SUCH_TASK",
    `job ${id} has ${count === 1 ? "one task, its index is 0" : `tasks with index 0 to ${count - 1}`}`,
  );
