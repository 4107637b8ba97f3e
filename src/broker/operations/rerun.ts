/** Letting ended tasks run again. */

import { LaboroError } from "../../base/errors.js";
import { reserveTaskRangeIds } from "../../dispatch/rerun.js";
import type { JobId } from "../../model/ids.js";
import type { Job, JobEnd } from "../../model/job.js";
import * as s from "../../model/schema.js";
import type { Core } from "../core.js";
import { endsOf, refuseFailedDependencies } from "../dependencies.js";
import { END_STATES } from "./job-view.js";
import { requireJob, job, ranges, tasksWithin } from "./shared-fields.js";
import { operation } from "./operation.js";

/** Names for the pieces in which tasks may run again. */
const MAX_RANGES = 2 ** 20;

const input = s.object({
  job,
  states: s.withDefault(s.described(s.list(s.choice(...END_STATES), 3), "how they ended"), ["failed", "cancelled"]),
  tasks: s.optional(ranges),
});

export const rerun = operation({
  name: "rerun",
  role: "client",
  method: "POST",
  path: "/jobs/{job}/rerun",
  summary: "Run ended tasks of a job again: those that failed or were cancelled, or as asked for",
  input,
  output: s.object({ count: s.described(s.count(), "how many tasks run again") }),
  perform: (core, given) => core.jobs.withLock(given.job, () => runAgain(core, given)),
});

async function runAgain(core: Core, given: s.ReadType<typeof input>): Promise<{ count: number }> {
  const found = await requireJob(core, given.job);
  refuseFailedDependencies(found.after, await endsAround(core, found));
  const tasks = given.tasks === undefined ? {} : { ranges: tasksWithin(found, given.tasks) };
  const parcel = reserveTaskRangeIds(core.state, MAX_RANGES);
  const answer = await core.commit({ op: "rerun", job: given.job, ends: given.states, ...tasks, rangeId: parcel, idCount: MAX_RANGES });
  if (answer.op !== "rerun") throw new LaboroError("LABORO_INTERNAL", "the store gave another answer");
  const { job: again, taskRanges: parcels, count, refused } = answer;
  if (refused !== undefined) throw new LaboroError("LABORO_BAD_INPUT", refused);
  if (again !== undefined && count > 0) core.jobs.rerun(again, parcels, await endsAround(core, again));
  return { count };
}

/** A job that is there no more ended as was wanted: otherwise this one would not be let run again. */
async function endsAround(core: Core, { after }: Job): Promise<Map<JobId, JobEnd>> {
  const there: JobId[] = [];
  for (const { job } of after) if ((await core.store.job(job)) !== undefined) there.push(job);
  return there.length === 0 ? new Map() : endsOf(core, there);
}
