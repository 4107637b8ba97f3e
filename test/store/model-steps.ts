/**
 * Steps of a right broker, drawn at random: each is turned into a write that fits the state the model is in. The numbers in
 * a step choose among what there is, so that any list of steps means something and shrinks well.
 */
import * as fc from "fast-check";
import { type TaskRangeId, WorkerId } from "../../src/model/ids.js";
import { finishedCount, IF_EXISTS } from "../../src/model/job.js";
import { LIMIT_BUCKET } from "../../src/model/limit.js";
import type { SmallOutput, TaskEnd, TaskResult } from "../../src/model/outcome.js";
import { contains, rangesOf } from "../../src/model/ranges.js";
import { ONE_SLOT } from "../../src/model/recipe.js";
import type { TaskRange, Write } from "../../src/model/store.js";
import type { ModelJob, ModelWorld, OwnedTaskRange } from "./model-store.js";
import { newRangeId, newRangeIds, request } from "./suite/kit.js";
import { addSchedule } from "./suite/schedules.js";

export interface Step {
  readonly kind: (typeof KINDS)[number];
  /** Chooses a job or task range. */
  readonly pick: number;
  readonly size: number;
  readonly flag: boolean;
  readonly state: TaskEnd;
}

// The more often a kind is listed, the more often it is drawn.
const KINDS = [
  ..."submit lease lease claim claim claim settle settle settle replace replace".split(" "),
  ..."release adopt hold cancel edit edit output output stale rerun rerun promote remove limit schedule schedule commit commit commit reopen".split(
    " ",
  ),
] as ReadonlyArray<
  | "submit"
  | "lease"
  | "claim"
  | "settle"
  | "replace"
  | "release"
  | "adopt"
  | "hold"
  | "cancel"
  | "edit"
  | "output"
  | "stale"
  | "rerun"
  | "promote"
  | "remove"
  | "limit"
  | "schedule"
  | "commit"
  | "reopen"
>;

/** With what means something to one engine or another in a pattern. */
export const NAMES = ["job", "job 1", "j*b", "j?b", "j[o]b", "j%b", "j_b", "JOB", "", "größer", "j\\ob", "a]b[c"];
export const POOLS = ["default", "gpu", "Gpu"];
/** Each claim counts against one at most: starts of the same time are in no order. */
const LIMITS = ["api", "disk"];
const SCHEDULES = ["nightly", "hourly"];
const WORKERS = ["ann", "bob", "cleo"].map(WorkerId);

export const steps: fc.Arbitrary<readonly Step[]> = fc.array(
  fc.record({
    kind: fc.constantFrom(...KINDS),
    pick: fc.nat({ max: 1000 }),
    size: fc.nat({ max: 40 }),
    flag: fc.boolean(),
    state: fc.constantFrom<TaskEnd>("succeeded", "failed", "cancelled"),
  }),
  { minLength: 20, maxLength: 120 },
);

/** The write that this step means now; undefined where it means none. */
export function writeFor(step: Step, world: ModelWorld): Write | undefined {
  const { kind, pick, size, flag } = step;
  const job = chosen([...world.jobs.values()], pick);
  if (kind === "submit" || job === undefined) return submit(step);
  const { id } = job.job;
  switch (kind) {
    case "lease":
      if (job.job.delayed === true) return undefined;
      return lease(step, job);
    case "hold":
      return { op: "hold", job: id, held: flag };
    case "cancel": {
      const last = flag ? job.job.count : pick % 30;
      const range = { first: pick % 4 === 0 ? 0 : Math.min(size, last), last };
      const reason = pick % 3 === 0 ? { reason: `number ${pick}` } : {};
      return { op: "cancel", job: id, ranges: [range], ...reason, ...(pick % 5 < 2 ? { unclaimed: true } : {}) };
    }
    case "edit":
      return edit(step, job);
    case "adopt":
      return { op: "adopt", worker: WORKERS[pick % WORKERS.length] ?? WorkerId("ann") };
    case "claim":
      return claim(step, chosen(taskRanges(world, pick % 10 === 0 ? "any" : "waiting"), pick)?.taskRange);
    case "release": {
      const taskRange = chosen(taskRanges(world, flag ? "waiting" : "any"), pick)?.taskRange;
      return taskRange === undefined ? undefined : { op: "release", rangeId: taskRange.id };
    }
    case "settle":
      return settle(step, world, chosen(taskRanges(world, "claimed"), pick)?.taskRange);
    case "replace":
      return replace(step, world, chosen(taskRanges(world, "owned"), pick)?.taskRange);
    case "output":
      return output(step, world, chosen(taskRanges(world, "claimed"), pick)?.taskRange);
    case "rerun":
      // One with something to run again, where there is one.
      return rerun(step, chosen(begunJobs(world), pick) ?? job);
    case "promote":
      return { op: "promote", clock: size, steady: pick % 40, max: pick % 7 };
    case "remove":
      // One that has ended, where there is one: most have not.
      return { op: "remove", job: (chosen(endedJobs(world), pick) ?? job).job.id };
    case "limit": {
      // The time of a start is compared only where the clock is the test's.
      const rate = world.shared || flag ? {} : { rate: { starts: 1 + (pick % 9), intervalMs: 1 + size } };
      const value = pick % 6 === 0 ? null : JSON.stringify({ ...(flag ? { running: size % 12 } : {}), ...rate });
      return { op: "put", bucket: LIMIT_BUCKET, key: LIMITS[pick % LIMITS.length] ?? "", value };
    }
    case "schedule":
      return schedule(step, world);
    case "stale":
      return stale(step, newRangeId(), job);
    default:
      return undefined;
  }
}

function lease({ pick, size, flag }: Step, { job: { id } }: ModelJob): Write {
  const limits = pick % 3 === 0 ? { limits: flag ? LIMITS : LIMITS.slice(0, 1) } : {};
  const maxRunning = pick % 5 === 0 ? { maxRunning: pick % 11 } : {};
  return { op: "lease", job: id, max: size, rangeId: newRangeId(), ...limits, ...maxRunning };
}

/** A run, an edit or a removal of a schedule; now and then by a broker that has read an older revision, or too early. */
function schedule(step: Step, world: ModelWorld): Write {
  const { pick, size, flag } = step;
  const name = SCHEDULES[pick % SCHEDULES.length] ?? "";
  const found = world.schedules.get(name);
  const expected = pick % 7 === 0 ? size : (found?.revision ?? 0);
  // One broker alone decides by its own clock.
  const due = world.shared && pick % 9 === 0 ? 8e15 : 1_000;
  const change = addSchedule(name, flag ? 1_000 + size : undefined, newRangeId());
  if (change.next === undefined) throw new Error("a schedule is added");
  const { spec, state, ...next } = change.next;
  const edited = found === undefined || pick % 3 === 0;
  const cancelled = found?.lastJob !== undefined && world.jobs.has(found.lastJob) ? [found.lastJob] : [];
  const cancels = cancelled.map((job) => ({ op: "cancel", job, ranges: [{ first: 0, last: 99 }] }) as const);
  return {
    op: "schedule",
    changes: [
      {
        ...{ name, expected, due },
        ...(found !== undefined && pick % 8 === 1
          ? {}
          : { next: { ...next, state: { ...state, runs: size }, ...(edited ? { spec } : {}) } }),
        writes: [...(size % 3 === 0 ? [] : [submit(step)]), ...(pick % 4 === 0 ? cancels : [])],
      },
    ],
  };
}

function submit({ size, pick, flag }: Step): Extract<Write, { op: "submit" }> {
  // Often few, so that jobs end.
  const count = pick % 2 === 0 ? size : size % 5;
  const entries = flag ? Array.from({ length: count }, (_, i) => (i % 3 ? `${pick}.${i}` : Uint8Array.of(i, 255))) : [];
  const job = request({
    name: NAMES[pick % NAMES.length] ?? "",
    requirement: { pool: POOLS[size % POOLS.length] ?? "", tags: [], needs: ONE_SLOT },
    count,
    held: pick % 5 === 0,
    priority: pick,
    ...(pick % 3 === 0 ? { batchKey: `key ${pick % 4}` } : {}),
    ...(pick % 4 === 1 ? { key: `key-${size % 5}`, ifExists: IF_EXISTS[pick % 3] ?? "return" } : {}),
    ...(pick % 8 === 1 ? { keyForMs: size } : {}),
    ...(pick % 5 === 2 ? { notBefore: size, ...(flag ? { delayMs: size } : {}) } : {}),
    ...(pick % 3 === 1 ? { open: true } : {}),
    ...(pick % 6 === 1 ? { keepMs: size } : {}),
    ...(pick % 7 === 1 ? { keepFailedMs: pick % 50 } : {}),
  });
  const lease = job.notBefore === undefined ? pick % 50 : 0;
  const write = { op: "submit", job, lease, rangeId: newRangeId() } as const;
  return flag ? { ...write, entries } : write;
}

function edit({ pick, size, flag, state }: Step, { job }: ModelJob): Write {
  const changes = {
    ...(flag ? { priority: size } : { name: NAMES[size % NAMES.length] ?? "" }),
    ...(pick % 7 === 1 ? { maxRunning: 1 + size } : {}),
    ...(pick % 7 === 2 ? { timeLimitMs: 1 + size } : {}),
  };
  const count = size % 5;
  const entries = job.hasEntries ? { entries: Array.from({ length: count }, (_, i) => `${pick}+${i}`) } : {};
  const append = pick % 3 === 0 ? {} : { append: { at: pick % 11 === 1 ? size : job.count, count, ...entries } };
  return { op: "edit", job: job.id, changes, ...append, ...(state === "failed" ? { close: true } : {}) };
}

function rerun({ pick, size, flag, state }: Step, { job }: ModelJob): Write {
  const ends: TaskEnd[] = pick % 3 === 0 ? [state] : ["failed", "cancelled", ...(pick % 3 === 1 ? [] : [state])];
  const ranges = [
    { first: size, last: size + (pick % 20) },
    { first: size - (pick % 7), last: size + 2 },
  ];
  const names = pick % 4 === 0 ? pick % 3 : 50;
  const write = { op: "rerun", job: job.id, ends, rangeId: newRangeIds(50), idCount: names } as const;
  return flag ? write : { ...write, ranges };
}

function claim({ size, pick, flag }: Step, from: TaskRange | undefined): Write | undefined {
  if (from === undefined) return undefined;
  const last = from.last - from.first;
  const most = Math.min(size, last);
  const range = flag ? { first: from.first, last: from.first + most } : { first: from.last - most, last: from.last };
  const worker = WORKERS[pick % WORKERS.length] ?? WorkerId("ann");
  const limits = pick % 3 === 0 ? { limits: LIMITS.slice(0, 1) } : {};
  return { op: "claim", from: from.id, rangeId: newRangeId(), ...range, attempt: from.attempt + 1, worker, ...limits };
}

/** Results of some of a task range's tasks, now and then of tasks that have one already. */
function settle(step: Step, world: ModelWorld, taskRange: TaskRange | undefined): Write | undefined {
  if (taskRange === undefined) return undefined;
  const known = jobOf(world, taskRange);
  const indices = tasksOf(taskRange).filter((index) => step.flag || (index * 7 + step.pick) % 3 > 0);
  const done = indices.filter((index) => !known.results.has(index) || index % 4 === 0);
  const results = done.map((index) => resultOf(step, world, taskRange, index));
  const empty = tasksOf(taskRange).every((index) => known.results.has(index) || done.includes(index));
  return { op: "settle", job: taskRange.job, rangeId: taskRange.id, results, empty };
}

/** What has no result goes back to wait, or stays with the worker; cancelled tasks leave. */
function replace(step: Step, world: ModelWorld, taskRange: TaskRange | undefined): Write | undefined {
  if (taskRange === undefined) return undefined;
  const known = jobOf(world, taskRange);
  const open = tasksOf(taskRange).filter((index) => !known.results.has(index));
  const leaving = open.filter((index) => contains(known.job.cancels, index));
  const staying = open.filter((index) => !contains(known.job.cancels, index));
  const { worker, avoid, ...rest } = taskRange;
  const keep = worker !== undefined && step.flag;
  const pieces = rangesOf(staying).map((range) =>
    keep
      ? { ...taskRange, ...range, id: newRangeId() }
      : {
          ...rest,
          ...range,
          id: newRangeId(),
          failures: rest.failures + 1,
          notBefore: step.size,
          ...(step.pick % 2 === 0 ? { waitMs: step.pick % 9 } : {}),
          ...(worker && { avoid: worker }),
        },
  );
  const ended = worker === undefined || keep ? [] : staying.filter((index) => index % 2 === 0);
  const earlier = ended.map((index) => ({ ...resultOf(step, world, taskRange, index), state: "failed" as const }));
  return {
    op: "replace",
    job: taskRange.job,
    rangeId: taskRange.id,
    replacements: pieces,
    earlierAttempts: earlier,
    cancelled: leaving.length,
  };
}

function output({ pick, size, flag }: Step, world: ModelWorld, taskRange: TaskRange | undefined): Write | undefined {
  if (taskRange === undefined) return undefined;
  const { job, attempt } = taskRange;
  const known = jobOf(world, taskRange);
  const index = tasksOf(taskRange).find((candidate) => !known.results.has(candidate));
  if (index === undefined) return undefined;
  const end = world.output.end(job, index, attempt);
  // Sent again, following on, or behind a gap.
  const offset = Math.max(0, end + ((pick % 3) - 1) * 3);
  const bytes = Uint8Array.from({ length: size }, (_, at) => (offset + at) % 251);
  return { op: "output", chunks: [{ job, index, attempt, stream: flag ? "stdout" : "stderr", offset, bytes }] };
}

/** A write for a task range that is not there. */
function stale({ size }: Step, taskRange: TaskRangeId, { job }: ModelJob): Write {
  if (size % 3 === 0) return { op: "release", rangeId: taskRange };
  if (size % 3 === 1)
    return { op: "replace", job: job.id, rangeId: taskRange, replacements: [], earlierAttempts: [], cancelled: 3 };
  return { op: "settle", job: job.id, rangeId: taskRange, results: [], empty: size % 2 === 0 };
}

function resultOf({ state, pick, size }: Step, world: ModelWorld, taskRange: TaskRange, index: number): TaskResult {
  const stored = world.output.end(taskRange.job, index, taskRange.attempt);
  const output = stored === 0 && (pick + index) % 3 === 0 ? smallOutput(pick + index, size) : undefined;
  return {
    index,
    attempt: taskRange.attempt,
    state,
    worker: taskRange.worker ?? "nobody",
    started: pick,
    ended: pick + size,
    outputBytes: output?.reduce((sum, { bytes }) => sum + bytes.length, 0) ?? stored,
    ...(output === undefined ? {} : { output }),
    ...(pick % 2 === 0 ? { code: size } : { signal: "SIGTERM" }),
    ...(pick % 5 === 0 ? { timedOut: pick % 10 === 0 } : {}),
    ...(pick % 4 === 0 ? { value: new Uint8Array(size % 17).fill(pick) } : {}),
    ...(pick % 3 === 1 ? { cpuMs: 10 * size } : {}),
    ...(pick % 6 === 1 ? { peakMemory: size * 2 ** 32 } : {}),
    ...(pick % 7 === 0 ? { error: `reason ${pick}` } : {}),
  };
}

function smallOutput(seed: number, size: number): SmallOutput[] {
  return Array.from({ length: 1 + (seed % 3) }, (_, part) => ({
    stream: (seed + part) % 3 === 0 ? ("stderr" as const) : ("stdout" as const),
    bytes: Uint8Array.from({ length: 1 + (size % 30) }, (_unused, at) => (seed * 7 + part + at) % 256),
  }));
}

type Place = "waiting" | "claimed" | "owned" | "any";

function taskRanges(world: ModelWorld, place: Place): OwnedTaskRange[] {
  return [...world.taskRanges.values()].filter(({ taskRange, epoch }) => {
    if (place === "waiting") return taskRange.worker === undefined;
    if (place === "claimed") return taskRange.worker !== undefined;
    return place === "any" || epoch !== undefined;
  });
}

function jobOf(world: ModelWorld, taskRange: TaskRange): ModelJob {
  const known = world.jobs.get(taskRange.job);
  if (known === undefined) throw new Error(`task range ${taskRange.id} is of no job`);
  return known;
}

const begunJobs = (world: ModelWorld): ModelJob[] =>
  [...world.jobs.values()].filter(({ job }) => finishedCount(job.counters) > 0);

const endedJobs = (world: ModelWorld): ModelJob[] =>
  [...world.jobs.values()].filter(({ job }) => job.ended !== undefined);

const tasksOf = ({ first, last }: TaskRange): number[] =>
  Array.from({ length: last - first + 1 }, (_, at) => first + at);

const chosen = <T>(list: readonly T[], pick: number): T | undefined => list[pick % Math.max(1, list.length)];
