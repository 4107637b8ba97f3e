/** Operations on the tasks of a job: results, running and waiting tasks, resource usage, entries. */
import { matchesGlob } from "../../base/format.js";
import { STARTED } from "../../dispatch/state.js";
import type { JobId } from "../../model/ids.js";
import { END_STATES, type Job } from "../../model/job.js";
import { MAX_TASKS } from "../../model/job-input.js";
import { LISTED_VALUE, MAX_VALUE, type TaskResult } from "../../model/outcome.js";
import type { Bytes } from "../../model/recipe.js";
import * as s from "../../model/schema.js";
import { taskNumber } from "../../model/task-numbers.js";
import type { Core } from "../core.js";
import { index, job, limit, number, operation, progress, requireJob } from "./operation.js";

export const PAGE = 1_000;
const ENTRIES_PAGE = 10_000;
/** Tasks whose entries are compared for one answer. */
const MAX_COMPARED = 20_000;
/** Results that are counted in one read of the store, because commits wait for it. */
export const COUNTED_AT_ONCE = 65_536;

export const entry = s.optional(s.described(s.textOrBytes(), "if entries were requested and the job has any"));
export const withEntries = s.withDefault(s.flag("with the entry of each task"), false);
export const glob = s.optional(
  s.described(
    s.text(200),
    "whose entry, or number if the job has no entries, matches: * is any text, ? any character; entries are included. " +
      "An answer may have few tasks, or none, and next",
  ),
);

export const taskResult = s.object({
  index,
  number,
  attempt: s.count("how often it had been assigned by then"),
  state: s.choice(...END_STATES),
  worker: s.described(s.text(), "the name of the worker"),
  started: s.number("milliseconds since 1970, on the worker's clock"),
  ended: s.number(),
  code: s.optional(s.number("the exit code")),
  signal: s.optional(s.described(s.text(), "the signal that ended it")),
  timedOut: s.optional(s.flag()),
  error: s.optional(s.described(s.text(65_536), "why it did not start, or what the service answered")),
  outputBytes: s.count("how many bytes it wrote, both streams together"),
  cpuMs: s.optional(s.number("CPU time of its processes, in steps of 10 ms; absent if less, or not known")),
  peakMemory: s.optional(
    s.count("the most memory that its processes were seen to have, in bytes; of tasks of 1 s or longer"),
  ),
  valueBytes: s.optional(s.count("the size of the value that its handler returned, or of the error")),
  value: s.optional(s.described(s.bytes(), "the value, if values were requested: JSON or bytes")),
  entry,
});

export const from = s.withDefault(s.integer(0, MAX_TASKS, "from this index on"), 0);
export const next = s.optional(s.count("give this as from for the next page; absent on the last one"));

export const tasks = operation({
  name: "tasks",
  role: "read",
  method: "GET",
  path: "/jobs/{job}/tasks",
  summary: "Results of the tasks that have ended, in order; cancelled ones that never ran have none",
  input: s.object({
    job,
    from,
    limit: limit(PAGE),
    state: s.optional(s.described(s.list(s.choice(...END_STATES), 3), "ended in one of these states")),
    worker: s.optional(s.described(s.text(), "the name of the worker")),
    values: s.withDefault(s.flag(`with values of at most ${LISTED_VALUE} bytes; with limit 1, of any size`), false),
    entries: withEntries,
    entry: glob,
  }),
  output: s.object({ tasks: s.list(taskResult, PAGE), next }),
  perform: async (core, given) => {
    const found = await requireJob(core, given.job);
    const filter = {
      ...(given.state === undefined ? {} : { states: given.state }),
      ...(given.worker === undefined ? {} : { worker: given.worker }),
    };
    const maxValue = given.limit === 1 ? MAX_VALUE : LISTED_VALUE;
    const values = given.values ? { maxValue } : {};
    return matching(core, found, given, async (from, limit) => {
      const page = await core.store.results(given.job, { from, limit, filter, ...values });
      const tasks = page.results.map((one) => withNumber(found, one));
      return { tasks, ...(page.next === undefined ? {} : { next: page.next }) };
    });
  },
});

export interface TaskPage<Task> {
  readonly tasks: readonly Task[];
  readonly next?: number;
}

/** The tasks of one answer, from pages that `read` makes. */
export async function matching<Task extends { readonly index: number; readonly number: number }>(
  core: Core,
  job: Job,
  given: { readonly from: number; readonly limit: number; readonly entries: boolean; readonly entry?: string },
  read: (from: number, limit: number) => Promise<TaskPage<Task>>,
): Promise<TaskPage<Task & { entry?: Bytes }>> {
  const { entry: glob } = given;
  if (glob === undefined) {
    const page = await read(given.from, given.limit);
    return given.entries ? { ...page, tasks: await addEntries(core, job, page.tasks) } : page;
  }
  const found: (Task & { entry?: Bytes })[] = [];
  let from = given.from;
  for (let compared = 0; compared < MAX_COMPARED; ) {
    const { tasks, next } = await read(from, PAGE);
    for (const task of await addEntries(core, job, tasks)) {
      if (!matchesGlob(Buffer.from(task.entry ?? String(task.number)).toString(), glob)) continue;
      if (found.length === given.limit) return { tasks: found, next: task.index };
      found.push(task);
    }
    if (next === undefined) return { tasks: found };
    compared += Math.max(1, tasks.length);
    from = next;
  }
  return { tasks: found, next: from };
}

export const usage = operation({
  name: "usage",
  role: "read",
  method: "GET",
  path: "/jobs/{job}/usage",
  summary: "What the ended tasks of a job used, together; their last attempts count",
  input: s.object({ job }),
  output: s.object({
    tasks: s.count("how many tasks have ended"),
    runMs: s.number("from start to end, all tasks together"),
    cpuMs: s.number("CPU time of their processes"),
    peakMemory: s.count("of the task with the most, in bytes; 0 if none is known"),
    firstStart: s.number("when the first of them started; 0 if none has ended"),
    durations: s.described(
      s.list(s.object({ step: s.count(), tasks: s.count() }), 1_000),
      "how many took how long, in order: step n is from 2^(n/4) ms on, until 2^((n+1)/4) ms",
    ),
  }),
  perform: async (core, given) => {
    const { count } = await requireJob(core, given.job);
    const total = { tasks: 0, runMs: 0, cpuMs: 0, peakMemory: 0, firstStart: 0 };
    const durations = new Map<number, number>();
    for (let first = 0, many = COUNTED_AT_ONCE; first < count; ) {
      const before = total.tasks;
      for (const used of await core.store.usage(given.job, { first, last: Math.min(count, first + many) - 1 })) {
        total.tasks += used.tasks;
        total.runMs += used.runMs;
        total.cpuMs += used.cpuMs;
        total.peakMemory = Math.max(total.peakMemory, used.peakMemory);
        total.firstStart = Math.min(total.firstStart || used.firstStart, used.firstStart);
        durations.set(used.step, (durations.get(used.step) ?? 0) + used.tasks);
      }
      first += many;
      // Reads more tasks at once if few of these have a result.
      many = total.tasks - before < many / 8 ? many * 4 : COUNTED_AT_ONCE;
    }
    const steps = [...durations].sort(([a], [b]) => a - b);
    return { ...total, durations: steps.map(([step, tasks]) => ({ step, tasks })) };
  },
});

const runningTask = s.object({
  index,
  number,
  attempt: s.count(),
  worker: s.described(s.text(), "the worker's name"),
  workerId: s.text(),
  startedAt: s.optional(
    s.number("milliseconds since 1970, on the broker's clock; absent if the start was not reported"),
  ),
  progress: s.optional(progress),
  entry,
});

export const running = operation({
  name: "running",
  role: "read",
  method: "GET",
  path: "/jobs/{job}/running",
  summary: "Tasks that run, where and since when, in order",
  input: s.object({ job, from, limit: limit(PAGE), entries: withEntries, entry: glob }),
  output: s.object({
    tasks: s.list(runningTask, PAGE),
    next,
    assigned: s.optional(s.count("tasks that workers have, started or not; absent if none")),
  }),
  perform: async (core, given) => {
    const job = core.state.jobs.get(given.job)?.job ?? (await requireJob(core, given.job));
    let assigned = 0;
    const page = await matching(core, job, given, async (from, limit) => {
      const found = await allRunning(core, given.job, from, limit + 1);
      assigned = found.assigned;
      const beyond = found.tasks[limit];
      return { tasks: found.tasks.slice(0, limit), ...(beyond === undefined ? {} : { next: beyond.index }) };
    });
    return { ...page, ...(assigned === 0 ? {} : { assigned }) };
  },
});

/** Here and at the other brokers of the group. */
export async function allRunning(core: Core, job: JobId, from: number, limit: number): Promise<RunningHere> {
  const others = (await core.peers?.askAll<RunningHere>("peer.running", { job, from, limit })) ?? [];
  const here = runningFrom(core, job, from, limit);
  return {
    tasks: inOrder([...here, ...others.flatMap(({ answer }) => answer.tasks)]).slice(0, limit),
    assigned: others.reduce((sum, { answer }) => sum + answer.assigned, assignedOf(core, job)),
  };
}

interface RunningHere {
  readonly tasks: readonly RunningTask[];
  readonly assigned: number;
}

export const assignedOf = (core: Core, job: JobId): number => core.state.jobs.get(job)?.assigned ?? 0;

type RunningTask = s.ReadType<typeof runningTask>;

/** A task that has just moved to another broker may be listed by both. */
function inOrder(tasks: readonly RunningTask[]): RunningTask[] {
  const latest = new Map<number, RunningTask>();
  for (const one of tasks) if (one.attempt >= (latest.get(one.index)?.attempt ?? 0)) latest.set(one.index, one);
  return [...latest.values()].sort((a, b) => a.index - b.index);
}

export function runningFrom(core: Core, id: JobId, first: number, most: number): RunningTask[] {
  const open = core.state.jobs.get(id);
  if (open === undefined) return [];
  const claims = [...open.claims].sort((a, b) => a.first - b.first);
  const found: RunningTask[] = [];
  for (const claim of claims) {
    const { first: start, last, attempt, worker, tasks: states, startedAt: times } = claim;
    const { name, id: workerId } = worker.profile;
    for (let at = Math.max(first, start); at <= last && found.length < most; at++) {
      const state = states[at - start];
      if (state !== STARTED) continue;
      const startedAt = times?.get(at);
      const progress = core.handlerMessages.progressOf(claim, at);
      found.push({
        index: at,
        number: taskNumber(open.job, at),
        attempt,
        worker: name,
        workerId,
        ...(startedAt === undefined ? {} : { startedAt }),
        ...(progress === undefined ? {} : { progress }),
      });
    }
  }
  return found;
}

export const entries = operation({
  name: "entries",
  role: "read",
  method: "GET",
  path: "/jobs/{job}/entries",
  summary: "The entries of a job's tasks, in order",
  input: s.object({ job, from, limit: limit(ENTRIES_PAGE, PAGE) }),
  output: s.object({ entries: s.list(s.textOrBytes(), ENTRIES_PAGE), next }),
  perform: async (core, given) => {
    const { hasEntries, count } = await requireJob(core, given.job);
    if (!hasEntries || given.from >= count) return { entries: [] };
    const last = Math.min(count, given.from + given.limit) - 1;
    const found = await core.store.entries(given.job, { first: given.from, last });
    return last + 1 < count ? { entries: found, next: last + 1 } : { entries: found };
  },
});

/** Tasks that are farther apart than this are read one by one. */
const MAX_GAP = 100;

/** Neighbours are read together: the store keeps entries in chunks. */
async function addEntries<Task extends { readonly index: number }>(
  core: Core,
  { id, hasEntries }: Job,
  tasks: readonly Task[],
): Promise<(Task & { entry?: Bytes })[]> {
  if (!hasEntries) return [...tasks];
  const spans: { first: number; last: number }[] = [];
  for (const { index } of tasks) {
    const span = spans.at(-1);
    if (span !== undefined && index - span.last <= MAX_GAP) span.last = index;
    else spans.push({ first: index, last: index });
  }
  const known = new Map<number, Bytes>();
  for (const span of spans) {
    const found = await core.store.entries(id, span);
    found.forEach((one, at) => void known.set(span.first + at, one));
  }
  return tasks.map((task) => {
    const entry = known.get(task.index);
    return entry === undefined ? task : { ...task, entry };
  });
}

export const withNumber = (job: Job, result: TaskResult): s.ReadType<typeof taskResult> => ({
  ...result,
  number: taskNumber(job, result.index),
});
