/** Changes of jobs: name, priority and limits, more tasks for an open job, and running ended tasks again. */
import { now } from "../../base/clock.js";
import { asLaboroError, badInput, LaboroError } from "../../base/errors.js";
import { reserveTaskRangeIds } from "../../dispatch/commit-results.js";
import { onJobEdited } from "../../dispatch/index.js";
import type { JobId } from "../../model/ids.js";
import { argument, integer } from "../../model/input.js";
import { END_STATES, type Entries, type Job, type JobChanges, type JobEnd } from "../../model/job.js";
import { MAX_TASKS, newTasks, plainKey } from "../../model/job-input.js";
import { checkPlaceholders } from "../../model/placeholders.js";
import { MAX_STRIDES, timeLimitMs } from "../../model/recipe.js";
import * as s from "../../model/schema.js";
import type { Write, WriteResult } from "../../model/store.js";
import { arrayFault, joinStrides, numberLimits, type Strides, strideTotal } from "../../model/task-numbers.js";
import type { Core } from "../core.js";
import { endsOf, refuseFailedDependencies } from "../dependencies.js";
import { job, nothing, operation, ranges, requireJob, requireOpenJob, tasksWithin } from "./operation.js";

type Edit = Extract<Write, { op: "edit" }>;

export const edit = operation({
  name: "edit",
  role: "client",
  method: "POST",
  path: "/jobs/{job}/edit",
  summary: "Change the name, priority or limits of a job; running tasks keep their time limit",
  input: s.object({
    job,
    name: s.optional(s.text()),
    priority: s.optional(s.integer(-1000, 1000)),
    maxRunning: s.optional(s.integer(1, MAX_TASKS)),
    timeLimitMs: s.optional(timeLimitMs),
  }),
  output: nothing,
  perform: async (core, { job, ...changes }) => {
    if (Object.keys(changes).length === 0)
      throw badInput("nothing to change: expected name, priority, maxRunning or timeLimitMs");
    await commitEdit(core, { op: "edit", job, changes });
    return {};
  },
});

export const close = operation({
  name: "close",
  role: "client",
  method: "POST",
  path: "/jobs/{job}/close",
  summary: "Let an open job take no more tasks: it ends with its last one",
  input: s.object({ job }),
  output: nothing,
  perform: async (core, given) => {
    await commitEdit(core, { op: "edit", job: given.job, close: true });
    return {};
  },
});

export const append = operation({
  name: "append",
  role: "client",
  method: "POST",
  path: "/jobs/{job}/append",
  summary: "Add tasks to an open job: entries or numbers of its array, as it has them; durable when answered",
  input: s.object({
    job,
    ...newTasks,
    idempotencyKey: s.optional(
      s.described(plainKey, "repeated with one of the last 100 keys of the job, nothing is added again"),
    ),
  }),
  output: s.object({
    first: s.count("the index of the first new task"),
    count: s.count("how many were added"),
  }),
  bodyLimit: 64 * 1024 * 1024,
  perform: appendTasks,
});

/** The keys of appends that a job remembers. */
const MAX_APPENDS = 100;
const MAX_TRIES = 100;

interface NewTasks {
  readonly job: JobId;
  readonly entries?: Entries;
  readonly array?: Strides;
  readonly count?: number;
  readonly idempotencyKey?: string;
}

async function appendTasks(core: Core, given: NewTasks): Promise<{ first: number; count: number }> {
  for (let tries = 0; tries < MAX_TRIES; tries++) {
    const found = await requireOpenJob(core, given.job);
    const before = found.appended?.find(([key]) => key === given.idempotencyKey);
    if (before !== undefined) return { first: before[1], count: before[2] };
    const added = tasksFor(found, given);
    const { count, entries } = added;
    const { idempotencyKey: key } = given;
    const appended = [...(found.appended ?? []), ...(key === undefined ? [] : [[key, found.count, count] as const])];
    const changes = { ...added.changes, ...(key === undefined ? {} : { appended: appended.slice(-MAX_APPENDS) }) };
    const append = { at: found.count, count, ...(entries === undefined ? {} : { entries }) };
    const { refused } = await commitEdit(core, { op: "edit", job: given.job, changes, append });
    // Otherwise another client has added tasks meanwhile.
    if (refused === undefined) return { first: found.count, count };
  }
  throw new LaboroError(
    "LABORO_INTERNAL",
    `job ${given.job}: others changed it ${MAX_TRIES} times meanwhile; try again`,
  );
}

/** As a submission of the job would be checked. */
function tasksFor(
  job: Job,
  { entries, array, count }: NewTasks,
): { readonly count: number; readonly entries?: Entries; readonly changes: JobChanges } {
  const { recipe } = job;
  const before = "array" in recipe ? recipe.array : undefined;
  const expected = job.hasEntries ? "entries" : before === undefined ? "count" : "array";
  const given = { entries, array, count };
  for (const name of ["entries", "array", "count"] as const)
    if (name === expected ? given[name] === undefined : given[name] !== undefined)
      throw badInput(
        `${name}: job ${job.id} takes more tasks by ${expected}, got ${name === expected ? "none" : name}`,
      );
  const more = entries?.length ?? (array === undefined ? (count ?? 0) : strideTotal(array));
  integer(job.count + more, "tasks of the job", 0, MAX_TASKS);
  if (array !== undefined) {
    const all = joinStrides(before ?? [], array);
    // Workers accept no more.
    if (all.length > MAX_STRIDES)
      throw badInput(`array: expected at most ${MAX_STRIDES} ranges in all, such as 1-500, got ${all.length}`);
    const fault = arrayFault(all);
    if (fault !== undefined) throw badInput(`array: expected numbers that job ${job.id} does not have, but ${fault}`);
    return { count: more, changes: { array: all } };
  }
  if (recipe.kind !== "call") entries?.forEach((entry, i) => void argument(entry, `entries[${i}]`));
  if (entries !== undefined) checkPlaceholders(recipe, entries);
  const first = job.numbers === undefined ? 0 : numberLimits(job).last + 1;
  const numbers = job.numbers && { numbers: joinStrides(job.numbers, [{ first, last: first + more - 1, step: 1 }]) };
  return { count: more, ...(entries === undefined ? {} : { entries }), changes: numbers ?? {} };
}

/** Durable first. Nobody else changes the job here until dispatch knows of it. */
function commitEdit(core: Core, write: Edit): Promise<Extract<WriteResult, { op: "edit" }>> {
  return core.jobs.withLock(write.job, async () => {
    const result = await core.commit(write);
    if (result.op !== "edit") throw new LaboroError("LABORO_INTERNAL", "the store gave another result");
    const { job, refused } = result;
    if (job === undefined) throw new LaboroError("LABORO_NO_SUCH_JOB", `there is no job ${write.job}`);
    if (refused === "ended")
      throw new LaboroError("LABORO_JOB_ENDED", `job ${job.id} has ended already: ${job.ended?.state}`);
    if (refused === "closed")
      throw new LaboroError("LABORO_JOB_CLOSED", `job ${job.id} takes no more tasks: it is not open, or was closed`);
    if (refused === undefined) core.decide((out) => onJobEdited(core.state, out, job, now()));
    return result;
  });
}

/** Ids reserved for the ranges in which tasks run again. */
const MAX_RANGES = 2 ** 20;

const input = s.object({
  job,
  states: s.withDefault(s.described(s.list(s.choice(...END_STATES), 3), "how they ended"), ["failed", "cancelled"]),
  tasks: s.optional(ranges),
  withDependents: s.optional(s.flag("then the same for the jobs that depend on it, directly or not; they wait for it")),
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
    // The failure of the job has cancelled them.
    const states = [...new Set([...given.states, "cancelled" as const])];
    for (const job of await dependentsOf(core, given.job)) {
      const again = core.jobs.withLock(job, () => runAgain(core, { job, states }));
      // It may depend on another job that has failed.
      const done = await again.catch((cause: unknown) => ({ count: 0, refused: asLaboroError(cause).message }));
      dependents.push({ job, ...done });
    }
    return { count, dependents };
  },
});

/** All jobs that depend on this one, directly or not, in order. A job depends only on older ones. */
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
  refuseFailedDependencies(found.after, await dependencyEnds(core, found));
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
  if (again !== undefined && count > 0) core.jobs.rerun(again, taskRanges, await dependencyEnds(core, again));
  return { count };
}

/** A dependency that was removed has succeeded: otherwise this job would have been cancelled. */
async function dependencyEnds(core: Core, { after }: Job): Promise<Map<JobId, JobEnd>> {
  const there: JobId[] = [];
  for (const { job } of after) if ((await core.store.job(job)) !== undefined) there.push(job);
  return there.length === 0 ? new Map() : endsOf(core, there);
}
