/** Schemas of recipes, numbers and limits of tasks, for clients and for laboro's own link. */
import { badInput } from "../base/errors.js";
import { fields, optional, unexpectedValue } from "./input.js";
import { NO_OUTPUT_CAP } from "./job.js";
import type { Recipe } from "./recipe.js";
import * as s from "./schema.js";
import { arrayFault, isRising, type Strides } from "./task-numbers.js";

export const MAX_ENTRIES = 10_000_000;
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

export const numbers = s.mapped(s.list(stride, MAX_ENTRIES), (given, what): Strides => {
  if (!isRising(given)) throw badInput(`${what}: expected each number to be larger than the one before it`);
  return given;
});

/** The numbers in a message of the link. */
export const readLinkNumbers = (value: unknown): Strides => numbers.read(value, "numbers");

/** Directory, environment and input of a process. */
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

export const recipe = s.mapped(s.unionByKind(recipeKinds), (given, what): Recipe => {
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

export const timeLimitMs = s.positive();
/** Null stands for no cap. */
export const outputCap: s.Optional<number, number | null> = {
  ...s.optional(s.count()),
  read: (value, what) => (value === null ? NO_OUTPUT_CAP : (optional(value, what, s.count().read) as number)),
  json: () => ({ type: ["integer", "null"], minimum: 0, description: "output kept per task, in bytes; null for all" }),
};
export const relay = s.optional(s.flag());

/** The limits that workers apply. */
const taskLimits = s.object({ timeLimitMs: s.optional(timeLimitMs), outputCap: s.count(), relay });

/** The limits in a message of the link. Members that a newer version has added are ignored. */
export const readLinkLimits = (value: unknown, what: string): s.ReadType<typeof taskLimits> =>
  taskLimits.read(s.knownMembers(taskLimits, fields(value, what)), what);
