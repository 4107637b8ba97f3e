/**
 * A job file: several tasks with names, and what waits for what. Each becomes a job of its own, so that it can have entries, retries and
 * needs of its own; `after` names others of the same file.
 *
 *   name = "night"                  # stands before the names of its jobs: night/prepare
 *   dir = "/data"                   # for all that do not say otherwise; so do env, pool, tags, priority, retries, timeLimit
 *
 *   [[task]]
 *   name = "prepare"
 *   command = ["./prepare.sh", "--all"]
 *
 *   [[task]]
 *   name = "simulate"
 *   command = "./simulate {} > {}.out"     # a line for the shell
 *   array = "1-100"                        # or entries = ["a", "b"], or eachLine = "params.txt"
 *   after = ["prepare"]                    # "any:prepare" waits for its end, however it went
 */
import { dirname, resolve } from "node:path";
import { parse } from "smol-toml";
import { badInput, LaboroError } from "../../../base/errors.js";
import { parseDuration } from "../../lib/duration.js";
import { parseOutputCap } from "../../lib/option-parsers.js";
import { readInput } from "../../lib/submission/entries.js";
import { makeSubmission, type ParsedSubmission, type SubmissionOptions } from "../../lib/submission/options.js";
import { suggestion } from "../../lib/suggest.js";

export interface JobFileTask {
  readonly name: string;
  readonly submission: ParsedSubmission;
  readonly after: readonly { readonly name: string; readonly any: boolean }[];
}

type Table = Readonly<Record<string, unknown>>;

const SHARED_KEYS = [
  "dir",
  "env",
  "pool",
  "tags",
  "priority",
  "retries",
  "crashLimit",
  "maxFails",
  "maxRunning",
  "timeLimit",
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
  "array",
  "entries",
  "eachLine",
  "fromJson",
  "after",
];

/** Options of the command line that hold for every task of the file, whatever the file says. */
export type JobFileOverrides = Pick<SubmissionOptions, "env" | "resource" | "tag"> & Partial<SubmissionOptions>;

const OVERRIDING: readonly (keyof SubmissionOptions)[] = [
  ...(["dir", "env", "pool", "tag", "priority", "retries", "crashLimit", "maxFails", "maxRunning"] as const),
  ...(["timeLimit", "slots", "resource", "outputCap"] as const),
];

/** Refuses options that contradict the file: it names what to run, and what waits for what. */
export function overridesOf({ env, resource, tag, after, ...options }: SubmissionOptions): JobFileOverrides {
  const given = { ...options, ...(after.length > 0 ? { after } : {}) };
  for (const name of Object.keys(given)) {
    if (OVERRIDING.includes(name as keyof SubmissionOptions)) continue;
    throw badInput(`--${name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)} does not go with --file`);
  }
  return { ...given, env, resource, tag };
}

/** In an order in which every task comes after those it waits for. */
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
  { env, resource, tag, ...overrides }: JobFileOverrides,
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
    after: [],
    ...readTexts(table, ["array", "pool", "service", "log"], where),
    ...paths(table, ["script", "stdin", "eachLine", "fromJson"], where, here),
    ...readNumbers(table, ["slots", "priority", "retries", "crashLimit", "maxFails", "maxRunning"], where),
    ...(table.timeLimit === undefined ? {} : { timeLimit: readDuration(table.timeLimit, `${where}: timeLimit`) }),
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
    after: after.map((other) =>
      other.startsWith("any:") ? { name: other.slice(4), any: true } : { name: other, any: false },
    ),
  };
}

const assignments = (table: unknown): string[] =>
  Object.entries(table === undefined ? {} : asTable(table)).map(([key, value]) => `${key}=${String(value)}`);

/** A number without a unit, quoted or not, is seconds. */
const readDuration = (value: unknown, what: string): number =>
  parseDuration(typeof value === "number" ? String(value) : requireText(value, what));

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
      throw badInput(`${file}: these wait for each other: ${[...path, task.name].join(", ")}`);
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

/** They begin at the folder of the file. */
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
    throw badInput(`${where}: ${name} is not known here${suggestion(name, known)}`);
  }
}
