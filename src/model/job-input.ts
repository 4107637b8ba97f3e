/** A submission, as a client writes it, read into a job. Everything has a default but the recipe. */

import { JobId } from "./ids.js";
import {
  bad,
  bytes,
  type Fields,
  fields,
  flag,
  integer,
  list,
  onlyKnown,
  optional,
  positive,
  present,
  text,
  word,
} from "./input.js";
import { type After, DEFAULT_LIMITS, type Entries, type JobRequest, type Limits } from "./job.js";
import { type Amounts, type Bytes, DEFAULT_POOL, type Recipe } from "./recipe.js";

/** More tasks than this in one job are refused. */
export const MAX_TASKS = 1_000_000_000;
const MAX_ENTRIES = 10_000_000;
const MAX_ARGUMENTS = 100_000;

/** What `client.submit` takes. */
export interface Submission {
  readonly name?: string;
  readonly recipe: Recipe;
  /** How many tasks; 1 if absent. With entries it must be absent or their number. */
  readonly count?: number;
  /** One entry a task. */
  readonly entries?: Entries;
  readonly pool?: string;
  readonly tags?: readonly string[];
  /** What one task needs, beyond one slot. */
  readonly needs?: Readonly<Record<string, number>>;
  readonly priority?: number;
  readonly retries?: number;
  readonly crashLimit?: number;
  readonly maxFails?: number;
  readonly maxRunning?: number;
  readonly timeLimitMs?: number;
  readonly outputCap?: number;
  readonly after?: readonly { readonly job: number; readonly any?: boolean }[];
  readonly held?: boolean;
}

const KNOWN: readonly string[] = [
  "name",
  "recipe",
  "count",
  "entries",
  "pool",
  "tags",
  "needs",
  "priority",
  "retries",
  "crashLimit",
  "maxFails",
  "maxRunning",
  "timeLimitMs",
  "outputCap",
  "after",
  "held",
] satisfies readonly (keyof Submission)[];

export function readSubmission(input: unknown): { request: JobRequest; entries?: Entries } {
  const given = fields(input, "submission");
  onlyKnown(given, KNOWN, "submission");
  const recipe = readRecipe(given.recipe);
  const entries = optional(given.entries, "entries", (value, what) => list(value, what, MAX_ENTRIES, word));
  const count = readCount(given.count, entries);
  const request: JobRequest = {
    name: optional(given.name, "name", text) ?? defaultName(recipe),
    recipe,
    requirement: {
      pool: optional(given.pool, "pool", text) ?? DEFAULT_POOL,
      tags: optional(given.tags, "tags", (value, what) => list(value, what, 100, (tag, at) => text(tag, at))) ?? [],
      ...(recipe.kind === "call" ? { service: recipe.service } : {}),
      needs: readNeeds(given.needs),
    },
    count,
    priority: optional(given.priority, "priority", (value, what) => integer(value, what, -1000, 1000)) ?? 0,
    limits: readLimits(given),
    after: optional(given.after, "after", (value, what) => list(value, what, 1000, readAfter)) ?? [],
    held: optional(given.held, "held", flag) ?? false,
  };
  return entries === undefined ? { request } : { request, entries };
}

function readCount(value: unknown, entries: Entries | undefined): number {
  const count = optional(value, "count", (given, what) => integer(given, what, 1, MAX_TASKS));
  if (entries === undefined) return count ?? 1;
  if (entries.length === 0) throw bad("entries", "at least one entry", "none");
  if (count !== undefined && count !== entries.length)
    throw bad("count", `${entries.length}, the number of entries`, count);
  return entries.length;
}

function readNeeds(value: unknown): Amounts {
  const given = optional(value, "needs", fields) ?? {};
  const needs: Record<string, number> & { slots: number } = { slots: 1 };
  for (const [name, amount] of Object.entries(given)) {
    needs[text(name, "needs", 64)] =
      name === "slots" ? integer(amount, "needs.slots", 1, 1_000_000) : positive(amount, `needs.${name}`);
  }
  return needs;
}

function readLimits(given: Fields): Limits {
  const whole = (name: keyof Limits, least: number, most: number) =>
    optional(given[name], name, (value, what) => integer(value, what, least, most));
  return {
    ...DEFAULT_LIMITS,
    ...present({
      retries: whole("retries", 0, 1_000),
      crashLimit: whole("crashLimit", 0, 1_000),
      maxFails: whole("maxFails", 0, MAX_TASKS),
      maxRunning: whole("maxRunning", 1, MAX_TASKS),
      timeLimitMs: optional(given.timeLimitMs, "timeLimitMs", positive),
      outputCap: whole("outputCap", 0, 2 ** 40),
    }),
  };
}

function readAfter(value: unknown, what: string): After {
  const given = fields(value, what);
  onlyKnown(given, ["job", "any"], what);
  return {
    job: JobId(integer(given.job, `${what}.job`, 1, Number.MAX_SAFE_INTEGER)),
    any: optional(given.any, `${what}.any`, flag) ?? false,
  };
}

function readRecipe(value: unknown): Recipe {
  const given = fields(value, "recipe");
  switch (given.kind) {
    case "command": {
      onlyKnown(given, ["kind", "argv", "placeholders", "shell", "dir", "env", "stdin"], "recipe");
      const argv = list(given.argv, "recipe.argv", MAX_ARGUMENTS, word);
      if (argv.length === 0 || argv[0]?.length === 0) throw bad("recipe.argv", "a command", "nothing");
      const shell = optional(given.shell, "recipe.shell", flag);
      if (shell === true && argv.length !== 1)
        throw bad("recipe.argv", "one line for the shell", `${argv.length} words`);
      const placeholders = optional(given.placeholders, "recipe.placeholders", flag);
      return { kind: "command", argv, ...present({ placeholders, shell }), ...readSurroundings(given) };
    }
    case "script": {
      onlyKnown(given, ["kind", "content", "type", "args", "dir", "env", "stdin"], "recipe");
      const args = optional(given.args, "recipe.args", (args, what) => list(args, what, MAX_ARGUMENTS, word));
      const content = bytes(given.content, "recipe.content");
      const type = text(given.type, "recipe.type", 16);
      return { kind: "script", content, type, ...present({ args }), ...readSurroundings(given) };
    }
    case "call": {
      onlyKnown(given, ["kind", "service", "body"], "recipe");
      const body = optional(given.body, "recipe.body", bytes);
      return { kind: "call", service: text(given.service, "recipe.service"), ...present({ body }) };
    }
    case "noop":
      onlyKnown(given, ["kind"], "recipe");
      return { kind: "noop" };
    default:
      throw bad("recipe.kind", "command, script, call or noop", given.kind);
  }
}

/** Where and with what a process runs. */
function readSurroundings(given: Fields): { dir?: Bytes; env?: Record<string, Bytes>; stdin?: Uint8Array } {
  const dir = optional(given.dir, "recipe.dir", word);
  const env = optional(given.env, "recipe.env", (value, what) => {
    const names: Record<string, Bytes> = {};
    for (const [name, content] of Object.entries(fields(value, what))) {
      if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) throw bad(what, "names of letters, digits and _", name);
      names[name] = word(content, `${what}.${name}`);
    }
    return names;
  });
  return present({ dir, env, stdin: optional(given.stdin, "recipe.stdin", bytes) });
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
    case "noop":
      return "noop";
  }
}
