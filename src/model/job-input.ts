/** A submission, as a client writes it, read into a job. Everything has a default but the recipe. */
import { badInput } from "../base/errors.js";
import { JobId } from "./ids.js";
import { fields, integer, optional, positive, text as readText, unexpectedValue } from "./input.js";
import { DEFAULT_LIMITS, type Dependency, type Entries, type JobSpec, type Limits, NO_OUTPUT_CAP } from "./job.js";
import { checkPlaceholders } from "./placeholders.js";
import { type Bytes, DEFAULT_POOL, type Recipe, type Resources } from "./recipe.js";
import * as s from "./schema.js";
import { arrayFault, isRising, type Strides, strideTotal } from "./task-numbers.js";

/** More tasks than this in one job are refused. */
export const MAX_TASKS = 1_000_000_000;
/** A submission of more bytes is read in a thread. */
export const LARGE_SUBMISSION = 1024 * 1024;
const MAX_ENTRIES = 10_000_000;
const MAX_ARGUMENTS = 100_000;
const MAX_STRIDES = 10_000;

const environment = s.mapped(s.record(s.argument()), (given, what) => {
  for (const name of Object.keys(given)) {
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) throw unexpectedValue(what, "names of letters, digits and _", name);
  }
  return given;
});

const stride = s.mapped(
  s.object({
    first: s.count(),
    last: s.count(),
    step: s.withDefault(s.integer(1, Number.MAX_SAFE_INTEGER), 1),
  }),
  (given, what) => {
    if (given.last < given.first)
      throw unexpectedValue(what, "first to be at most last", `${given.first} and ${given.last}`);
    return given;
  },
);

const array = s.mapped(s.list(stride, MAX_STRIDES), (given, what): Strides => {
  const fault = arrayFault(given);
  if (fault !== undefined) throw badInput(`${what}: expected each number once, but ${fault}`);
  return given;
});

const numbers = s.mapped(s.list(stride, MAX_ENTRIES), (given, what): Strides => {
  if (!isRising(given)) throw badInput(`${what}: expected each number to be larger than the one before it`);
  return given;
});

/** The numbers in a message of the link. */
export const readLinkNumbers = (value: unknown): Strides => numbers.read(value, "numbers");

/** Where and with what a process runs. */
const processFields = {
  array: s.optional(s.described(array, "a task for each of these numbers, which is its number and its entry")),
  dir: s.optional(s.argument()),
  env: s.optional(environment),
  stdin: s.optional(s.bytes()),
};

const command = s.object({
  kind: s.choice("command"),
  argv: s.list(s.argument(), MAX_ARGUMENTS),
  placeholders: s.optional(
    s.described(s.flag(), "replace {} {.} {/} {//} {/.} {#} {%} and {1} {2} … in the arguments, task by task"),
  ),
  shell: s.optional(s.described(s.flag(), "the one argument is a line for /bin/sh")),
  log: s.optional(
    s.described(s.text(4096), "a file at the worker that gets the output too; {#} in it is the task's number"),
  ),
  ...processFields,
});

const script = s.object({
  kind: s.choice("script"),
  content: s.bytes(),
  type: s.described(s.text(16), "the file's extension: .sh"),
  args: s.optional(s.list(s.argument(), MAX_ARGUMENTS)),
  ...processFields,
});

const call = s.object({ kind: s.choice("call"), service: s.text(), body: s.optional(s.bytes()) });

const recipeKinds = { command, script, call };

const recipe = s.mapped(s.unionByKind(recipeKinds), (given, what): Recipe => {
  if (given.kind !== "command") return given;
  if (given.argv.length === 0 || given.argv[0]?.length === 0)
    throw unexpectedValue(`${what}.argv`, "a command", "nothing");
  if (given.shell === true && given.argv.length !== 1) {
    throw unexpectedValue(`${what}.argv`, "one line for the shell", `${given.argv.length} words`);
  }
  return given;
});

/** The recipe in a message of the link. Members that a newer version has added are ignored. */
export function readLinkRecipe(value: unknown, what: string): Recipe {
  const given = fields(value, what);
  const kind = Object.entries(recipeKinds).find(([name]) => name === given.kind)?.[1];
  return recipe.read(kind === undefined ? given : s.knownMembers<s.Shape>(kind, given), what);
}

const timeLimitMs = s.positive();
/** Null is no cap. */
const outputCap: s.Optional<number, number | null> = {
  ...s.optional(s.count()),
  read: (value, what) => (value === null ? NO_OUTPUT_CAP : (optional(value, what, s.count().read) as number)),
  json: () => ({ type: ["integer", "null"], minimum: 0, description: "output kept per task, in bytes; null for all" }),
};
const relay = s.optional(s.flag());

/** Of a job's limits, those that its workers apply. */
const taskLimits = s.object({ timeLimitMs: s.optional(timeLimitMs), outputCap: s.count(), relay });

/** The limits in a message of the link. Members that a newer version has added are ignored. */
export const readLinkLimits = (value: unknown, what: string): s.ReadType<typeof taskLimits> =>
  taskLimits.read(s.knownMembers(taskLimits, fields(value, what)), what);

const after = s.object({
  job: s.integer(1, Number.MAX_SAFE_INTEGER),
  any: s.optional(s.described(s.flag(), "wait for its end, however it ends")),
});

const optionalInteger = (min: number, max: number) => s.optional(s.integer(min, max));

/** Characters that every store compares alike. */
const idempotencyKey = s.mapped(s.text(200), (given, what) => {
  if (/^[\x21-\x7e]+$/.test(given)) return given;
  throw unexpectedValue(what, "printable ASCII characters without spaces", given);
});

/** What `client.submit` takes. */
export const submission = s.object({
  recipe,
  name: s.optional(s.text()),
  /** How many tasks; 1 if absent. With entries or an array it must be absent or their number. */
  count: optionalInteger(1, MAX_TASKS),
  /** One entry a task. */
  entries: s.optional(s.list(s.argument(), MAX_ENTRIES)),
  numbers: s.optional(
    s.described(
      numbers,
      "the numbers of the tasks, rising; 1, 2, 3 … if absent, and those of the array where there is one",
    ),
  ),
  pool: s.optional(s.text()),
  tags: s.optional(s.list(s.text(), 100)),
  /** What one task needs, beyond one slot. */
  needs: s.optional(s.record(s.number())),
  priority: optionalInteger(-1000, 1000),
  retries: optionalInteger(0, 1_000),
  crashLimit: optionalInteger(0, 1_000),
  maxFails: optionalInteger(0, MAX_TASKS),
  maxRunning: optionalInteger(1, MAX_TASKS),
  timeLimitMs: s.optional(timeLimitMs),
  outputCap,
  /** Whoever follows the job gets all output, also what is not kept. A task whose output is taken slowly is slowed down. */
  relay,
  after: s.optional(s.list(after, 1000)),
  held: s.optional(s.flag()),
  /** What makes it the same batch as another. */
  key: s.optional(s.text()),
  idempotencyKey: s.optional(
    s.described(
      idempotencyKey,
      "a submission repeated with the same one makes no second job: the answer names the first",
    ),
  ),
  resumes: s.optional(
    s.described(s.integer(1, Number.MAX_SAFE_INTEGER), "the job of the same batch whose remaining tasks this one runs"),
  ),
});

export type Submission = s.WrittenType<typeof submission>;

export function readSubmission(input: unknown): { spec: JobSpec; entries?: Entries } {
  return jobSpec(submission.read(input, ""));
}

/** The job that a submission asks for. */
export function jobSpec(given: s.ReadType<typeof submission>): { spec: JobSpec; entries?: Entries } {
  const { recipe, entries, key, idempotencyKey, numbers, resumes } = given;
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
    after: (given.after ?? []).map(({ job, any = false }): Dependency => ({ job: JobId(job), any })),
    held: given.held ?? false,
    ...(key === undefined ? {} : { key }),
    ...(idempotencyKey === undefined ? {} : { idempotencyKey }),
    ...(resumes === undefined ? {} : { resumes: JobId(resumes) }),
  };
  checkPlaceholders(recipe, entries);
  return entries === undefined ? { spec } : { spec, entries };
}

function taskCount({ count, entries, recipe, numbers }: s.ReadType<typeof submission>): number {
  const array = "array" in recipe ? recipe.array : undefined;
  if (array !== undefined && entries !== undefined) throw unexpectedValue("entries", "none beside an array", "some");
  if (entries?.length === 0) throw unexpectedValue("entries", "at least one entry", "none");
  if (array !== undefined && numbers !== undefined) throw unexpectedValue("numbers", "none beside an array", "some");
  const strides = array ?? numbers;
  const named = strides && integer(strideTotal(strides), array ? "recipe.array" : "numbers", 1, MAX_TASKS);
  const length = entries?.length ?? named;
  if (named !== undefined && named !== length) throw unexpectedValue("numbers", `${length}, one an entry`, named);
  if (length === undefined) return count ?? 1;
  if (count !== undefined && count !== length)
    throw unexpectedValue("count", `${length}, the number of entries`, count);
  return length;
}

function needsOf(given: Readonly<Record<string, number>>): Resources {
  const needs: Record<string, number> & { slots: number } = { slots: 1 };
  for (const [name, amount] of Object.entries(given)) {
    needs[readText(name, "needs", 64)] =
      name === "slots" ? integer(amount, "needs.slots", 1, 1_000_000) : positive(amount, `needs.${name}`);
  }
  return needs;
}

function limitsOf(given: s.ReadType<typeof submission>): Limits {
  const limits: { -readonly [Name in keyof Limits]: Limits[Name] } = { ...DEFAULT_LIMITS };
  for (const name of ["retries", "crashLimit", "maxFails", "maxRunning", "timeLimitMs", "outputCap"] as const) {
    const value = given[name];
    if (value !== undefined) limits[name] = value;
  }
  return given.relay === true ? { ...limits, relay: true } : limits;
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
