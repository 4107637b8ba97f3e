/** The options of `run` and `submit`, and the submission made from them. */
import { basename } from "node:path";
import { isatty } from "node:tty";
import { type Command, InvalidArgumentError } from "commander";
import { badInput, type LaboroError } from "../../../base/errors.js";
import type { Submission } from "../../../model/job-input.js";
import { checkPlaceholders, columnOf, placeholderForms } from "../../../model/placeholders.js";
import type { Bytes, Recipe } from "../../../model/recipe.js";
import { type Strides, strideTotal } from "../../../model/task-numbers.js";
import { collect, parseDuration, parseOutputCap, parseWholeNumber } from "../option-parsers.js";

import {
  columnCount,
  parseArray,
  parseDelimiter,
  parseWords,
  readEntries,
  readInput,
  readJsonItems,
  refuseOtherBytes,
  splitColumns,
} from "./entries.js";
import { addRetryAndKeepOptions, type TimeOptions, timesOf } from "./time-options.js";

/** A submission as the command line makes it: with bytes, not their JSON form. */
export type ParsedSubmission = Omit<Submission, "recipe" | "entries" | "numbers"> & {
  readonly recipe: Recipe;
  readonly entries?: readonly Bytes[];
  readonly numbers?: Strides;
};

export interface SubmissionOptions extends TimeOptions {
  readonly array?: string;
  readonly eachLine?: string;
  readonly null?: boolean;
  readonly delimiter?: string;
  readonly colsep?: RegExp;
  readonly fromJson?: string;
  readonly name?: string;
  readonly dir?: string;
  readonly env: readonly string[];
  readonly stdin?: string;
  readonly slots?: number;
  readonly resource: readonly string[];
  readonly priority?: number;
  readonly timeLimit?: number;
  readonly retries?: number;
  readonly crashLimit?: number;
  readonly maxFails?: number;
  readonly maxRunning?: number;
  readonly limit: readonly string[];
  readonly after: readonly string[];
  readonly pool?: string;
  readonly tag: readonly string[];
  readonly script?: string;
  readonly service?: string;
  readonly output?: string;
  readonly log?: string;
  readonly outputCap?: number;
}

export function addSubmissionOptions(command: Command): Command {
  command
    .option("--array <numbers>", "one task per number: 1-100, 1-100:2, 3,5,10-20")
    .option("--each-line <file>", "one task per line; - is standard input")
    .option("-0, --null", "in files and standard input, NUL separates entries, not a line break")
    .option(
      "-d, --delimiter <text>",
      "in files and standard input, this separates entries (default: a line break)",
      parseDelimiter,
    )
    .option("--colsep <regexp>", "this separates the columns of an entry, for {1} {2} (default: a tab)", parseSeparator)
    .option("--from-json <file>", "one task per item of a JSON array")
    .option("--name <name>", "the name of the job")
    .option("--dir <dir>", "the directory in which tasks run (default: this one)")
    .option(
      "--env <name=value>",
      "set a variable for tasks; NAME alone copies it from here; may be repeated",
      collect,
      [],
    )
    .option("--stdin <file>", "the standard input of each task; - copies that of this command")
    .option("--slots <n>", "slots that one task needs", parseWholeNumber)
    .option(
      "--resource <name=amount>",
      "another resource that one task needs, such as gpu=1; may be repeated",
      collect,
      [],
    )
    .option("--priority <n>", "-1000 to 1000; higher runs first", parseInteger)
    .option("--time-limit <duration>", "per task: 90s, 5m, 1h30m; a bare number is seconds", parseDuration)
    .option(
      "--retries <n>",
      "how often a failed task is tried again: N retries are at most N + 1 tries",
      parseWholeNumber,
    )
    .option(
      "--crash-limit <n>",
      "a task fails when this many workers were lost while they ran it; 0 for no limit",
      parseWholeNumber,
    )
    .option(
      "--max-fails <n>",
      "when more than N tasks have failed, waiting tasks are cancelled; running tasks may finish",
      parseWholeNumber,
    )
    .option("--max-running <n>", "at most N tasks of this job run at once", parseWholeNumber)
    .option("--limit <name>", "count against this limit, which laboro limit set makes; may be repeated", collect, [])
    .option(
      "--after <job>",
      "start after this job has succeeded, or with any:JOB has ended; may be repeated",
      collect,
      [],
    )
    .option("--pool <name>", "use only workers of this pool")
    .option("--tag <tag>", "use only workers with this tag; may be repeated", collectTag, [])
    .option("--script <file>", "send this script to the worker and run it; the words are its arguments")
    .option("--service <name>", "call a service; each entry is the body of a request")
    .option(
      "--output <path>",
      "write each task's output to this file at the worker; may have placeholders; makes the folder",
    )
    .option(
      "--log <path>",
      "also write each task's output to this file at the worker, {#} being its number; replaces no file",
    )
    .option(
      "--output-cap <size>",
      "how much output of a task is kept, its head and tail: 500M, or none for all (default: 16M)",
      parseOutputCap,
    );
  return addRetryAndKeepOptions(command);
}

function parseSeparator(text: string): RegExp {
  try {
    return new RegExp(text);
  } catch (cause) {
    throw new InvalidArgumentError(`expected a regular expression: ${cause instanceof Error ? cause.message : text}`);
  }
}

function parseInteger(text: string): number {
  const value = Number(text);
  if (/^-?\d+$/.test(text) && Number.isSafeInteger(value)) return value;
  throw badInput(`expected a whole number, got ${text}`);
}

/** In GNU parallel `--tag` has no value, so its users would give the command as the value. */
function collectTag(text: string, before: readonly string[]): readonly string[] {
  if (!/[\s{}()|&;<>$`'"*?]/.test(text)) return collect(text, before);
  throw new InvalidArgumentError("expected a worker's tag. To put the entry before each line of output: --tag-output");
}

/** Printed on standard error; the exit code is 0. */
export const NOTHING_TO_DO = "the list of entries is empty: nothing to do\n";

/** The command if none is given: each entry is a shell line. */
export const ENTRY_AS_LINE: readonly string[] = ["/bin/sh", "-c", "{}"];

/**
 * Makes the submission from words and options. Its list of entries may be empty: then there is nothing to do.
 * `readsStandardInput`: read the entries from there if a placeholder needs one and there is no list. `after` has job
 * numbers: the caller resolves `last`.
 */
export function makeSubmission(
  words: readonly string[],
  options: SubmissionOptions,
  readsStandardInput: boolean,
): ParsedSubmission {
  for (const value of Object.values(options)) if (typeof value === "string") refuseOtherBytes(value, "an option");
  const { command: given, entries: named, lists } = parseWords(words, delimiterOf(options));
  const sources = [named, options.eachLine, options.fromJson, options.array].filter((source) => source !== undefined);
  if (sources.length > 1) throw badInput("give entries in one way only: :::, --each-line, --from-json or --array");
  const asLines =
    given.length === 0 && [options.script, options.service, options.array].every((other) => other === undefined);
  const command = asLines ? ENTRY_AS_LINE : given;
  const array = options.array === undefined ? undefined : parseArray(options.array);
  const entries = entriesOf(named, lists, options) ?? missingEntries(command, options, asLines, readsStandardInput);
  const filled = addPlaceholders(command, {
    hasEntries: entries !== undefined || array !== undefined,
    lists,
    hasColumns: columnCount(entries) > 1,
  });
  const recipe = recipeOf(command, filled, options);
  const numbered =
    array !== undefined && (recipe.kind === "command" || recipe.kind === "script") ? { ...recipe, array } : recipe;
  if (array !== undefined && recipe.kind === "call") throw badInput("--array cannot be used with --service");
  checkPlaceholders(numbered, entries);
  const needs = needsOf(options);
  return {
    recipe: numbered,
    ...(entries === undefined ? {} : { entries }),
    ...(array === undefined ? {} : { count: strideTotal(array) }),
    ...(needs === undefined ? {} : { needs }),
    ...(asLines && options.name === undefined ? { name: "commands" } : jobName(command, options)),
    ...(options.pool === undefined ? {} : { pool: options.pool }),
    ...(options.tag.length === 0 ? {} : { tags: options.tag }),
    ...(options.priority === undefined ? {} : { priority: options.priority }),
    ...(options.retries === undefined ? {} : { retries: options.retries }),
    ...timesOf(options),
    ...(options.crashLimit === undefined ? {} : { crashLimit: options.crashLimit }),
    ...(options.maxFails === undefined ? {} : { maxFails: options.maxFails }),
    ...(options.maxRunning === undefined ? {} : { maxRunning: options.maxRunning }),
    ...(options.limit.length === 0 ? {} : { limits: options.limit }),
    ...(options.timeLimit === undefined ? {} : { timeLimitMs: options.timeLimit }),
    ...(options.outputCap === undefined ? {} : { outputCap: options.outputCap }),
    ...(options.after.length === 0 ? {} : { after: options.after.map(parseAfter) }),
  };
}

function delimiterOf({ null: byNul, delimiter }: SubmissionOptions): string {
  if (byNul === true && delimiter !== undefined) throw badInput("--null and --delimiter exclude each other");
  return byNul === true ? "\0" : (delimiter ?? "\n");
}

function entriesOf(
  named: readonly Bytes[] | undefined,
  lists: number,
  options: SubmissionOptions,
): readonly Bytes[] | undefined {
  const { eachLine, fromJson, colsep } = options;
  if (named !== undefined) return lists === 1 ? splitColumns(named, colsep) : named;
  if (eachLine !== undefined) return splitColumns(readEntries(eachLine, delimiterOf(options)), colsep);
  return fromJson === undefined ? undefined : readJsonItems(fromJson);
}

/** Standard input, if the command needs entries. Not if it is a terminal: then the user forgot the list. */
function missingEntries(
  command: readonly string[],
  options: SubmissionOptions,
  asLines: boolean,
  readsStandardInput: boolean,
): readonly Bytes[] | undefined {
  if (options.array !== undefined || options.service !== undefined) return undefined;
  const forms = [
    ...placeholderForms(command, options.script === undefined && isShellLine(command)),
    ...placeholderForms(options.output === undefined ? [] : [options.output], false),
  ];
  const [missing] = forms.filter(
    (form) => columnOf(form) === 1 || (columnOf(form) > 1 && options.colsep !== undefined),
  );
  if (missing === undefined) return undefined;
  if (!readsStandardInput || isatty(0)) throw noEntries(asLines ? undefined : missing);
  return splitColumns(readEntries("-", delimiterOf(options)), options.colsep);
}

const noEntries = (placeholder: string | undefined): LaboroError =>
  placeholder === undefined
    ? badInput("there is no command to run")
    : badInput(
        `${placeholder} stands for an entry, and there is no list of entries; ` +
          "give one with ::: a b c, :::: FILE, --each-line FILE, --array 1-9, or through a pipe",
      );

function recipeOf(command: readonly string[], filled: readonly string[], options: SubmissionOptions): Recipe {
  if (options.log !== undefined && (options.service !== undefined || options.script !== undefined))
    throw badInput("--log can only be used with a command");
  if (options.service !== undefined) {
    if (options.output !== undefined) throw badInput("--output cannot be used with --service: the reply is the output");
    if (command.length > 1) throw badInput("--service expects one body, or entries");
    const [body] = command;
    return { kind: "call", service: options.service, ...(body === undefined ? {} : { body: Buffer.from(body) }) };
  }
  const processOptions = {
    dir: options.dir ?? process.cwd(),
    ...(options.env.length === 0 ? {} : { env: environmentOf(options.env) }),
    ...(options.stdin === undefined ? {} : { stdin: readInput(options.stdin) }),
  };
  if (options.script !== undefined) {
    const type = /\.[A-Za-z0-9]+$/.exec(options.script)?.[0] ?? ".sh";
    if (options.output !== undefined)
      throw badInput("--output cannot be used with --script: let the script write the file");
    return {
      kind: "script",
      content: readInput(options.script),
      type,
      args: filled,
      ...processOptions,
    };
  }
  if (command.length === 0 || command[0] === "") throw badInput("there is no command to run");
  const log = options.log === undefined ? {} : { log: options.log };
  const [line = ""] = filled;
  if (!isShellLine(command)) {
    const argv = intoFile(filled, options.output);
    return { kind: "command", argv, placeholders: true, ...log, ...processOptions };
  }
  const argv = [options.output === undefined ? line : lineIntoFile(line, options.output)];
  return { kind: "command", argv, placeholders: true, shell: true, ...log, ...processOptions };
}

const MAKE_FOLDER = `case $laboro_to in ?*/*) mkdir -p -- "\${laboro_to%/*}" || exit;; esac`;

function lineIntoFile(line: string, file: string): string {
  return `laboro_to="${file.replace(/["$`\\]/g, "\\$&")}"; ${MAKE_FOLDER}; { ${line}\n} > "$laboro_to" 2>&1`;
}

/** Redirects the output of a program to a file by a shell. */
function intoFile(argv: readonly string[], file: string | undefined): readonly string[] {
  if (file === undefined) return argv;
  return ["/bin/sh", "-c", `laboro_to=$1; shift; ${MAKE_FOLDER}; exec "$@" > "$laboro_to" 2>&1`, "sh", file, ...argv];
}

/** The default name: the command without the redirection of --output, or the name of the script. */
function jobName(command: readonly string[], { name, output, script }: SubmissionOptions): { readonly name?: string } {
  if (name !== undefined) return { name };
  if (script !== undefined) return { name: basename(script) };
  const [first] = command;
  return output === undefined || first === undefined ? {} : { name: first.slice(0, 200) };
}

/**
 * One word with a blank is a shell line, such as run 'sort {} | uniq'. Several words are a program and its arguments.
 */
const isShellLine = ([line = "", ...more]: readonly string[]): boolean =>
  more.length === 0 && /[\s|&;<>()$`"'*?]/.test(line);

interface EntryShape {
  readonly hasEntries: boolean;
  /** With several lists, `{}` stands for one value of each. A line of a file is one value, even with tabs in it. */
  readonly lists: number;
  /** Entries have columns, from several lists or from a file: `{2}` stands for one. */
  readonly hasColumns: boolean;
}

/** A command without a placeholder gets the entry as its last argument. */
function addPlaceholders(command: readonly string[], { hasEntries, lists, hasColumns }: EntryShape): readonly string[] {
  const line = isShellLine(command);
  const named = placeholderForms(command, line).some((form) => hasColumns || columnOf(form) < 2);
  const whole = !hasEntries || named ? command : line ? [`${command[0]} {}`] : [...command, "{}"];
  if (line && whole !== command && placeholderForms(whole, true).length === 0)
    throw badInput("the line ends in a comment or a here-document: write {} where the entry belongs");
  if (lists < 2) return whole;
  const each = (part: string): string[] => Array.from({ length: lists }, (_, i) => `{${i + 1}${part}}`);
  return whole.flatMap((word) => {
    const [, alone] = /^\{(\.|\/\/|\/\.|\/|)\}$/.exec(word) ?? [];
    if (alone !== undefined && !line) return each(alone);
    // In a line, \{} is literal.
    return [
      word.replace(line ? /(?<!\\)\{(\.|\/\/|\/\.|\/|)\}/g : /\{(\.|\/\/|\/\.|\/|)\}/g, (_, part: string) =>
        each(part).join(" "),
      ),
    ];
  });
}

function environmentOf(given: readonly string[]): Record<string, string> {
  const env: Record<string, string> = {};
  for (const text of given) {
    const equals = text.indexOf("=");
    const name = equals < 0 ? text : text.slice(0, equals);
    const value = equals < 0 ? process.env[name] : text.slice(equals + 1);
    if (value === undefined) throw badInput(`--env ${name}: this variable is not set here; give ${name}=VALUE`);
    env[name] = value;
  }
  return env;
}

function needsOf(options: SubmissionOptions): Record<string, number> | undefined {
  const needs: Record<string, number> = options.slots === undefined ? {} : { slots: options.slots };
  for (const text of options.resource) {
    const [, name, amount] = /^([\w-]+)=(\d+(?:\.\d+)?)$/.exec(text) ?? [];
    if (name === undefined || amount === undefined) throw badInput(`--resource: expected NAME=AMOUNT, got ${text}`);
    needs[name] = Number(amount);
  }
  return Object.keys(needs).length === 0 ? undefined : needs;
}

export function parseAfter(text: string): { job: number; any?: boolean } {
  const [, any, job] = /^(any:)?(\d+)$/.exec(text) ?? [];
  if (job === undefined) throw badInput(`--after: expected a job number or any:NUMBER, got ${text}`);
  return any === undefined ? { job: Number(job) } : { job: Number(job), any: true };
}
