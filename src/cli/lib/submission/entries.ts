/**
 * Where the entries of a batch come from:
 *   CMD ::: a b c          the words after :::
 *   CMD :::: FILE          one entry per line of the file; `-` is standard input
 *   CMD ::: a b ::: 1 2    each of the first with each of the second: entries of two columns, the last changes fastest
 *   CMD :::: FILE FILE     the same with the lines of the files
 *   CMD ::: a b :::+ 1 2   the first with the first, the second with the second; surplus values are dropped
 *   --each-line FILE       as :::: FILE. --colsep separates the columns of a line
 *   --from-json FILE       one entry per item of a JSON array; items that are not strings stay JSON
 *   CMD {}                 the lines of standard input, if a placeholder needs an entry and there is no list
 */
import { existsSync, readFileSync } from "node:fs";
import { isatty } from "node:tty";
import { InvalidArgumentError } from "commander";
import { badInput, LaboroError, whyUnreadable } from "../../../base/errors.js";
import { COLUMN_SEPARATOR } from "../../../model/placeholders.js";
import { rangesOf } from "../../../model/ranges.js";
import type { Bytes } from "../../../model/recipe.js";
import { arrayFault, type Strides } from "../../../model/task-numbers.js";
import { printNotice } from "../print.js";

interface ParsedWords {
  readonly command: readonly string[];
  /** Absent if the words contain no entries. */
  readonly entries?: readonly Bytes[];
  /** How many lists were combined. */
  readonly lists: number;
  /** The names of several lists, with --header. */
  readonly names?: readonly string[];
}

interface EntryList {
  /** :::+ : combined one by one with the list before it. */
  readonly linked: boolean;
  readonly values: readonly Bytes[];
}

const LIST_MARKER = /^(::::?)(\+?)$/;

/** A submission with more is refused before it is created. */
const MAX_ENTRIES = 1_000_000;

/** Split the words after the options into the command and its entries. */
export function parseWords(words: readonly string[], delimiter: string, header?: string): ParsedWords {
  const starts = words.flatMap((word, at) => (LIST_MARKER.test(word) ? [at] : []));
  const [first] = starts;
  const command = words.slice(0, first);
  for (const word of command) refuseOtherBytes(word, "a word of the command");
  if (first === undefined) return { command, lists: 0 };
  const typed = typedWords(words);
  const sources = starts.flatMap((at, i): readonly EntryList[] => {
    const [, colons, plus] = LIST_MARKER.exec(words[at] ?? "") ?? [];
    const given = words.slice(at + 1, starts[i + 1]);
    const linked = plus === "+";
    if (colons === ":::") return [{ linked, values: typed.slice(at + 1, starts[i + 1]) }];
    return given.map((file) => ({ linked, values: readEntries(file, delimiter, "::::") }));
  });
  if (header === undefined || sources.length < 2)
    return { command, entries: combineLists(sources), lists: sources.length };
  const names = sources.map(({ values: [name = ""] }) => Buffer.from(name).toString());
  const rest = sources.map(({ linked, values }) => ({ linked, values: values.slice(1) }));
  return { command, entries: combineLists(rest), lists: sources.length, names };
}

/** Node puts it in place of bytes that are not UTF-8. */
const REPLACEMENT = "\uFFFD";

/** Without its original bytes, the argument would name another file. */
export function refuseOtherBytes(text: string, what: string): void {
  if (text.includes(REPLACEMENT)) throw badInput(`${what} is not UTF-8: ${text}; only entries may contain other bytes`);
}

/** The words with their original bytes, if the system provides them: file names need not be UTF-8. */
function typedWords(words: readonly string[]): readonly Bytes[] {
  if (!words.some((word) => word.includes(REPLACEMENT)) || !existsSync(ARGUMENTS)) return words;
  const all = readFileSync(ARGUMENTS, "latin1").split("\0").slice(0, -1);
  const typed = all.slice(-words.length).map((word) => asText(Buffer.from(word, "latin1")));
  return typed.every((word, at) => Buffer.from(word).toString() === words[at]) ? typed : words;
}

const ARGUMENTS = "/proc/self/cmdline";

function combineLists(sources: readonly EntryList[]): readonly Bytes[] {
  const [only] = sources;
  if (only?.linked) throw badInput(":::+ needs a list before it");
  if (sources.length < 2) return only?.values ?? [];
  const groups: (readonly (readonly Bytes[])[])[] = [];
  for (const { linked, values } of sources) {
    for (const value of values) refuseColumns(value);
    const before = linked ? groups.pop() : undefined;
    const rows = values.map((value): readonly Bytes[] => [value]);
    groups.push(before?.slice(0, rows.length).map((row, i) => [...row, ...(rows[i] ?? [])]) ?? rows);
  }
  const count = groups.reduce((product, { length }) => product * length, 1);
  if (count > MAX_ENTRIES) throw tooMany(count);
  const all = groups.reduce((rows, group) => rows.flatMap((row) => group.map((more) => [...row, ...more])), [[]]);
  return all.map(joinColumns);
}

export function refuseColumns(value: Bytes, what = "with several lists"): void {
  if (Buffer.from(value).includes(COLUMN_SEPARATOR)) throw badInput(`${what}, an entry must not contain a tab`);
}

export const joinColumns = (row: readonly Bytes[]): Bytes =>
  row.every((value) => typeof value === "string")
    ? row.join(COLUMN_SEPARATOR)
    : new Uint8Array(
        Buffer.concat(row.flatMap((value, i) => [Buffer.from(i === 0 ? "" : COLUMN_SEPARATOR), Buffer.from(value)])),
      );

/** Around a column. Not \s, which matches bytes of UTF-8. */
const BLANKS = /^[ \t\r\n\v\f]+|[ \t\r\n\v\f]+$/g;

/** Replaces each separator between columns by a tab. As in GNU parallel, blanks around a column are removed. */
export function splitColumns(lines: readonly Bytes[], separator: RegExp | undefined): readonly Bytes[] {
  if (separator === undefined) return lines;
  return lines.map((line) => {
    const columns = Buffer.from(line).toString("latin1").split(separator);
    const text = columns.map((column) => column.replace(BLANKS, "")).join(COLUMN_SEPARATOR);
    return asText(Buffer.from(text, "latin1"));
  });
}

/** Lines of a file from Windows: they name no files and no numbers. Only the last line may lack it. */
export function noticeCarriageReturns(entries: readonly Bytes[] | undefined): void {
  const ends = (entry: Bytes): boolean =>
    typeof entry === "string" ? entry.endsWith("\r") : entry[entry.length - 1] === 13;
  if (entries?.[0] === undefined || !ends(entries[0])) return;
  if (entries.every((entry, at) => ends(entry) || at === entries.length - 1))
    printNotice("each entry ends with a carriage return, as lines of Windows do; tr -d '\\r' <FILE removes them");
}

/** The number of columns of the first entry; 1 if there are no entries. */
export const columnCount = (entries: readonly Bytes[] | undefined): number =>
  entries?.[0] === undefined ? 1 : Buffer.from(entries[0]).toString("latin1").split(COLUMN_SEPARATOR).length;

/** The parts of a file, as bytes if they are not UTF-8. A delimiter at the end adds no entry. */
export function readEntries(file: string, delimiter: string, option: string): Bytes[] {
  const bytes = readInput(file, option);
  const entries: Bytes[] = [];
  for (let from = 0; from < bytes.length; ) {
    const found = bytes.indexOf(delimiter, from);
    const to = found < 0 ? bytes.length : found;
    const entry = bytes.subarray(from, to);
    if (entry.includes(0))
      throw badInput(
        `${file === "-" ? "standard input" : file}: an entry contains a NUL byte; use --null if NUL separates the entries`,
      );
    entries.push(asText(entry));
    from = to + Buffer.byteLength(delimiter);
    if (entries.length > MAX_ENTRIES) throw tooMany(entries.length);
  }
  return entries;
}

/** A text such as `,` in which `\n` `\t` `\r` `\0` `\\` are escapes. */
export function parseDelimiter(text: string): string {
  const named: Readonly<Record<string, string>> = { n: "\n", t: "\t", r: "\r", 0: "\0", "\\": "\\" };
  const delimiter = text.replace(/\\([ntr0\\])/g, (_, name: string) => named[name] ?? "");
  if (delimiter === "") throw new InvalidArgumentError("expected at least one character, such as , or \\t");
  return delimiter;
}

/** Text if it is UTF-8, otherwise the bytes. */
export function asText(bytes: Buffer): Bytes {
  const text = bytes.toString();
  return Buffer.from(text).equals(bytes) ? text : new Uint8Array(bytes);
}

/** Where entries come from, and what separates them. */
export interface EntryOptions {
  readonly array?: string;
  readonly eachLine?: string;
  readonly fromJson?: string;
  readonly null?: boolean;
  readonly delimiter?: string;
  readonly colsep?: RegExp;
}

export const ONE_WAY = "give entries in one way only: :::, --each-line or --from-json; or --array for numbers";

export function delimiterOf({ null: byNul, delimiter }: EntryOptions): string {
  if (byNul === true && delimiter !== undefined) throw badInput("--null and --delimiter exclude each other");
  return byNul === true ? "\0" : (delimiter ?? "\n");
}

export function entriesOf(
  named: readonly Bytes[] | undefined,
  lists: number,
  options: EntryOptions,
): readonly Bytes[] | undefined {
  const { eachLine, fromJson, colsep } = options;
  if (named !== undefined) return lists === 1 ? splitColumns(named, colsep) : named;
  if (eachLine !== undefined) return splitColumns(readEntries(eachLine, delimiterOf(options), "--each-line"), colsep);
  return fromJson === undefined ? undefined : readJsonItems(fromJson);
}

/** The entries with these numbers, counted from 1, in order. They keep their numbers. */
export function chooseEntries(
  entries: readonly Bytes[],
  array: Strides,
): { readonly entries: readonly Bytes[]; readonly numbers: Strides } {
  const chosen = array.flatMap(({ first, last, step }) => {
    if (first < 1 || last > entries.length)
      throw badArray(
        last > entries.length ? `${last}` : `${first}`,
        `numbers from 1 to ${entries.length}, the tasks of the list`,
      );
    return Array.from({ length: Math.floor((last - first) / step) + 1 }, (_, at) => first + at * step);
  });
  chosen.sort((a, b) => a - b);
  const numbers = rangesOf(chosen).map((range) => ({ ...range, step: 1 }));
  return { entries: chosen.map((number) => entries[number - 1] ?? ""), numbers };
}

/** The tasks that `submit --job` adds to an open job: entries or numbers, and no command. */
export function makeAppend(
  words: readonly string[],
  options: EntryOptions,
): { readonly entries: readonly Bytes[] } | { readonly array: Strides } {
  const { command, entries: named, lists } = parseWords(words, delimiterOf(options));
  if (command.length > 0)
    throw badInput("--job adds tasks with the command of that job: give only entries, such as --job 3 ::: a b");
  const sources = [named, options.eachLine, options.fromJson, options.array].filter((source) => source !== undefined);
  if (sources.length > 1) throw badInput(ONE_WAY);
  if (options.array !== undefined) return { array: parseArray(options.array) };
  const entries = entriesOf(named, lists, options);
  if (entries === undefined && isatty(0))
    throw badInput("--job needs entries: give them with ::: a b c, --each-line FILE, --array 10-19, or through a pipe");
  const added = entries ?? splitColumns(readEntries("-", delimiterOf(options), "::::"), options.colsep);
  noticeCarriageReturns(added);
  return { entries: added };
}

function readJsonItems(file: string): Bytes[] {
  let value: unknown;
  try {
    value = JSON.parse(readInput(file, "--from-json").toString());
  } catch (cause) {
    if (cause instanceof LaboroError) throw cause;
    throw badInput(`${file} is not JSON: ${cause instanceof Error ? cause.message : String(cause)}`);
  }
  if (!Array.isArray(value)) throw badInput(`${file}: expected a JSON array with one item per task`);
  if (value.length > MAX_ENTRIES) throw tooMany(value.length);
  return value.map((item: unknown) => (typeof item === "string" ? item : JSON.stringify(item)));
}

let standardInputRead = false;

/** `-` is standard input, which can be read once. */
export function readInput(file: string, option: string): Buffer {
  if (file === "-") {
    if (standardInputRead) throw badInput("standard input is given twice, but can be read only once");
    standardInputRead = true;
  }
  try {
    return readFileSync(file === "-" ? 0 : file);
  } catch (cause) {
    throw badInput(`cannot read ${option} ${file}: ${whyUnreadable(cause)}`, cause);
  }
}

const tooMany = (count: number): LaboroError => badInput(`${count} entries; a job has at most ${MAX_ENTRIES}`);

/** `--array 1-100:2,500`: each number is the number and the entry of one task. */
const PART = /^(\d[\d_]*)(?:-(\d[\d_]*)(?::(\d[\d_]*))?)?$/;
const LARGEST = 1_000_000_000;

export function parseArray(text: string): Strides {
  const strides = text.split(",").map((part) => {
    const found = PART.exec(part.trim());
    if (found === null && /%\d+$/.test(part)) throw badArray(text, "no % as in Slurm; use --max-running N");
    if (found === null) throw badArray(text, "numbers and ranges, such as 1-100, 1-100:2 or 7");
    const [first, last = first, step = "1"] = found.slice(1).map((digits) => digits?.replaceAll("_", ""));
    const stride = { first: Number(first), last: Number(last), step: Number(step) };
    if (stride.last < stride.first) throw badArray(part, "the smaller number first, such as 1-9");
    if (stride.step < 1) throw badArray(part, "a step of at least 1, such as 1-9:2");
    if (stride.last > LARGEST) throw badArray(part, `numbers up to ${LARGEST}, such as 1-100`);
    return stride;
  });
  const fault = arrayFault(strides);
  if (fault !== undefined)
    throw badInput(`--array ${text}: ${fault}, but an array has each number once, such as 1-3,7`);
  return strides;
}

const badArray = (got: string, expected: string): LaboroError => badInput(`--array: expected ${expected}, got ${got}`);
