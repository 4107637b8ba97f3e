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
import { Command, InvalidArgumentError, type Option } from "commander";
import { parse, TomlDate } from "smol-toml";
import { badInput, LaboroError } from "../../../base/errors.js";
import { suggestion } from "../suggest.js";
import { readInput } from "./entries.js";
import { addSubmissionOptions, makeSubmission, type ParsedSubmission, type SubmissionOptions } from "./options.js";
import { addParallelOptions } from "./parallel-options.js";
import { addDelayAndKeyOptions } from "./time-options.js";

interface JobFileTask {
  readonly name: string;
  readonly submission: ParsedSubmission;
  readonly after: readonly { readonly name: string; readonly kind: string | undefined }[];
}

type Table = Readonly<Record<string, unknown>>;
type Lists = Readonly<Record<"env" | "resource" | "tag" | "limit", readonly string[]>>;
type JobFileOverrides = Lists & Partial<SubmissionOptions>;

/** Keys of one task alone. Other options of `submit` can also be at the top of the file, and on the command line. */
const OWN_OPTIONS = [
  ...["script", "service", "stdin", "log", "output", "stdout", "stderr", "key", "keyFor", "ifExists"],
  ...["array", "eachLine", "fromJson", "null", "delimiter", "colsep", "header", "shuf"],
  ...["maxArgs", "maxReplaceArgs", "maxLines", "contextReplace"],
];
const PATHS = ["script", "stdin", "eachLine", "fromJson"];
/** Options that may be repeated, and the keys of their tables and lists. */
const LISTS: Readonly<Record<string, string>> = { env: "env", resource: "resources", tag: "tags", limit: "limits" };

type Options = ReadonlyMap<string, Option>;

/** By the names that commander gives to their values. */
function jobOptions(): Options {
  const { options } = addDelayAndKeyOptions(addParallelOptions(addSubmissionOptions(new Command())));
  return new Map(
    options.flatMap((one) => (one.long === undefined || one.long === "--name" ? [] : [[one.attributeName(), one]])),
  );
}

const isShared = (name: string): boolean => !OWN_OPTIONS.includes(name);

/** Refuses options that contradict the file: the file defines the commands and their order. */
export function overridesOf(options: SubmissionOptions): JobFileOverrides {
  const known = jobOptions();
  for (const [name, value] of Object.entries(options)) {
    if ((known.has(name) && isShared(name)) || (Array.isArray(value) && value.length === 0)) continue;
    throw badInput(`--${name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)} cannot be used with --file`);
  }
  return options;
}

/** Sorted so that every task comes after the tasks that it waits for. */
export function readJobFile(file: string, overrides: JobFileOverrides): readonly JobFileTask[] {
  const table = parseToml(file);
  const { task: given, name, ...shared } = table;
  const options = jobOptions();
  const keys = (names: readonly string[]): string[] => names.map((one) => LISTS[one] ?? one);
  rejectUnknownKeys(shared, keys([...options.keys()].filter(isShared)), file);
  if (!Array.isArray(given) || given.length === 0) throw badInput(`${file}: expected at least one [[task]]`);
  const prefix = name === undefined ? "" : `${requireText(name, `${file}: name`)}/`;
  const tasks = given.map((one, i) => {
    const where = `${file}: task ${i + 1}`;
    const table = { ...shared, ...asTable(one, where) };
    rejectUnknownKeys(table, [...keys([...options.keys()]), "name", "command", "args", "entries", "after"], where);
    return readTask(table, options, where, prefix, dirname(resolve(file)), overrides);
  });
  return sortByDependencies(tasks, file);
}

function parseToml(file: string): Table {
  try {
    return parse(readInput(file, "--file").toString());
  } catch (cause) {
    if (cause instanceof LaboroError) throw cause;
    throw badInput(`${file}: ${cause instanceof Error ? cause.message.trim() : String(cause)}`);
  }
}

function readTask(
  table: Table,
  known: Options,
  where: string,
  prefix: string,
  here: string,
  { env, resource, tag, limit, ...overrides }: JobFileOverrides,
): JobFileTask {
  const name = requireText(table.name, `${where}: name`);
  const words = commandWords(table, where);
  const texts = (key: string): readonly string[] =>
    table[key] === undefined ? [] : requireTexts(table[key], `${where}: ${key}`);
  const values = [...known].flatMap(([key, option]): [string, unknown][] => {
    if (LISTS[key] !== undefined || table[key] === undefined) return [];
    const value = readOption(option, table[key], `${where}: ${key}`);
    // Relative paths are relative to the directory of the file.
    return [[key, PATHS.includes(key) ? resolve(here, String(value)) : value]];
  });
  const options: SubmissionOptions = {
    ...Object.fromEntries(values),
    name: prefix + name,
    dir: resolve(here, table.dir === undefined ? "." : requireText(table.dir, `${where}: dir`)),
    env: [...assignments(table.env, `${where}: env`), ...env],
    resource: [...assignments(table.resources, `${where}: resources`), ...resource],
    tag: [...texts("tags"), ...tag],
    limit: [...texts("limits"), ...limit],
    ...overrides,
  };
  const entries = table.entries === undefined ? [] : [":::", ...texts("entries")];
  const submission = makeSubmission([...words, ...entries], options, false);
  if (submission.entries?.length === 0) throw badInput(`${where}: there are no entries`);
  return {
    name,
    submission,
    after: texts("after").map((other) => {
      const [, kind, name = other] = /^(any|each):(.*)$/s.exec(other) ?? [];
      return { name, kind };
    }),
  };
}

const assignments = (table: unknown, where: string): string[] =>
  Object.entries(table === undefined ? {} : asTable(table, where)).map(([key, value]) => `${key}=${String(value)}`);

/** As the option reads it. A number is text to it, a list is separated by commas; TOML has times of its own. */
function readOption(option: Option, value: unknown, where: string): unknown {
  if (!option.required) {
    if (typeof value === "boolean") return value;
    throw badInput(`${where}: expected true or false, got ${JSON.stringify(value)}`);
  }
  const text =
    value instanceof TomlDate
      ? value.toISOString()
      : Array.isArray(value)
        ? requireTexts(value, where).join(",")
        : typeof value === "number"
          ? String(value)
          : requireText(value, where);
  try {
    return option.parseArg?.(text, undefined) ?? text;
  } catch (cause) {
    if (cause instanceof InvalidArgumentError) throw badInput(`${where}: ${cause.message}, got ${text}`);
    throw cause;
  }
}

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

function asTable(value: unknown, where: string): Table {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Table;
  throw badInput(`${where}: expected a table, got ${JSON.stringify(value)}`);
}

function requireText(value: unknown, where: string): string {
  if (typeof value === "string" && value !== "") return value;
  throw badInput(`${where}: expected text, got ${JSON.stringify(value) ?? "nothing"}`);
}

function requireTexts(value: unknown, where: string): readonly string[] {
  if (!Array.isArray(value)) throw badInput(`${where}: expected a list, got ${JSON.stringify(value)}`);
  return value.map((item: unknown) => (typeof item === "number" ? String(item) : requireText(item, where)));
}

function rejectUnknownKeys(table: Table, known: readonly string[], where: string): void {
  for (const name of Object.keys(table)) {
    if (known.includes(name)) continue;
    throw badInput(`${where}: ${name} is not a known setting here${suggestion(name, known)}`);
  }
}
