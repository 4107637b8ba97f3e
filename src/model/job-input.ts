/** Reads a submission of a client into a job. Everything but the recipe has a default. */
import { JobId } from "./ids.js";
import { argument, integer, number, positive, text as readText, unexpectedValue } from "./input.js";
import { DEFAULT_LIMITS, type Dependency, type Entries, IF_EXISTS, type JobSpec, type Limits, MAX_MS } from "./job.js";
import { limitName, MAX_LIMITS_OF_JOB } from "./limit.js";
import { checkPlaceholders } from "./placeholders.js";
import {
  ALL,
  array,
  type Bytes,
  DEFAULT_POOL,
  MAX_ENTRIES,
  numbers,
  outputCap,
  type Recipe,
  type Resources,
  recipe,
  relay,
  timeLimitMs,
  timeLimitPercent,
} from "./recipe.js";
import * as s from "./schema.js";
import { strideTotal } from "./task-numbers.js";

/** More tasks than this in one job are refused. */
export const MAX_TASKS = 1_000_000_000;

const after = s.object({
  job: s.integer(1, Number.MAX_SAFE_INTEGER),
  any: s.optional(s.flag("wait for its end, however it ends")),
  each: s.optional(
    s.flag("each task waits for the success of the task in the same place of that job, which has as many"),
  ),
});

const duration = (description: string) => s.optional(s.integer(0, MAX_MS, `${description}, in milliseconds`));

const isTime = (value: unknown): value is number => Number.isInteger(value) && Math.abs(value as number) <= 8.64e15;

/** Milliseconds since 1970, or text with a zone, because broker and client may be in different zones. */
const time: s.Schema<number, number | string | Date> = {
  read: (value, what) => {
    const zoned =
      typeof value === "string" && /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$/.test(value);
    const ms = zoned ? Date.parse(value) : value instanceof Date ? value.getTime() : value;
    if (isTime(ms)) return ms;
    throw unexpectedValue(what, "a time such as 2026-12-24T18:00:00+01:00, or milliseconds since 1970", value);
  },
  json: () => ({ anyOf: [{ type: "string", minLength: 16 }, { type: "integer" }] }),
};

/** An exit code, or the name of an error. */
const taskEnd: s.Schema<number | string> = {
  read: (value, what) =>
    typeof value === "string" ? readText(value, what, 200) : integer(value, what, 1, 2 ** 31 - 1),
  json: () => ({
    anyOf: [
      { type: "integer", minimum: 1 },
      { type: "string", minLength: 1, maxLength: 200 },
    ],
  }),
};

const bounded = (min: number, max: number): s.Schema<number> =>
  s.mapped(s.number(), (given, what) => {
    if (given >= min && given <= max) return given;
    throw unexpectedValue(what, `a number from ${min} to ${max}`, given);
  });

export const retry = s.object({
  waitMs: duration("before the first retry"),
  factor: s.optional(s.described(bounded(1, 100), "the factor between two successive waits; 2 if absent")),
  maxMs: duration("the longest wait"),
  jitter: s.optional(s.described(bounded(0, 1), "the part of a wait that is random, 0 to 1; 0 if absent")),
  on: s.optional(
    s.described(
      s.list(taskEnd, 100),
      "only these ends are retried: exit codes (128 + n for signal n), timeout, names and codes of a handler's errors",
    ),
  ),
  never: s.optional(s.described(s.list(taskEnd, 100), "these ends are not retried")),
});

export const haltRule = s.described(
  s.object({
    on: s.choice("fail", "success", "done"),
    count: s.integer(1, MAX_TASKS),
    now: s.optional(s.flag("running tasks are cancelled, too")),
  }),
  "the rest is cancelled once this many tasks have failed, succeeded, or ended in either way; maxFails 2 is 3 failures",
);

const optionalInteger = (min: number, max: number, description: string) => s.optional(s.integer(min, max, description));

/** Resources that one task may need. A message to a worker has no more. */
const MAX_NEEDS = 100;

/** Characters that every store compares in the same way. */
export const plainKey = s.mapped(s.text(200), (given, what) => {
  if (/^[\x21-\x7e]+$/.test(given)) return given;
  throw unexpectedValue(what, "printable ASCII characters without spaces", given);
});

/** More tasks for an open job: one of these, as the job has them. */
export const newTasks = {
  entries: s.optional(s.list(s.textOrBytes(), MAX_ENTRIES)),
  array: s.optional(s.described(array, "a task for each of these numbers")),
  count: optionalInteger(0, MAX_TASKS, "how many tasks; 1 if absent"),
};

/** An amount of a resource. */
export const amount: s.Schema<number, number | "all"> = {
  read: (value, what) => (value === "all" ? ALL : number(value, what)),
  json: () => ({ anyOf: [{ type: "number" }, { const: "all" }] }),
};

/** What `client.submit` takes. */
export const submission = s.object({
  /** What a task is: a command, a script, or a call of a service. */
  recipe,
  name: s.optional(s.described(s.text(), "what people call it; its recipe in short if absent")),
  count: optionalInteger(
    0,
    MAX_TASKS,
    "how many tasks; 1 if absent. With entries or an array: absent, or their number",
  ),
  entries: s.optional(s.described(s.list(s.textOrBytes(), MAX_ENTRIES), "one entry for each task")),
  numbers: s.optional(
    s.described(
      numbers,
      "the numbers of the tasks, rising; 1, 2, 3 … if absent, and those of the array if there is one",
    ),
  ),
  pool: s.optional(s.described(s.text(), "only workers of this pool run it; default if absent")),
  tags: s.optional(s.described(s.list(s.text(), 100), "only workers that have all of these tags run it")),
  needs: s.optional(s.described(s.record(amount), "what one task needs beyond a slot; all: all that a worker has")),
  priority: optionalInteger(-1000, 1000, "the higher first; 0 if absent"),
  retries: optionalInteger(0, 1_000, "how often a task that failed is tried again; 0 if absent"),
  retry: s.optional(
    s.described(
      retry,
      "when a failed task is tried again, as often as retries says; what is absent is the broker's default",
    ),
  ),
  crashLimit: optionalInteger(
    0,
    1_000,
    "a task fails when this many workers were lost while they ran it; 5 if absent, 0 for no limit",
  ),
  maxFails: optionalInteger(0, MAX_TASKS, "once more tasks have failed, waiting tasks are cancelled"),
  halt: s.optional(haltRule),
  maxRunning: optionalInteger(1, MAX_TASKS, "how many of its tasks run at once"),
  limits: s.optional(
    s.described(s.list(limitName, MAX_LIMITS_OF_JOB), "the names of limits that its tasks count against"),
  ),
  timeLimitMs: s.optional(s.described(timeLimitMs, "how long an attempt of a task may take")),
  timeLimitPercent: s.optional(timeLimitPercent),
  timeRequestMs: s.optional(
    s.described(timeLimitMs, "a worker that ends sooner than this gets no task of the job; timeLimitMs if absent"),
  ),
  outputCap,
  /** Clients that follow the job get all output, also beyond the cap. A slow client slows the task down. */
  relay,
  after: s.optional(s.described(s.list(after, 1000), "the jobs that it comes after")),
  held: s.optional(s.flag("no task starts before the job is released")),
  open: s.optional(s.flag("it takes more tasks, and does not end, until it is closed")),
  delayMs: duration("start no earlier than this long after the submission"),
  at: s.optional(s.described(time, "start no earlier than this; a text needs a zone or Z")),
  key: s.optional(s.described(plainKey, "one job at a time has it: until it ends, and for keyForMs after")),
  keyForMs: duration("how long the job has its key after its end"),
  ifExists: s.optional(
    s.described(
      s.choice(...IF_EXISTS),
      "if another job has the key: return it, which is the default; refuse; or replace it, which cancels it",
    ),
  ),
  keepMs: duration("how long the job is kept after its end"),
  keepFailedMs: duration("the same for a job that did not succeed; keepMs if absent"),
  batchKey: s.optional(s.described(s.text(), "what makes it the same batch as another; not unique")),
  idempotencyKey: s.optional(
    s.described(plainKey, "a submission repeated with the same one makes no second job: the answer names the first"),
  ),
  resumes: s.optional(
    s.integer(1, Number.MAX_SAFE_INTEGER, "the job of the same batch whose remaining tasks this one runs"),
  ),
});

/** A job to create: its recipe, its tasks, and how to run them. */
export type Submission = s.WrittenType<typeof submission>;

export function readSubmission(input: unknown): { spec: JobSpec; entries?: Entries } {
  return jobSpec(submission.read(input, ""));
}

export function jobSpec(given: s.ReadType<typeof submission>): { spec: JobSpec; entries?: Entries } {
  const { recipe, entries, idempotencyKey, numbers, resumes } = given;
  const spec: JobSpec = {
    name: given.name ?? defaultName(recipe),
    recipe,
    requirement: {
      pool: given.pool ?? DEFAULT_POOL,
      tags: given.tags ?? [],
      ...(recipe.kind === "call" ? { service: recipe.service } : {}),
      needs: needsOf(given.needs ?? {}),
    },
    count: taskCount(given),
    ...(numbers === undefined ? {} : { numbers }),
    priority: given.priority ?? 0,
    limits: limitsOf(given),
    after: (given.after ?? []).map(dependencyOf),
    held: given.held ?? false,
    ...(given.open === true ? { open: true } : {}),
    ...timesOf(given),
    ...(idempotencyKey === undefined ? {} : { idempotencyKey }),
    ...(resumes === undefined ? {} : { resumes: JobId(resumes) }),
  };
  // The entries of other recipes become arguments.
  if (recipe.kind !== "call") entries?.forEach((entry, i) => void argument(entry, `entries[${i}]`));
  checkPlaceholders(recipe, entries);
  return entries === undefined ? { spec } : { spec, entries };
}

function dependencyOf({ job, any = false, each }: s.ReadType<typeof after>): Dependency {
  if (any && each === true) throw unexpectedValue("after", "any or each", "both");
  return { job: JobId(job), any, ...(each === true ? { each } : {}) };
}

const TIMES_AND_KEYS = ["delayMs", "key", "keyForMs", "ifExists", "keepMs", "keepFailedMs", "batchKey"] as const;

function timesOf(given: s.ReadType<typeof submission>): Partial<JobSpec> {
  const { at, delayMs, key } = given;
  if (at !== undefined && delayMs !== undefined) throw unexpectedValue("at", "none beside delayMs", at);
  for (const name of ["keyForMs", "ifExists"] as const)
    if (key === undefined && given[name] !== undefined) throw unexpectedValue(name, "none without a key", given[name]);
  const times = TIMES_AND_KEYS.flatMap((name) => (given[name] === undefined ? [] : [[name, given[name]]]));
  return { ...Object.fromEntries(times), ...(at === undefined ? {} : { notBefore: at }) };
}

function taskCount({ count, entries, recipe, numbers, open }: s.ReadType<typeof submission>): number {
  const array = "array" in recipe ? recipe.array : undefined;
  if (array !== undefined && entries !== undefined) throw unexpectedValue("entries", "none beside an array", "some");
  if (entries?.length === 0 && open !== true) throw unexpectedValue("entries", "at least one entry", "none");
  if (array !== undefined && numbers !== undefined) throw unexpectedValue("numbers", "none beside an array", "some");
  const strides = array ?? numbers;
  const named = strides && integer(strideTotal(strides), array ? "recipe.array" : "numbers", 1, MAX_TASKS);
  const length = entries?.length ?? named;
  if (named !== undefined && named !== length) throw unexpectedValue("numbers", `${length}, one an entry`, named);
  if (length === undefined) return integer(count ?? 1, "count", open === true ? 0 : 1, MAX_TASKS);
  if (count !== undefined && count !== length)
    throw unexpectedValue("count", `${length}, the number of entries`, count);
  return length;
}

function slotsOf(amount: number): number {
  if (amount === ALL) throw unexpectedValue("needs.slots", "a number", "all");
  return integer(amount, "needs.slots", 1, 1_000_000);
}

function needsOf(given: Readonly<Record<string, number>>): Resources {
  const needs: Record<string, number> & { slots: number } = { slots: 1 };
  const amounts = Object.entries(given);
  if (amounts.length > MAX_NEEDS) throw unexpectedValue("needs", `at most ${MAX_NEEDS} amounts`, amounts.length);
  for (const [name, amount] of amounts) {
    needs[readText(name, "needs", 64)] = name === "slots" ? slotsOf(amount) : positive(amount, `needs.${name}`);
  }
  return needs;
}

const NUMERIC_LIMITS = [
  ...([
    "retries",
    "crashLimit",
    "maxFails",
    "maxRunning",
    "timeLimitMs",
    "timeLimitPercent",
    "timeRequestMs",
    "outputCap",
  ] as const),
];

function limitsOf(given: s.ReadType<typeof submission>): Limits {
  const limits: { -readonly [Name in keyof Limits]: Limits[Name] } = { ...DEFAULT_LIMITS };
  for (const name of NUMERIC_LIMITS) {
    const value = given[name];
    if (value !== undefined) limits[name] = value;
  }
  if (given.limits !== undefined && given.limits.length > 0) limits.named = [...new Set(given.limits)].sort();
  const { retry, relay, halt } = given;
  if (halt !== undefined && given.maxFails !== undefined)
    throw unexpectedValue("halt", "none beside maxFails", JSON.stringify(halt));
  if (halt !== undefined) limits.halt = halt;
  return { ...limits, ...(retry === undefined ? {} : { retry }), ...(relay === true ? { relay: true } : {}) };
}

function defaultName(recipe: Recipe): string {
  const asText = (one: Bytes | undefined): string =>
    typeof one === "string" ? one : new TextDecoder().decode(one ?? new Uint8Array());
  switch (recipe.kind) {
    case "command":
      return asText(recipe.argv[0]).slice(0, 200) || "command";
    case "script":
      return `script${recipe.type}`;
    case "call":
      return recipe.service;
  }
}
