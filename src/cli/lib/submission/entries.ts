/**
 * Where a batch's entries come from:
 *   CMD ::: a b c          the words after it
 *   CMD :::: FILE…         one entry a line of these files
 *   CMD ::: a b ::: 1 2    each of the first with each of the second, as entries of two columns; the last changes fastest
 *   CMD ::: a b :::+ 1 2   the first with the first, the second with the second; surplus values are left out
 *   --each-line FILE       the same; `-` is standard input. --colsep says what stands between the columns of a line
 *   --from-json FILE       one entry per item of a JSON array; items that are not text stay JSON
 */
import { readFileSync } from "node:fs";
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
export function parseWords(words: readonly string[]): ParsedWords {
  const starts = words.flatMap((word, at) => (LIST_MARKER.test(word) ? [at] : []));
  const [first] = starts;
  if (first === undefined) return { command: words, lists: 0 };
  const sources = starts.map((at, i): EntryList => {
    const [, colons, plus] = LIST_MARKER.exec(words[at] ?? "") ?? [];
    const given = words.slice(at + 1, starts[i + 1]);
    return { linked: plus === "+", values: colons === "::::" ? given.flatMap(readLines) : given };
  });
  return { command: words.slice(0, first), entries: combineLists(sources), lists: sources.length };
}

function combineLists(sources: readonly EntryList[]): readonly Bytes[] {
  const [only] = sources;
  if (only?.linked) throw badInput(":::+ goes with the list before it, and there is none");
  if (sources.length === 1) return only?.values ?? [];
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

/** The lines of a file as bytes, so that names that are not UTF-8 stay what they are. `-` is standard input. */
export function readLines(file: string): Bytes[] {
  const bytes = readInput(file);
  const lines: Bytes[] = [];
  let from = 0;
  while (from < bytes.length) {
    const newline = bytes.indexOf(10, from);
    const to = newline < 0 ? bytes.length : newline;
    lines.push(asText(bytes.subarray(from, to)));
    from = to + 1;
    if (lines.length > MAX_ENTRIES) throw tooMany(lines.length);
  }
  return lines;
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

export function readInput(file: string): Buffer {
  try {
    return readFileSync(file === "-" ? 0 : file);
  } catch (cause) {
    const why =
      errnoOf(cause) === "ENOENT" ? "there is no such file" : cause instanceof Error ? cause.message : String(cause);
    throw badInput(`cannot read ${file}: ${why}`, cause);
  }
}

const tooMany = (count: number): LaboroError => badInput(`${count} entries; at most ${MAX_ENTRIES} go into one job`);
