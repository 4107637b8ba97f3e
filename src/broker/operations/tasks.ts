/** Operations on the tasks of a job: results, running tasks, one task, why it waits, entries. */
import { whyDelayed } from "../../dispatch/index.js";
import { STARTED } from "../../dispatch/state.js";
import type { JobId } from "../../model/ids.js";
import type { Job } from "../../model/job.js";
import { LISTED_VALUE, MAX_VALUE, type TaskResult } from "../../model/outcome.js";
import { contains } from "../../model/ranges.js";
import type { Bytes } from "../../model/recipe.js";
import * as s from "../../model/schema.js";
import { taskNumber } from "../../model/task-numbers.js";
import type { Core } from "../core.js";
import { type TaskLocation, taskLocation } from "../group/task-location.js";
import { END_STATES } from "./job-view.js";
import { operation } from "./operation.js";
import { index, job, limit, noSuchTask, number, progress, requireJob } from "./shared-fields.js";

const PAGE = 1_000;
const ENTRIES_PAGE = 10_000;

const entry = s.optional(s.described(s.textOrBytes(), "where entries were asked for and the job has any"));
const withEntries = s.withDefault(s.described(s.flag(), "with the entry of each task"), false);

export const taskResult = s.object({
  index,
  number,
  attempt: s.described(s.count(), "how often it had been assigned by then"),
  state: s.choice(...END_STATES),
  worker: s.described(s.text(), "the name of the worker"),
  started: s.described(s.number(), "milliseconds since 1970, on the worker's clock"),
  ended: s.number(),
  code: s.optional(s.described(s.number(), "the exit code")),
  signal: s.optional(s.described(s.text(), "the signal that ended it")),
  timedOut: s.optional(s.flag()),
  error: s.optional(s.described(s.text(65_536), "why it did not start, or what the service answered")),
  outputBytes: s.described(s.count(), "how many bytes it wrote, both streams together"),
  cpuMs: s.optional(
    s.described(s.number(), "CPU time of its processes, in steps of 10 ms; absent if less, or not known"),
  ),
  peakMemory: s.optional(
    s.described(s.count(), "the most memory that its processes were seen to have, in bytes; of tasks of 1 s or longer"),
  ),
  valueBytes: s.optional(s.described(s.count(), "the size of the value that its handler returned, or of the error")),
  value: s.optional(s.described(s.bytes(), "that value, where values were asked for: JSON or bytes")),
  entry,
});

const from = s.withDefault(s.described(s.count(), "from this index on"), 0);
const next = s.optional(s.described(s.count(), "give this as from for the next page; absent on the last one"));

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
    values: s.withDefault(
      s.described(s.flag(), `with values of at most ${LISTED_VALUE} bytes; with limit 1, of any size`),
      false,
    ),
    entries: withEntries,
  }),
  output: s.object({ tasks: s.list(taskResult, PAGE), next }),
  perform: async (core, given) => {
    const found = await requireJob(core, given.job);
    const filter = {
      ...(given.state === undefined ? {} : { states: given.state }),
      ...(given.worker === undefined ? {} : { worker: given.worker }),
    };
    const maxValue = given.limit === 1 ? MAX_VALUE : LISTED_VALUE;
    const options = { from: given.from, limit: given.limit, filter, ...(given.values ? { maxValue } : {}) };
    const page = await core.store.results(given.job, options);
    const results = page.results.map((one) => withNumber(found, one));
    return {
      tasks: given.entries ? await addEntries(core, found, results) : results,
      ...(page.next === undefined ? {} : { next: page.next }),
    };
  },
});

export const usage = operation({
  name: "usage",
  role: "read",
  method: "GET",
  path: "/jobs/{job}/usage",
  summary: "What the ended tasks of a job used, together; their last attempts count",
  input: s.object({ job }),
  output: s.object({
    tasks: s.described(s.count(), "how many tasks have ended"),
    runMs: s.described(s.number(), "from start to end, all tasks together"),
    cpuMs: s.described(s.number(), "CPU time of their processes"),
    peakMemory: s.described(s.count(), "of the task with the most, in bytes; 0 if none is known"),
  }),
  perform: async (core, given) => {
    await requireJob(core, given.job);
    return core.store.usage(given.job);
  },
});

const runningTask = s.object({
  index,
  number,
  attempt: s.count(),
  worker: s.described(s.text(), "the worker's name"),
  workerId: s.text(),
  startedAt: s.optional(
    s.described(s.number(), "milliseconds since 1970, on the broker's clock; absent if the start was not reported"),
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
  input: s.object({ job, from, limit: limit(PAGE), entries: withEntries }),
  output: s.object({
    tasks: s.list(runningTask, PAGE),
    next,
    assigned: s.optional(s.described(s.count(), "tasks that workers have, started or not; absent if none")),
  }),
  perform: async (core, given) => {
    const job = core.state.jobs.get(given.job)?.job ?? (await requireJob(core, given.job));
    const input = { job: given.job, from: given.from, limit: given.limit + 1 };
    const others = (await core.peers?.askAll<RunningHere>("peer.running", input)) ?? [];
    const here = runningFrom(core, given.job, given.from, given.limit + 1);
    const found = inOrder([...here, ...others.flatMap(({ answer }) => answer.tasks)]);
    const beyond = found[given.limit];
    const page = found.slice(0, given.limit);
    const tasks = given.entries ? await addEntries(core, job, page) : page;
    const assigned = others.reduce((sum, { answer }) => sum + answer.assigned, assignedOf(core, given.job));
    return {
      tasks,
      ...(beyond === undefined ? {} : { next: beyond.index }),
      ...(assigned === 0 ? {} : { assigned }),
    };
  },
});

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

export const task = operation({
  name: "task",
  role: "read",
  method: "GET",
  path: "/jobs/{job}/tasks/{index}",
  summary: "One task: where it is, how it ended, its earlier attempts",
  input: s.object({ job, index }),
  output: s.object({
    job: s.count(),
    index,
    number,
    state: s.choice("waiting", "running", ...END_STATES),
    attempt: s.described(s.count(), "the latest attempt; 0 if there was none"),
    worker: s.optional(s.text()),
    reason: s.described(s.text(), "one line for people"),
    result: s.optional(taskResult),
    earlierAttempts: s.list(taskResult, 100_000),
  }),
  perform: async (core, given) => {
    const found = await requireTask(core, given);
    const { job, index } = given;
    const result = await resultOf(core, given);
    const earlier = await core.store.earlierAttempts(job, index);
    const earlierAttempts = earlier.map((one) => withNumber(found, one));
    const common = { job, index, number: taskNumber(found, index), earlierAttempts };
    if (result !== undefined) {
      const { state, attempt, worker } = result;
      return { ...common, state, attempt, worker, reason: whyEnded(result), result: withNumber(found, result) };
    }
    const { reason, claim } = await locate(core, found, index);
    if (claim !== undefined) {
      const { started, attempt, worker } = claim;
      return { ...common, state: started ? ("running" as const) : ("waiting" as const), attempt, worker, reason };
    }
    const attempt = earlierAttempts.at(-1)?.attempt ?? 0;
    if (!contains(found.cancels, index)) return { ...common, state: "waiting" as const, attempt, reason };
    return { ...common, state: "cancelled" as const, attempt, reason };
  },
});

export const explain = operation({
  name: "explain",
  role: "read",
  method: "GET",
  path: "/jobs/{job}/tasks/{index}/explain",
  summary: "Why a task is not running, in words",
  input: s.object({ job, index }),
  output: s.object({ reason: s.text() }),
  perform: async (core, given) => {
    const found = await requireTask(core, given);
    const result = await resultOf(core, given);
    return { reason: result === undefined ? (await locate(core, found, given.index)).reason : whyEnded(result) };
  },
});

/** Where a task without a result is. What was cancelled before it ran is nowhere. */
async function locate(core: Core, job: Job, at: number): Promise<Omit<TaskLocation, "rank">> {
  const { id, cancels, reason } = job;
  if (job.delayed === true && !contains(cancels, at))
    return { reason: job.held ? "its job is held" : whyDelayed(job, core.delays.msUntil(job)) };
  const found = await taskLocation(core, id, at);
  if (found.claim !== undefined || !contains(cancels, at)) return found;
  const why = reason === undefined ? "" : `: ${reason}`;
  return { reason: `it was cancelled before it ran${why}` };
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

const withNumber = (job: Job, result: TaskResult): s.ReadType<typeof taskResult> => ({
  ...result,
  number: taskNumber(job, result.index),
});

interface Task {
  readonly job: JobId;
  readonly index: number;
}

export async function requireTask(core: Core, given: Task): Promise<Job> {
  const found = await requireJob(core, given.job);
  if (given.index >= found.count) throw noSuchTask(found);
  return found;
}

export async function resultOf(core: Core, { job, index }: Task): Promise<TaskResult | undefined> {
  const page = await core.store.results(job, { from: index, limit: 1 });
  return page.results.find((one) => one.index === index);
}

function whyEnded({ state, code, signal, timedOut, error, worker }: TaskResult): string {
  const how =
    error ??
    (timedOut === true ? "its time limit ended it" : signal !== undefined ? `${signal} ended it` : `exit code ${code}`);
  if (state === "succeeded") return `it has succeeded on ${worker}`;
  return state === "failed" ? `it has failed on ${worker}: ${how}` : `it was cancelled on ${worker}: ${how}`;
}
