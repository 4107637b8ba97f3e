/** Options of GNU parallel that laboro has. */
import { basename } from "node:path";
import { type Command, InvalidArgumentError } from "commander";
import { badInput } from "../../../base/errors.js";
import type { Counters, HaltRule } from "../../../model/job.js";
import type { Submission } from "../../../model/job-input.js";
import { COLUMN_SEPARATOR, columnOf, placeholderForms } from "../../../model/placeholders.js";
import type { Bytes, Several } from "../../../model/recipe.js";
import type { Strides } from "../../../model/task-numbers.js";
import { parseTimeLimit } from "../option-parsers.js";
import { asText, joinColumns, refuseColumns } from "./entries.js";

export interface ParallelOptions {
  /** Values per task: -n, -N or -L. */
  readonly maxArgs?: number;
  readonly maxReplaceArgs?: number;
  readonly maxLines?: number;
  readonly contextReplace?: boolean;
  /** -X: over how many tasks values are spread. */
  readonly spread?: number;
  readonly header?: string;
  readonly onHeader?: (names: readonly string[]) => void;
  readonly shuf?: boolean;
  readonly nice?: number;
  readonly shell?: string;
  readonly halt?: HaltOption;
  readonly timeout?: TimeoutOption;
}

type TimeoutOption = Pick<Submission, "timeLimitMs" | "timeLimitPercent">;

/** The count is a part of the batch if it was given in percent. `never` is undefined. */
export type HaltOption = { readonly rule?: HaltRule; readonly percent?: number };

export function addParallelOptions<T extends Command>(command: T): T {
  return command
    .option("-n, --max-args <n>", "give each task N values of the list; 0: as many tasks, without values", parseCount)
    .option("-N, --max-replace-args <n>", "the same as -n; {1} {2} are the values", parseCount)
    .option("-L, --max-lines <n>", "the same; a line that ends in a blank continues on the next", parseCount)
    .option(
      "-X, --context-replace",
      "give each task as many values as fit on a line, spread over -j tasks; x{} is repeated: xa xb",
    )
    .option("--header <:>", "the first line of each list has the names of its columns: {name} {name.}", parseHeader)
    .option("--shuf", "run the tasks in random order")
    .option(
      "--halt <rule>",
      "start nothing more (soon) or stop all (now) once tasks fail, succeed or are done: now,fail=1 soon,success=10%",
      parseHalt,
    )
    .option("--timeout <time>", "as --time-limit; 200% is relative to the median of the tasks before", parseTimeout)
    .option("--nice <n>", "run the command with this niceness: 10", parseNice)
    .option(
      "--shell <shell>",
      "the command is a line for this shell: sh, dash or bash, which gets exported functions",
      parseShell,
    )
    .option("-r", "accepted for GNU parallel: an empty list is always nothing to do");
}

function parseCount(text: string): number {
  if (/^\d+$/.test(text)) return Number(text);
  throw new InvalidArgumentError("expected a number of values, such as 2");
}

function parseHeader(text: string): string {
  if (text === ":") return text;
  throw new InvalidArgumentError("expected a colon, such as --header : --colsep ,");
}

function parseNice(text: string): number {
  if (/^-?\d+$/.test(text) && Math.abs(Number(text) + 0.5) < 20) return Number(text);
  throw new InvalidArgumentError("expected -20 to 19, such as 10");
}

const OLD_HALTS: Readonly<Record<string, string>> = {
  ...{ "0": "never", "1": "soon,fail=1", "2": "now,fail=1", "-1": "soon,success=1", "-2": "now,success=1" },
};

function parseHalt(text: string): HaltOption {
  const long = OLD_HALTS[text] ?? text.replace(/^\d+%$/, "soon,fail=$&");
  const [, never, when, on, amount, percent] =
    /^(?:(never(?:,.*)?)|(now|soon),(fail|success|done)=(\d{1,9})(%?))$/.exec(long) ?? [];
  if (never !== undefined) return {};
  const count = Number(amount);
  if (on === undefined || count === 0 || (percent === "%" && count > 100))
    throw new InvalidArgumentError(
      "expected never, or now or soon and what ends the run, such as now,fail=1 soon,success=10%",
    );
  const rule = { on: on as HaltRule["on"], count, ...(when === "now" ? { now: true } : {}) };
  return percent === "%" ? { rule, percent: count } : { rule };
}

/** GNU parallel has no limit in percent below the median either. */
function parseTimeout(text: string): TimeoutOption {
  const [, percent] = /^(\d{1,7})%$/.exec(text) ?? [];
  if (percent === undefined) return { timeLimitMs: parseTimeLimit(text) };
  if (Number(percent) > 100) return { timeLimitPercent: Number(percent) };
  throw new InvalidArgumentError("expected more than 100% of the median, such as 200%, or a duration such as 60");
}

/** The halt rule of a batch with this many tasks. */
export function haltOf(
  { halt, maxFails, open }: ParallelOptions & { readonly maxFails?: number; readonly open?: boolean },
  tasks: number,
): Pick<Submission, "halt" | "maxFails"> {
  if (halt !== undefined && maxFails !== undefined)
    throw badInput("--halt and --max-fails exclude each other: --max-fails 2 is --halt soon,fail=3");
  const { rule, percent } = halt ?? {};
  if (open === true && percent !== undefined)
    throw badInput(
      `--halt ${rule?.on}=${percent}%: a job with --open has no number of tasks yet; give a count, such as soon,fail=3`,
    );
  const count = percent === undefined ? rule?.count : Math.max(1, Math.ceil((tasks * percent) / 100));
  return {
    ...(maxFails === undefined ? {} : { maxFails }),
    ...(rule === undefined || count === undefined ? {} : { halt: { ...rule, count } }),
  };
}

/** As GNU parallel exits after a halt. `first`: the exit code of the first task that failed, 0 if none has. */
export function haltedExitCode(
  { rule, percent }: HaltOption,
  { failed }: Pick<Counters, "failed">,
  tasks: number,
  first: number,
): number {
  if (rule?.on === "success") return 0;
  if (percent !== undefined) return Math.ceil((failed / tasks) * 100);
  return rule?.count === 1 ? first : Math.min(failed, 101);
}

/** Entries are quoted for these shells. Another one may read the line in another way. */
function parseShell(text: string): string {
  if (/^(sh|dash|bash)$/.test(basename(text))) return text;
  throw new InvalidArgumentError("expected sh, dash or bash, or a path of one, such as /usr/local/bin/bash");
}

/** The command if none is given: each entry is a shell line. */
export const ENTRY_AS_LINE: readonly string[] = ["/bin/sh", "-c", "{}"];
/** The same with --shell. */
export const EVAL_ENTRY = 'eval "$LABORO_ENTRY"';

/** The words before the command. `lineShell`: the command is a line, by default for this shell. */
export function processPrefix({ nice, shell }: ParallelOptions, lineShell?: string): readonly string[] {
  const prefix = nice === undefined ? [] : ["nice", "-n", String(nice)];
  if (shell !== undefined && basename(shell) === "bash") {
    // Some shells do not pass such variables on, so env sets them for bash.
    const functions = Object.entries(process.env).filter(([name]) => /^BASH_FUNC_.*%%$/.test(name));
    if (functions.length > 0) prefix.push("env", ...functions.map(([name, body]) => `${name}=${body}`));
  }
  const isDefault = prefix.length === 0 && shell === undefined;
  return lineShell === undefined || isDefault ? prefix : [...prefix, shell ?? lineShell, "-c"];
}

interface NamedRows {
  readonly rows: readonly Bytes[] | undefined;
  /** The names of the columns. */
  readonly header?: readonly string[];
}

/** --header: the names are the first row, except where several lists have been combined. */
export function takeHeader(
  rows: readonly Bytes[] | undefined,
  names: readonly string[] | undefined,
  { header }: ParallelOptions,
): NamedRows {
  if (header === undefined) return { rows };
  if (names !== undefined) return { rows, header: names };
  if (rows === undefined) throw badInput("--header : needs a list, as in --header : ::: name value1 value2");
  const first = Buffer.from(rows[0] ?? "").toString();
  return { rows: rows.slice(1), header: first.replace(/\r$/, "").split(COLUMN_SEPARATOR) };
}

/** {name} and {name.} become {2} and {2.}. */
export function nameColumns(
  words: readonly string[],
  names: readonly string[] | undefined,
  isLine: boolean,
): readonly string[] {
  if (names === undefined) return words;
  // In a line, \{x} and ${x} are the shell's.
  const form = isLine ? /(?<![\\$])\{([^{}]+?)(\/\.|\/\/|[./])?\}/g : /\{([^{}]+?)(\/\.|\/\/|[./])?\}/g;
  return words.map((word) =>
    word.replace(form, (whole, name: string, part = "") => {
      const at = names.indexOf(name);
      return at < 0 ? whole : `{${at + 1}${part}}`;
    }),
  );
}

/** How many values of the list a task gets; undefined if an entry is one value. */
function valuesPerTask({ maxArgs, maxReplaceArgs, maxLines, contextReplace }: ParallelOptions): number | undefined {
  const [size, ...more] = [maxArgs, maxReplaceArgs, maxLines].filter((given) => given !== undefined);
  if (more.length > 0) throw badInput("-n, -N and -L exclude each other: each says how many values a task gets");
  return size ?? (contextReplace === true ? Number.POSITIVE_INFINITY : undefined);
}

/** An option that is of no use without a list. */
export function optionForLists(options: ParallelOptions): string | undefined {
  if (valuesPerTask(options) !== undefined) return "-n, -N, -L or -X";
  if (options.header !== undefined) return "--header";
  return options.shuf === true ? "--shuf" : undefined;
}

interface Groups {
  readonly entries?: readonly Bytes[];
  readonly several?: Several;
  /** -n 0: the values are only counted. */
  readonly counted?: Strides;
}

/** What the tasks get of the values. The same values are always grouped in the same way, so that a batch is resumed. */
export function groupEntries(
  rows: readonly Bytes[] | undefined,
  lists: number,
  command: readonly string[],
  isLine: boolean,
  options: ParallelOptions & { readonly colsep?: RegExp; readonly service?: string },
): Groups {
  const size = valuesPerTask(options);
  const { contextReplace: repeats = false, spread = 1, shuf = false } = options;
  if (rows === undefined) {
    if (size !== undefined) throw badInput("-n, -N, -L and -X need a list of values, as in -n 2 ::: a b c d");
    if (shuf) throw badInput("--shuf needs a list, as in --shuf ::: a b c; for numbers: ::: $(seq 9)");
    return {};
  }
  if (size === undefined) return { entries: inOrder(rows, shuf), ...(lists > 1 ? { several: "joined" } : {}) };
  if (options.service !== undefined) throw badInput("-n, -N, -L and -X cannot be used with --service");
  if (command.length === 0) throw badInput("-n, -N, -L and -X need a command: commands are not joined");
  const forms = placeholderForms(command, isLine).filter((form) => columnOf(form) > 0);
  if (size === 0) {
    if (forms.length > 0) throw badInput(`with -n 0 tasks get no values: leave out ${forms[0]}, or use -n 1`);
    return rows.length === 0 ? { entries: [] } : { counted: [{ first: 1, last: rows.length, step: 1 }] };
  }
  if (lists < 2 && options.colsep === undefined) for (const row of rows) refuseColumns(row, "with -n, -N, -L or -X");
  const lines = options.maxLines === undefined ? rows : joinContinued(rows);
  if (!repeats) return { entries: inOrder(grouped(lines, size), shuf), several: "joined" };
  const whole = /\{[./]*\}/g;
  const alone = /(?<!\S)\{[./]*\}(?!\S)/g;
  const [text = ""] = command;
  if (isLine && (text.match(whole) ?? []).length > (text.match(alone) ?? []).length)
    throw badInput(
      "-X repeats the word around {}, which a shell line has not: give several words, or put blanks around {}",
    );
  const most = Math.min(size, Math.ceil(lines.length / spread));
  const around = command.reduce((sum, word) => sum + (word.match(whole) ?? []).length * (word.length + 9), 0);
  const places = Math.max(1, command.join(" ").match(whole)?.length ?? 0);
  // A line assigns each value to a variable, where quotes take up to four characters.
  const costOf = (row: Bytes): number => row.length * (isLine ? 5 : 2) * places + (isLine ? 40 * places : around + 9);
  return { entries: inOrder(grouped(lines, most, costOf), shuf), several: "repeated" };
}

/** Linux takes 128 KiB for one argument or variable. */
const LONGEST_LINE = 120_000;

function grouped(rows: readonly Bytes[], size: number, costOf: (row: Bytes) => number = () => 0): readonly Bytes[] {
  const groups: Bytes[][] = [];
  let used = Number.POSITIVE_INFINITY;
  for (const row of rows) {
    const cost = costOf(row);
    used += cost;
    const last = groups.at(-1);
    if (last !== undefined && last.length < size && used <= LONGEST_LINE) last.push(row);
    else {
      groups.push([row]);
      used = cost;
    }
  }
  return groups.map(joinColumns);
}

function joinContinued(rows: readonly Bytes[]): readonly Bytes[] {
  const lines: Buffer[] = [];
  let continues = false;
  for (const row of rows) {
    const bytes = Buffer.from(row);
    lines.push(continues ? Buffer.concat([lines.pop() ?? bytes, bytes]) : bytes);
    continues = /[ \t]$/.test(bytes.toString("latin1"));
  }
  return lines.map(asText);
}

/** Random order is that of the submission: a resumed batch keeps its numbers. */
function inOrder(entries: readonly Bytes[], shuffled: boolean): readonly Bytes[] {
  if (!shuffled) return entries;
  const left = [...entries];
  for (let at = left.length - 1; at > 0; at--) {
    const other = Math.floor(Math.random() * (at + 1));
    [left[at], left[other]] = [left[other] as Bytes, left[at] as Bytes];
  }
  return left;
}
