/**
 * A job file: several named tasks and their order. Each becomes a job, so that it can have its own entries, retries and
 * requirements. `after` names other tasks of the file.
 *
 *   name = "night"                  # prefix of the names of its jobs: night/prepare
 *   dir = "/data"                   # default of all tasks; so are env, pool, tags, priority, retries, timeLimit
 *
 *   [[task]]
 *   name = "prepare"
 *   command = ["./prepare.sh", "--all"]
 *
 *   [[task]]
 *   name = "simulate"
 *   command = "./simulate {} > {}.out"     # a shell line
 *   array = "1-100"                        # or entries = ["a", "b"], or eachLine = "params.txt"
 *   after = ["prepare"]                    # "any:prepare" also starts after a failure
 */
import { dirname, resolve } from "node:path";
import { parse, TomlDate } from "smol-toml";
import { badInput, LaboroError } from "../../../base/errors.js";
import type { IfExists } from "../../../model/job.js";
import { parseDuration, parseKeep, parseOutputCap, parseTime } from "../option-parsers.js";
import { suggestion } from "../suggest.js";
import { readInput } from "./entries.js";
import { makeSubmission, type ParsedSubmission, type SubmissionOptions } from "./options.js";
import { parseHalt } from "./parallel-options.js";
import { exitCode } from "./time-options.js";

interface JobFileTask {
  readonly name: string;
  readonly submission: ParsedSubmission;
  readonly after: readonly { readonly name: string; readonly kind: string | undefined }[];
}

type Table = Readonly<Record<string, unknown>>;

const SHARED_KEYS = [
  "dir",
  "env",
  "pool",
  "tags",
  "priority",
  "retries",
  ...["retryWait", "retryFactor", "retryMax", "retryJitter", "retryOn", "neverOn"],
  ...["in", "at", "keep", "keepFailed"],
  "crashLimit",
  "maxFails",
  "halt",
  "maxRunning",
  "limits",
  "timeLimit",
  "timeRequest",
  "outputCap",
  "slots",
  "resources",
];
const TASK_KEYS = [
  ...SHARED_KEYS,
  "name",
  "command",
  "script",
  "args",
  "service",
  "stdin",
  "log",
  ...["output", "stdout", "stderr"],
  "array",
  "entries",
  "eachLine",
  "fromJson",
  "after",
  ...["key", "keyFor", "ifExists"],
];

/** Options of the command line. They override the file for every task. */
type JobFileOverrides = Pick<SubmissionOptions, "env" | "resource" | "tag" | "limit"> & Partial<SubmissionOptions>;

const OVERRIDING: readonly (keyof SubmissionOptions)[] = [
  ...(["dir", "env", "pool", "tag", "priority", "retries", "crashLimit", "maxFails", "maxRunning"] as const),
  ...([
    "halt",
    "timeLimit",
    "timeRequest",
    "slots",
    "resource",
    "outputCap",
    "in",
    "at",
    "keep",
    "keepFailed",
  ] as const),
  ...(["retryWait", "retryFactor", "retryMax", "retryJitter", "retryOn", "neverOn"] as const),
];

/** Refuses options that contradict the file: the file defines the commands and their order. */
export function overridesOf({ env, resource, tag, limit, ...options }: SubmissionOptions): JobFileOverrides {
  for (const [name, value] of Object.entries(options)) {
    if (OVERRIDING.includes(name as keyof SubmissionOptions) || (Array.isArray(value) && value.length === 0)) continue;
    throw badInput(`--${name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)} cannot be used with --file`);
  }
  return { ...options, env, resource, tag, limit };
}

/** Sorted so that every task comes after the tasks that it waits for. */
export function readJobFile(file: string, overrides: JobFileOverrides): readonly JobFileTask[] {
  const table = parseToml(file);
  const { task: given, name, ...shared } = table;
  rejectUnknownKeys(shared, SHARED_KEYS, file);
  if (!Array.isArray(given) || given.length === 0) throw badInput(`${file}: expected at least one [[task]]`);
  const prefix = name === undefined ? "" : `${requireText(name, `${file}: name`)}/`;
  const tasks = given.map((one, i) =>
    readTask({ ...shared, ...asTable(one) }, `${file}: task ${i + 1}`, prefix, dirname(resolve(file)), overrides),
  );
  return sortByDependencies(tasks, file);
}

function parseToml(file: string): Table {
  try {
    return parse(readInput(file).toString());
  } catch (cause) {
    if (cause instanceof LaboroError) throw cause;
    throw badInput(`${file}: ${cause instanceof Error ? cause.message.trim() : String(cause)}`);
  }
}

function readTask(
  table: Table,
  where: string,
  prefix: string,
  here: string,
  { env, resource, tag, limit, ...overrides }: JobFileOverrides,
): JobFileTask {
  rejectUnknownKeys(table, TASK_KEYS, where);
  const name = requireText(table.name, `${where}: name`);
  const words = commandWords(table, where);
  const options: SubmissionOptions = {
    name: prefix + name,
    dir: resolve(here, table.dir === undefined ? "." : requireText(table.dir, `${where}: dir`)),
    env: [...assignments(table.env), ...env],
    resource: [...assignments(table.resources), ...resource],
    tag: [...(table.tags === undefined ? [] : requireTexts(table.tags, `${where}: tags`)), ...tag],
    limit: [...(table.limits === undefined ? [] : requireTexts(table.limits, `${where}: limits`)), ...limit],
    ...readTexts(table, ["array", "pool", "service", "log", "output", "stdout", "stderr"], where),
    ...paths(table, ["script", "stdin", "eachLine", "fromJson"], where, here),
    ...readNumbers(table, ["slots", "priority", "retries", "crashLimit", "maxFails", "maxRunning"], where),
    ...readNumbers(table, ["retryFactor", "retryJitter"], where),
    ...readDurations(table, ["timeLimit", "timeRequest", "retryWait", "retryMax", "in", "keyFor"], where),
    ...readDurations(table, ["keep", "keepFailed"], where, parseKeep),
    ...readTexts(table, ["key"], where),
    ...readEnds(table, ["retryOn", "neverOn"], where),
    ...(table.halt === undefined ? {} : { halt: parseHalt(requireText(table.halt, `${where}: halt`)) }),
    ...(table.at === undefined ? {} : { at: readTime(table.at, `${where}: at`) }),
    ...(table.ifExists === undefined ? {} : { ifExists: table.ifExists as IfExists }),
    ...(table.outputCap === undefined ? {} : { outputCap: readOutputCap(table.outputCap, `${where}: outputCap`) }),
    ...overrides,
  };
  const entries = table.entries === undefined ? [] : [":::", ...requireTexts(table.entries, `${where}: entries`)];
  const submission = makeSubmission([...words, ...entries], options, false);
  if (submission.entries?.length === 0) throw badInput(`${where}: there are no entries`);
  const after = table.after === undefined ? [] : requireTexts(table.after, `${where}: after`);
  return {
    name,
    submission,
    after: after.map((other) => {
      const [, kind, name = other] = /^(any|each):(.*)$/s.exec(other) ?? [];
      return { name, kind };
    }),
  };
}

const assignments = (table: unknown): string[] =>
  Object.entries(table === undefined ? {} : asTable(table)).map(([key, value]) => `${key}=${String(value)}`);

/** TOML has times of its own; one without a zone is local time. */
function readTime(value: unknown, what: string): number {
  return parseTime(value instanceof TomlDate ? value.toISOString() : requireText(value, what));
}

function readEnds<Name extends string>(
  table: Table,
  names: readonly Name[],
  where: string,
): { [K in Name]?: readonly (number | string)[] } {
  const found: { [K in Name]?: readonly (number | string)[] } = {};
  for (const name of names) {
    const value = table[name];
    if (value === undefined) continue;
    if (!Array.isArray(value)) throw badInput(`${where}: ${name}: expected a list, got ${JSON.stringify(value)}`);
    for (const end of value) if (typeof end === "number") exitCode(end, String(end));
    found[name] = value;
  }
  return found;
}

function readDurations<Name extends string>(
  table: Table,
  names: readonly Name[],
  where: string,
  parse = parseDuration,
): { [K in Name]?: number } {
  const found: { [K in Name]?: number } = {};
  for (const name of names)
    if (table[name] !== undefined) found[name] = readDuration(table[name], `${where}: ${name}`, parse);
  return found;
}

/** A number without a unit, quoted or not, is seconds. */
const readDuration = (value: unknown, what: string, parse: (text: string) => number): number =>
  parse(typeof value === "number" ? String(value) : requireText(value, what));

/** Bytes, or a size as `--output-cap` takes it. */
const readOutputCap = (value: unknown, where: string): number =>
  parseOutputCap(typeof value === "number" ? String(value) : requireText(value, where));

function commandWords(table: Table, where: string): readonly string[] {
  const kinds = ["command", "script", "service"].filter((kind) => table[kind] !== undefined);
  if (kinds.length !== 1)
    throw badInput(`${where}: expected one of command, script and service, got ${kinds.join(" and ") || "none"}`);
  if (table.command !== undefined)
    return typeof table.command === "string" ? [table.command] : requireTexts(table.command, `${where}: command`);
  return table.args === undefined ? [] : requireTexts(table.args, `${where}: args`);
}

function sortByDependencies(tasks: readonly JobFileTask[], file: string): readonly JobFileTask[] {
  const byName = new Map(tasks.map((task) => [task.name, task]));
  if (byName.size < tasks.length) throw badInput(`${file}: two tasks have the same name`);
  const otherNames = (than: JobFileTask): readonly string[] => [...byName.keys()].filter((name) => name !== than.name);
  const placed = new Set<string>();
  const order: JobFileTask[] = [];
  const place = (task: JobFileTask, path: readonly string[]): void => {
    if (placed.has(task.name)) return;
    if (path.includes(task.name))
      throw badInput(`${file}: these tasks wait for each other: ${[...path, task.name].join(", ")}`);
    for (const { name } of task.after) {
      const other = byName.get(name);
      if (other === undefined) {
        throw badInput(
          `${file}: ${task.name} waits for ${name}, which is not there${suggestion(name, otherNames(task))}`,
        );
      }
      place(other, [...path, task.name]);
    }
    placed.add(task.name);
    order.push(task);
  };
  for (const task of tasks) place(task, []);
  return order;
}

function asTable(value: unknown): Table {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Table;
  throw badInput(`expected a table, got ${JSON.stringify(value)}`);
}

function requireText(value: unknown, where: string): string {
  if (typeof value === "string" && value !== "") return value;
  throw badInput(`${where}: expected text, got ${JSON.stringify(value) ?? "nothing"}`);
}

function requireTexts(value: unknown, where: string): readonly string[] {
  if (!Array.isArray(value)) throw badInput(`${where}: expected a list, got ${JSON.stringify(value)}`);
  return value.map((item: unknown) => (typeof item === "number" ? String(item) : requireText(item, where)));
}

function readTexts<Name extends string>(table: Table, names: readonly Name[], where: string): { [K in Name]?: string } {
  const found: { [K in Name]?: string } = {};
  for (const name of names) if (table[name] !== undefined) found[name] = requireText(table[name], `${where}: ${name}`);
  return found;
}

/** Relative paths are relative to the directory of the file. */
function paths<Name extends string>(
  table: Table,
  names: readonly Name[],
  where: string,
  here: string,
): { [K in Name]?: string } {
  const found = readTexts(table, names, where);
  for (const name of names) if (found[name] !== undefined) found[name] = resolve(here, found[name]);
  return found;
}

function readNumbers<Name extends string>(
  table: Table,
  names: readonly Name[],
  where: string,
): { [K in Name]?: number } {
  const found: { [K in Name]?: number } = {};
  for (const name of names) {
    const value = table[name];
    if (value === undefined) continue;
    if (typeof value !== "number") throw badInput(`${where}: ${name}: expected a number, got ${JSON.stringify(value)}`);
    found[name] = value;
  }
  return found;
}

function rejectUnknownKeys(table: Table, known: readonly string[], where: string): void {
  for (const name of Object.keys(table)) {
    if (known.includes(name)) continue;
    throw badInput(`${where}: ${name} is not a known setting here${suggestion(name, known)}`);
  }
}
