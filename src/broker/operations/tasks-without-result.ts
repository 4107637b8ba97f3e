/** Operations on tasks that may have no result: those that wait, and those that were cancelled. */
import { UNSTARTED } from "../../dispatch/state.js";
import type { JobId } from "../../model/ids.js";
import type { Job } from "../../model/job.js";
import { difference, intersection, type Range, sizeOf } from "../../model/ranges.js";
import * as s from "../../model/schema.js";
import { taskNumber } from "../../model/task-numbers.js";
import type { Core } from "../core.js";
import { locateTask } from "../group/group-view.js";
import { index, job, limit, number, operation, requireJob } from "./operation.js";
import {
  allRunning,
  entry,
  from,
  glob,
  matching,
  next,
  PAGE,
  type TaskPage,
  taskResult,
  withEntries,
  withNumber,
} from "./tasks.js";

const waitingTask = s.object({
  index,
  number,
  worker: s.optional(s.described(s.text(), "the worker of this broker that has prefetched it")),
  entry,
});

export const waiting = operation({
  name: "waiting",
  role: "read",
  method: "GET",
  path: "/jobs/{job}/waiting",
  summary: "Tasks that wait, in order, and why the first of them does",
  input: s.object({ job, from, limit: limit(PAGE), entries: withEntries, entry: glob }),
  output: s.object({
    tasks: s.list(waitingTask, PAGE),
    next,
    reason: s.optional(s.described(s.text(), "why the first of them waits, in words")),
  }),
  perform: async (core, given) => {
    const found = await requireJob(core, given.job);
    if (found.ended !== undefined) return { tasks: [] };
    const page = await matching(core, found, given, (from, limit) => waitingFrom(core, found, from, limit));
    const [first] = page.tasks;
    return first === undefined ? page : { ...page, reason: (await locateTask(core, found, first.index)).reason };
  },
});

/** Windows of tasks that are read for one page. One answer of another broker covers the running tasks of a window. */
const MAX_WINDOWS = 128;
const WINDOW = 8_192;

/** A task waits if it has no result, does not run and was not cancelled. */
async function waitingFrom(core: Core, job: Job, from: number, limit: number): Promise<TaskPage<WaitingTask>> {
  const found: WaitingTask[] = [];
  const cancels = core.state.jobs.get(job.id)?.cancels ?? job.cancels;
  let windows = 0;
  for (const range of difference({ first: from, last: job.count - 1 }, cancels)) {
    for (let first = range.first; first <= range.last; first += WINDOW) {
      if (++windows > MAX_WINDOWS) return { tasks: found, next: first };
      const window = { first, last: Math.min(range.last, first + WINDOW - 1) };
      // If all have ended, counting them is enough.
      const [{ succeeded = 0, failed = 0, cancelled = 0 } = {}] = await core.store.endCounts(job.id, window, WINDOW);
      if (succeeded + failed + cancelled === sizeOf(window)) continue;
      const others = await othersIn(core, job, window, false);
      const prefetched = prefetchedHere(core, job.id, window);
      for (let index = first; index <= window.last; index++) {
        if (others.has(index)) continue;
        if (found.length === limit) return { tasks: found, next: index };
        const worker = prefetched.get(index);
        found.push({ index, number: taskNumber(job, index), ...(worker === undefined ? {} : { worker }) });
      }
    }
  }
  return { tasks: found };
}

/** The names of the workers that have prefetched them. */
function prefetchedHere(core: Core, id: JobId, { first, last }: Range): Map<number, string> {
  const found = new Map<number, string>();
  for (const claim of core.state.jobs.get(id)?.claims ?? []) {
    const end = Math.min(last, claim.last);
    for (let at = Math.max(first, claim.first); at <= end; at++)
      if (claim.tasks[at - claim.first] === UNSTARTED) found.set(at, claim.worker.profile.name);
  }
  return found;
}

type WaitingTask = s.ReadType<typeof waitingTask>;

const cancelledTask = s.object({
  index,
  number,
  result: s.optional(s.described(taskResult, "absent if it was cancelled before it ran")),
  entry,
});

export const cancelled = operation({
  name: "cancelled",
  role: "read",
  method: "GET",
  path: "/jobs/{job}/cancelled",
  summary: "Tasks that were cancelled, in order, while they ran or before",
  input: s.object({ job, from, limit: limit(PAGE), entries: withEntries, entry: glob }),
  output: s.object({ tasks: s.list(cancelledTask, PAGE), next }),
  perform: async (core, given) => {
    const found = await requireJob(core, given.job);
    return matching(core, found, given, (from, limit) => cancelledFrom(core, found, from, limit));
  },
});

type CancelledTask = s.ReadType<typeof cancelledTask>;

/** Tasks with a cancel request that do not run and have not ended in another way. */
async function cancelledFrom(core: Core, job: Job, from: number, limit: number): Promise<TaskPage<CancelledTask>> {
  const cancels = core.state.jobs.get(job.id)?.cancels ?? job.cancels;
  const indices: number[] = [];
  let page: { next?: number } = {};
  let windows = 0;
  search: for (const range of intersection({ first: from, last: job.count - 1 }, cancels))
    for (let first = range.first; first <= range.last; first += WINDOW) {
      page = { next: first };
      if (++windows > MAX_WINDOWS) break search;
      const window = { first, last: Math.min(range.last, first + WINDOW - 1) };
      const others = await othersIn(core, job, window, true);
      for (let index = first; index <= window.last; index++) {
        if (others.has(index)) continue;
        page = { next: index };
        if (indices.length === limit) break search;
        indices.push(index);
      }
      page = {};
    }
  const [first] = indices;
  const filter = { states: ["cancelled"] } as const;
  const { results } =
    first === undefined ? { results: [] } : await core.store.results(job.id, { from: first, limit, filter });
  const known = new Map(results.map((result) => [result.index, withNumber(job, result)]));
  const tasks = indices.map((index) => {
    const result = known.get(index);
    return { index, number: taskNumber(job, index), ...(result === undefined ? {} : { result }) };
  });
  return { tasks, ...page };
}

/** Tasks that run or have ended; not those that were cancelled, if they are listed. */
async function othersIn(core: Core, job: Job, window: Range, listsCancelled: boolean): Promise<ReadonlySet<number>> {
  const ended = await core.store.endCounts(job.id, window, 1);
  const { tasks } = job.ended === undefined ? await allRunning(core, job.id, window.first, WINDOW) : { tasks: [] };
  const others = ended.filter(({ cancelled }) => !listsCancelled || cancelled === 0);
  return new Set([...others.map(({ cell }) => window.first + cell), ...tasks.map(({ index }) => index)]);
}
