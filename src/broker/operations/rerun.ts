/** Running ended tasks again. */

import { badInput, LaboroError } from "../../base/errors.js";
import { reserveTaskRangeIds } from "../../dispatch/rerun.js";
import type { JobId } from "../../model/ids.js";
import type { Job, JobEnd } from "../../model/job.js";
import * as s from "../../model/schema.js";
import type { Core } from "../core.js";
import { endsOf, refuseFailedDependencies } from "../dependencies.js";
import { END_STATES } from "./job-view.js";
import { operation } from "./operation.js";
import { job, ranges, requireJob, tasksWithin } from "./shared-fields.js";

/** Ids reserved for the ranges in which tasks run again. */
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
  summary: "Run ended tasks of a job again: failed and cancelled ones unless states are given",
  input,
  output: s.object({ count: s.described(s.count(), "how many tasks run again") }),
  perform: (core, given) => core.jobs.withLock(given.job, () => runAgain(core, given)),
});

async function runAgain(core: Core, given: s.ReadType<typeof input>): Promise<{ count: number }> {
  const found = await requireJob(core, given.job);
  refuseFailedDependencies(found.after, await endsAround(core, found));
  const tasks = given.tasks === undefined ? {} : { ranges: tasksWithin(found, given.tasks) };
  const rangeId = reserveTaskRangeIds(core.state, MAX_RANGES);
  const result = await core.commit({
    op: "rerun",
    job: given.job,
    ends: given.states,
    ...tasks,
    rangeId,
    idCount: MAX_RANGES,
  });
  if (result.op !== "rerun") throw new LaboroError("LABORO_INTERNAL", "the store gave another result");
  const { job: again, taskRanges, count, refused } = result;
  if (refused !== undefined) throw badInput(refused);
  if (again !== undefined && count > 0) core.jobs.rerun(again, taskRanges, await endsAround(core, again));
  return { count };
}

/** A dependency that was removed has succeeded: otherwise this job would have been cancelled. */
async function endsAround(core: Core, { after }: Job): Promise<Map<JobId, JobEnd>> {
  const there: JobId[] = [];
  for (const { job } of after) if ((await core.store.job(job)) !== undefined) there.push(job);
  return there.length === 0 ? new Map() : endsOf(core, there);
}
