/** The options of `run` and `submit`, and the submission made from them. */
import { isatty } from "node:tty";
import { type Command, InvalidArgumentError } from "commander";
import { badInput, type LaboroError } from "../../../base/errors.js";
import type { Submission } from "../../../model/job-input.js";
import { checkPlaceholders, columnOf, placeholderForms } from "../../../model/placeholders.js";
import type { Bytes, OutputFiles, Recipe } from "../../../model/recipe.js";
import { type Strides, strideTotal } from "../../../model/task-numbers.js";
import {
  collect,
  collectTexts,
  parseOutputCap,
  parseResources,
  parseTimeLimit,
  textLike,
  wholeNumber,
} from "../option-parsers.js";

import {
  chooseEntries,
  columnCount,
  delimiterOf,
  type EntryOptions,
  entriesOf,
  noticeCarriageReturns,
  ONE_WAY,
  parseArray,
  parseDelimiter,
  parseWords,
  readEntries,
  refuseOtherBytes,
  splitColumns,
} from "./entries.js";
import { addOutputFileOptions, filesOf } from "./output-files.js";
import {
  ENTRY_AS_LINE,
  EVAL_ENTRY,
  groupEntries,
  haltOf,
  nameColumns,
  optionForLists,
  type ParallelOptions,
  takeHeader,
} from "./parallel-options.js";
import { jobName, noCommand, recipeOf } from "./recipe-options.js";
import { addRetryAndKeepOptions, type TimeOptions, timesOf } from "./time-options.js";

/** A submission as the command line makes it: with bytes, not their JSON form. */
export type ParsedSubmission = Omit<Submission, "recipe" | "entries" | "numbers"> & {
  readonly recipe: Recipe;
  readonly entries?: readonly Bytes[];
  readonly numbers?: Strides;
};

export interface SubmissionOptions extends TimeOptions, ParallelOptions, EntryOptions, OutputFiles {
  readonly name?: string;
  readonly dir?: string;
  readonly env: readonly string[];
  readonly stdin?: string;
  readonly slots?: number;
  readonly resource: readonly string[];
  readonly priority?: number;
  readonly timeLimit?: number;
  readonly timeRequest?: number;
  readonly retries?: number;
  readonly crashLimit?: number;
  readonly maxFails?: number;
  readonly maxRunning?: number;
  readonly limit: readonly string[];
  readonly pool?: string;
  readonly tag: readonly string[];
  readonly script?: string;
  readonly service?: string;
  readonly open?: boolean;
  readonly log?: string;
  readonly outputCap?: number;
}

export function addSubmissionOptions(command: Command): Command {
  command
    .option(
      "--array <numbers>",
      "one task per number: 1-100, 1-100:2, 3,5,10-20; beside a list, only these of its tasks",
    )
    .option("--each-line <file>", "one task per line; - is standard input")
    .option("-0, --null", "in files and standard input, NUL separates entries, not a line break")
    .option(
      "-d, --delimiter <text>",
      "in files and standard input, this separates entries (default: a line break)",
      parseDelimiter,
    )
    .option(
      "--colsep <regexp>",
      "this separates the columns of an entry, for {1} {2}; blanks around them are removed (default: a tab)",
      parseSeparator,
    )
    .option("--from-json <file>", "one task per item of a JSON array")
    .option("--name <name>", "the name of the job", textLike("train"))
    .option("--dir <dir>", "the directory in which tasks run (default: this one)", textLike("/data/run1"))
    .option(
      "--env <name=value>",
      "set a variable for tasks; NAME alone copies it from here; may be repeated",
      collect,
      [],
    )
    .option("--stdin <file>", "the standard input of each task; - copies that of this command")
    .option("--slots <n>", "slots that one task needs", wholeNumber(2, 1, 1_000_000))
    .option(
      "--resource <name=amount>",
      "another resource that one task needs: gpu=1, gpu=0.5, gpu=all; may be repeated",
      collect,
      [],
    )
    .option("--priority <n>", "-1000 to 1000; higher runs first", wholeNumber(5, -1000, 1000))
    .option("--time-limit <duration>", "per task: 90s, 5m, 1h30m; a bare number is seconds", parseTimeLimit)
    .option(
      "--time-request <duration>",
      "give tasks only to workers that will not end sooner than this: 1h (default: as --time-limit)",
      parseTimeLimit,
    )
    .option(
      "--retries <n>",
      "tries after the first, of a task that failed: exit code, signal, time limit or error (for a lost worker see --crash-limit)",
      wholeNumber(5, 0, 1_000),
    )
    .option(
      "--crash-limit <n>",
      "a task fails when this many workers were lost while they ran it; 0 for no limit",
      wholeNumber(5, 0, 1_000),
    )
    .option(
      "--max-fails <n>",
      "when more than N tasks have failed, waiting tasks are cancelled; running tasks may finish",
      wholeNumber(10),
    )
    .option("--max-running <n>", "at most N tasks of this job run at once", wholeNumber(10, 1))
    .option(
      "--limit <name>",
      "count against this limit, which laboro limit set makes; may be repeated",
      collectLimit,
      [],
    )
    .option("--pool <name>", "use only workers of this pool", textLike("gpu"))
    .option("--tag <tag>", "use only workers with this tag; may be repeated", collectTag, [])
    .option("--script <file>", "send this script to the worker and run it; the words are its arguments")
    .option("--service <name>", "call a service; each entry is the body of a request", textLike("resize"))
    .option(
      "--log <path>",
      "also write each task's output to this file at the worker, {#} being its number; replaces no file",
      textLike("log/{#}.txt"),
    )
    .option(
      "--output-cap <size>",
      "how much output of a task is kept, its head and tail: 500M, or none for all (default: 16M)",
      parseOutputCap,
    );
  return addRetryAndKeepOptions(addOutputFileOptions(command));
}

const collectLimit = collectTexts(
  "api",
  "at most 100 letters, digits and . _ : @ -, a letter or digit first",
  /^[A-Za-z0-9][A-Za-z0-9._:@-]{0,99}$/,
);

function parseSeparator(text: string): RegExp {
  try {
    return new RegExp(text);
  } catch (cause) {
    throw new InvalidArgumentError(
      `expected a regular expression, such as , or [,;]: ${cause instanceof Error ? cause.message : text}`,
    );
  }
}

/** In GNU parallel `--tag` has no value, so its users would give the command as the value. */
function collectTag(text: string, before: readonly string[]): readonly string[] {
  if (/^[^\s{}()|&;<>$`'"*?]+$/.test(text)) return collect(text, before);
  throw new InvalidArgumentError(
    "expected a worker's tag, such as gpu. To put the entry before each line of output: --tag-output",
  );
}

/** Printed on standard error; the exit code is 0. */
export const NOTHING_TO_DO = "the list of entries is empty: nothing to do\n";

/**
 * Makes the submission from words and options. Its list of entries may be empty.
 * `readsStandardInput`: read the entries from there if a placeholder needs one and there is no list.
 */
export function makeSubmission(
  words: readonly string[],
  options: SubmissionOptions,
  readsStandardInput: boolean,
): ParsedSubmission {
  for (const value of Object.values(options)) if (typeof value === "string") refuseOtherBytes(value, "an option");
  const { command: typed, entries: named, lists, names } = parseWords(words, delimiterOf(options), options.header);
  refusePerl(typed);
  const sources = [named, options.eachLine, options.fromJson, options.array].filter((source) => source !== undefined);
  // An array beside a list names tasks of the list.
  const chooses = sources.length === 2 && options.array !== undefined;
  if (sources.length > 1 && !chooses) throw badInput(ONE_WAY);
  const grouped = optionForLists(options);
  if (options.open === true && grouped !== undefined) throw badInput(`${grouped} cannot be used with --open`);
  const asLines =
    typed.length === 0 &&
    [options.script, options.service, chooses ? undefined : options.array].every((other) => other === undefined);
  // As in GNU parallel, several words are a line for the named shell.
  const words1 = options.shell === undefined || typed.length === 0 ? typed : [typed.join(" ")];
  const given = !asLines ? words1 : options.shell === undefined ? ENTRY_AS_LINE : [EVAL_ENTRY];
  const isLine = options.script === undefined && isShellLine(given, options);
  const read =
    entriesOf(named, lists, options) ??
    // The tasks of an open job can all come later.
    (options.open === true && options.array === undefined
      ? []
      : missingEntries(given, isLine, options, asLines, readsStandardInput));
  const { rows, header } = takeHeader(read, names, options);
  noticeCarriageReturns(rows);
  if (header !== undefined) options.onHeader?.(header);
  const command = nameColumns(given, header, isLine);
  const { entries: all, several, counted } = groupEntries(rows, lists, command, isLine, options);
  const chosen = chooses ? chooseEntries(all ?? [], parseArray(options.array ?? "")) : undefined;
  const entries = chosen?.entries ?? all;
  const array = options.array === undefined || chooses ? counted : parseArray(options.array);
  const filled = addPlaceholders(command, isLine, {
    hasEntries: !asLines && (entries !== undefined || options.array !== undefined),
    hasColumns: several !== undefined || header !== undefined || columnCount(entries) > 1,
  });
  const recipe = recipeOf(command, filled, isLine, several, {
    ...options,
    ...Object.fromEntries(filesOf(options).map(([name, path]) => [name, nameColumns([path], header, false)[0] ?? ""])),
  });
  const numbered =
    array !== undefined && (recipe.kind === "command" || recipe.kind === "script") ? { ...recipe, array } : recipe;
  if (array !== undefined && recipe.kind === "call") throw badInput("--array cannot be used with --service");
  checkPlaceholders(numbered, entries);
  const needs = needsOf(options);
  const count = entries?.length ?? (array === undefined ? 1 : strideTotal(array));
  return {
    recipe: numbered,
    ...(entries === undefined ? {} : { entries }),
    ...(chosen === undefined ? {} : { numbers: chosen.numbers }),
    ...(array === undefined ? {} : { count }),
    ...(needs === undefined ? {} : { needs }),
    ...(asLines && options.name === undefined ? { name: "commands" } : jobName(command, isLine, options)),
    ...(options.pool === undefined ? {} : { pool: options.pool }),
    ...(options.tag.length === 0 ? {} : { tags: options.tag }),
    ...(options.priority === undefined ? {} : { priority: options.priority }),
    ...(options.retries === undefined ? {} : { retries: options.retries }),
    ...timesOf(options),
    ...(options.crashLimit === undefined ? {} : { crashLimit: options.crashLimit }),
    ...haltOf(options, count),
    ...(options.maxRunning === undefined ? {} : { maxRunning: options.maxRunning }),
    ...(options.limit.length === 0 ? {} : { limits: options.limit }),
    ...options.timeout,
    ...(options.timeLimit === undefined ? {} : { timeLimitMs: options.timeLimit }),
    ...(options.timeRequest === undefined ? {} : { timeRequestMs: options.timeRequest }),
    ...(options.outputCap === undefined ? {} : { outputCap: options.outputCap }),
  };
}

/** Without perl it would stay as it is, and `mv {} '{= s/a/b/ =}'` would move all files to one name. */
function refusePerl(command: readonly string[]): void {
  const [perl] = /\{-?\d*=.*?=\}/s.exec(command.join(" ")) ?? [];
  if (perl === undefined) return;
  throw badInput(
    `${perl} is perl for GNU parallel, which laboro does not run; a shell line does the same: ` +
      "laboro run 'mv {} \"$(echo {} | sed s/a/b/)\"' ::: *.txt",
  );
}

/** Standard input, if the command needs entries. Not if it is a terminal: then the user forgot the list. */
function missingEntries(
  command: readonly string[],
  isLine: boolean,
  options: SubmissionOptions,
  asLines: boolean,
  readsStandardInput: boolean,
): readonly Bytes[] | undefined {
  if (options.array !== undefined || options.service !== undefined) return undefined;
  const forms = [
    ...placeholderForms(command, isLine),
    ...placeholderForms(
      filesOf(options).map(([, path]) => path),
      false,
    ),
  ];
  const missing =
    optionForLists(options) ??
    (asLines
      ? "{}"
      : forms.find((form) => columnOf(form) === 1 || (columnOf(form) > 1 && options.colsep !== undefined)));
  if (missing === undefined) return undefined;
  if (!readsStandardInput || isatty(0)) throw noEntries(asLines ? undefined : missing);
  return splitColumns(readEntries("-", delimiterOf(options), "::::"), options.colsep);
}

const noEntries = (placeholder: string | undefined): LaboroError =>
  placeholder === undefined
    ? noCommand()
    : badInput(
        `${placeholder} ${placeholder.startsWith("{") ? "stands for an entry" : "is for a list"}, and there is no list of entries; ` +
          "give one with ::: a b c, :::: FILE, --each-line FILE, --array 1-9, or through a pipe",
      );

/** One word with a blank is a shell line: run 'sort {} | uniq'. Several words are a program and its arguments. */
const isShellLine = ([line = "", ...more]: readonly string[], { shell }: SubmissionOptions): boolean =>
  more.length === 0 && (shell !== undefined || /[\s|&;<>()$`"'*?]/.test(line));

interface EntryShape {
  readonly hasEntries: boolean;
  /** Entries have columns, from several lists or from a file: `{2}` stands for one. */
  readonly hasColumns: boolean;
}

/** A command without a placeholder gets the entry as its last argument. */
function addPlaceholders(
  command: readonly string[],
  isLine: boolean,
  { hasEntries, hasColumns }: EntryShape,
): readonly string[] {
  const named = placeholderForms(command, isLine).some((form) => hasColumns || columnOf(form) < 2);
  const whole = !hasEntries || named ? command : isLine ? [`${command[0]} {}`] : [...command, "{}"];
  if (isLine && whole !== command && placeholderForms(whole, true).length === 0)
    throw badInput("the line ends in a comment or a here-document: write {} where the entry belongs");
  return whole;
}

function needsOf({ slots, resource }: SubmissionOptions): Record<string, number | "all"> | undefined {
  const needs = { ...(slots === undefined ? {} : { slots }), ...parseResources(resource, "all") };
  return Object.keys(needs).length === 0 ? undefined : needs;
}
