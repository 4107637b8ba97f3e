/** Running ended tasks again. */

import { asLaboroError, badInput, LaboroError } from "../../base/errors.js";
import { reserveTaskRangeIds } from "../../dispatch/commit-results.js";
import type { JobId } from "../../model/ids.js";
import { END_STATES, type Job, type JobEnd } from "../../model/job.js";
import * as s from "../../model/schema.js";
import type { Core } from "../core.js";
import { endsOf, refuseFailedDependencies } from "../dependencies.js";
import { operation } from "./operation.js";
import { job, ranges, requireJob, tasksWithin } from "./shared-fields.js";

/** Ids reserved for the ranges in which tasks run again. */
const MAX_RANGES = 2 ** 20;

const input = s.object({
  job,
  states: s.withDefault(s.described(s.list(s.choice(...END_STATES), 3), "how they ended"), ["failed", "cancelled"]),
  tasks: s.optional(ranges),
  withDependents: s.optional(
    s.flag("then the same for all tasks of the jobs that come after it, and after those; they wait for it"),
  ),
});

/** Jobs read at a time to find those that come after others. */
const PAGE = 1_000;

export const rerun = operation({
  name: "rerun",
  role: "client",
  method: "POST",
  path: "/jobs/{job}/rerun",
  summary: "Run ended tasks of a job again: failed and cancelled ones unless states are given",
  input,
  output: s.object({
    count: s.count("how many tasks run again"),
    dependents: s.optional(
      s.list(s.object({ job: s.count(), count: s.count(), refused: s.optional(s.text(4096)) }), 1_000_000),
    ),
  }),
  perform: async (core, { withDependents = false, ...given }) => {
    const { count } = await core.jobs.withLock(given.job, () => runAgain(core, given));
    if (!withDependents) return { count };
    const dependents: { job: number; count: number; refused?: string }[] = [];
    // The failure has cancelled them.
    const states = [...new Set([...given.states, "cancelled" as const])];
    for (const job of await dependentsOf(core, given.job)) {
      const again = core.jobs.withLock(job, () => runAgain(core, { job, states }));
      // It may wait for yet another job, which has failed.
      const done = await again.catch((cause: unknown) => ({ count: 0, refused: asLaboroError(cause).message }));
      dependents.push({ job, ...done });
    }
    return { count, dependents };
  },
});

/** The jobs that come after this one, and those after these, in order. A job comes after older ones only. */
async function dependentsOf(core: Core, first: JobId): Promise<readonly JobId[]> {
  const after: Job[] = [];
  let before: JobId | undefined;
  do {
    const page = await core.store.jobs({ limit: PAGE, ...(before === undefined ? {} : { before }) });
    for (const job of page.jobs) if (job.id > first && job.after.length > 0) after.push(job);
    before = page.next;
  } while (before !== undefined && before > first);
  const found = new Set([first]);
  for (const { id, after: others } of after.reverse()) if (others.some(({ job }) => found.has(job))) found.add(id);
  found.delete(first);
  return [...found];
}

type Again = Omit<s.ReadType<typeof input>, "withDependents">;

async function runAgain(core: Core, given: Again): Promise<{ count: number }> {
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
