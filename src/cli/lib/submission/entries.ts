/**
 * Where a batch's entries come from:
 *   CMD ::: a b c          the words after it
 *   CMD :::: FILE          one entry a line of the file; `-` is standard input
 *   CMD ::: a b ::: 1 2    each of the first with each of the second, as entries of two columns; the last changes fastest
 *   CMD :::: FILE FILE     the same with the lines of the files
 *   CMD ::: a b :::+ 1 2   the first with the first, the second with the second; surplus values are left out
 *   --each-line FILE       as :::: FILE. --colsep says what stands between the columns of a line
 *   --from-json FILE       one entry per item of a JSON array; items that are not text stay JSON
 *   CMD {}                 the lines of standard input, where a placeholder needs an entry and none of these is given
 */
import { existsSync, readFileSync } from "node:fs";
import { badInput, errnoOf, LaboroError } from "../../../base/errors.js";
import { COLUMN_SEPARATOR } from "../../../model/placeholders.js";
import type { Bytes } from "../../../model/recipe.js";

export interface ParsedWords {
  readonly command: readonly string[];
  /** Absent where the words name no entries. */
  readonly entries?: readonly Bytes[];
  /** How many lists they were combined of. */
  readonly lists: number;
}

interface EntryList {
  /** It goes with the one before it, one by one. */
  readonly linked: boolean;
  readonly values: readonly Bytes[];
}

const LIST_MARKER = /^(::::?)(\+?)$/;

/** More than this in one submission is refused before it is made. */
const MAX_ENTRIES = 1_000_000;

/** Split the words after the options into the command and its entries. */
export function parseWords(words: readonly string[], delimiter: string): ParsedWords {
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
    return given.map((file) => ({ linked, values: readEntries(file, delimiter) }));
  });
  return { command, entries: combineLists(sources), lists: sources.length };
}

/** Stands for bytes that are not UTF-8 in an argument, as Node gives it. */
const REPLACEMENT = "\uFFFD";

/** Where the bytes cannot be passed on, the argument would name another file. */
export function refuseOtherBytes(text: string, what: string): void {
  if (text.includes(REPLACEMENT)) throw badInput(`${what} is not UTF-8: ${text}; only entries may have other bytes`);
}

/** The words with the bytes that were typed, where the system shows them: file names need not be UTF-8. */
function typedWords(words: readonly string[]): readonly Bytes[] {
  if (!words.some((word) => word.includes(REPLACEMENT)) || !existsSync(ARGUMENTS)) return words;
  const all = readFileSync(ARGUMENTS, "latin1").split("\0").slice(0, -1);
  const typed = all.slice(-words.length).map((word) => asText(Buffer.from(word, "latin1")));
  return typed.every((word, at) => Buffer.from(word).toString() === words[at]) ? typed : words;
}

const ARGUMENTS = "/proc/self/cmdline";

function combineLists(sources: readonly EntryList[]): readonly Bytes[] {
  const [only] = sources;
  if (only?.linked) throw badInput(":::+ goes with the list before it, and there is none");
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

function refuseColumns(value: Bytes): void {
  if (Buffer.from(value).includes(COLUMN_SEPARATOR)) {
    throw badInput("an entry with a tab in it cannot be one of several columns");
  }
}

const joinColumns = (row: readonly Bytes[]): Bytes =>
  row.every((value) => typeof value === "string")
    ? row.join(COLUMN_SEPARATOR)
    : new Uint8Array(
        Buffer.concat(row.flatMap((value, i) => [Buffer.from(i === 0 ? "" : COLUMN_SEPARATOR), Buffer.from(value)])),
      );

/** The lines with a tab for each separator between their columns. */
export function splitColumns(lines: readonly Bytes[], separator: RegExp | undefined): readonly Bytes[] {
  if (separator === undefined) return lines;
  return lines.map((line) => {
    const columns = Buffer.from(line).toString("latin1").split(separator).join(COLUMN_SEPARATOR);
    return asText(Buffer.from(columns, "latin1"));
  });
}

/** The number of columns of the first entry; 1 if there are no entries. */
export const columnCount = (entries: readonly Bytes[] | undefined): number =>
  entries?.[0] === undefined ? 1 : Buffer.from(entries[0]).toString("latin1").split(COLUMN_SEPARATOR).length;

/** The parts of a file as bytes, so that names that are not UTF-8 stay what they are. A delimiter at the end adds none. */
export function readEntries(file: string, delimiter: string): Bytes[] {
  const bytes = readInput(file);
  const entries: Bytes[] = [];
  for (let from = 0; from < bytes.length; ) {
    const found = bytes.indexOf(delimiter, from);
    const to = found < 0 ? bytes.length : found;
    const entry = bytes.subarray(from, to);
    if (entry.includes(0))
      throw badInput(`${file}: an entry has a NUL byte in it; use --null where NUL separates them`);
    entries.push(asText(entry));
    from = to + Buffer.byteLength(delimiter);
    if (entries.length > MAX_ENTRIES) throw tooMany(entries.length);
  }
  return entries;
}

/** `,` or `\t`: a text, in which `\n` `\t` `\r` `\0` `\\` stand for one character each. */
export function parseDelimiter(text: string): string {
  const named: Readonly<Record<string, string>> = { n: "\n", t: "\t", r: "\r", 0: "\0", "\\": "\\" };
  const delimiter = text.replace(/\\([ntr0\\])/g, (_, name: string) => named[name] ?? "");
  if (delimiter === "") throw badInput("--delimiter: expected at least one character");
  return delimiter;
}

/** Text where it is UTF-8, else the bytes. */
function asText(bytes: Buffer): Bytes {
  const text = bytes.toString();
  return Buffer.from(text).equals(bytes) ? text : new Uint8Array(bytes);
}

export function readJsonItems(file: string): Bytes[] {
  let value: unknown;
  try {
    value = JSON.parse(readInput(file).toString());
  } catch (cause) {
    if (cause instanceof LaboroError) throw cause;
    throw badInput(`${file} is not JSON: ${cause instanceof Error ? cause.message : String(cause)}`);
  }
  if (!Array.isArray(value)) throw badInput(`${file}: expected a JSON array, one item a task`);
  if (value.length > MAX_ENTRIES) throw tooMany(value.length);
  return value.map((item: unknown) => (typeof item === "string" ? item : JSON.stringify(item)));
}

let standardInputRead = false;

/** `-` is standard input, which can be read once. */
export function readInput(file: string): Buffer {
  if (file === "-") {
    if (standardInputRead) throw badInput("standard input is named twice, and can be read only once");
    standardInputRead = true;
  }
  try {
    return readFileSync(file === "-" ? 0 : file);
  } catch (cause) {
    const why =
      errnoOf(cause) === "ENOENT" ? "there is no such file" : cause instanceof Error ? cause.message : String(cause);
    throw badInput(`cannot read ${file}: ${why}`, cause);
  }
}

const tooMany = (count: number): LaboroError => badInput(`${count} entries; at most ${MAX_ENTRIES} go into one job`);
