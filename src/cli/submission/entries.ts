/**
 * Where a batch's entries come from:
 *   CMD ::: a b c          the words after it
 *   CMD :::: FILE…         one entry a line of these files
 *   --each-line FILE       the same; `-` is standard input
 *   --from-json FILE       one entry an item of a JSON array; what is not text stays JSON
 */
import { readFileSync } from "node:fs";
import { errnoOf, LaboroError } from "../../model/errors.js";
import type { Bytes } from "../../model/recipe.js";

export interface ParsedWords {
  readonly command: readonly string[];
  /** Absent where the words name no entries. */
  readonly entries?: readonly Bytes[];
}

/** More than this in one submission is refused before it is made. */
const MOST_ENTRIES = 1_000_000;

/** Split the words after the options into the command and its entries. */
export function parseWords(words: readonly string[]): ParsedWords {
  const at = words.findIndex((word) => word === ":::" || word === "::::");
  if (at < 0) return { command: words };
  const given = words.slice(at + 1);
  const second = given.find((word) => /^:::(:?\+?)?$/.test(word));
  if (second !== undefined) {
    throw new LaboroError(
      "LABORO_BAD_INPUT",
      `one list of entries is taken, and ${second} begins another; join them with a loop, or by --each-line`,
    );
  }
  return { command: words.slice(0, at), entries: words[at] === "::::" ? given.flatMap(linesOf) : given };
}

/** The lines of a file as bytes, so that names that are not UTF-8 stay what they are. `-` is standard input. */
export function linesOf(file: string): Bytes[] {
  const bytes = readInput(file);
  const lines: Bytes[] = [];
  let from = 0;
  while (from < bytes.length) {
    const newline = bytes.indexOf(10, from);
    const to = newline < 0 ? bytes.length : newline;
    lines.push(asText(bytes.subarray(from, to)));
    from = to + 1;
    if (lines.length > MOST_ENTRIES) throw tooMany(lines.length);
  }
  return lines;
}

/** Text where it is UTF-8, else the bytes. */
function asText(bytes: Buffer): Bytes {
  const text = bytes.toString();
  return Buffer.from(text).equals(bytes) ? text : new Uint8Array(bytes);
}

export function jsonItems(file: string): Bytes[] {
  let value: unknown;
  try {
    value = JSON.parse(readInput(file).toString());
  } catch (cause) {
    if (cause instanceof LaboroError) throw cause;
    throw new LaboroError(
      "LABORO_BAD_INPUT",
      `${file} is not JSON: ${cause instanceof Error ? cause.message : String(cause)}`,
    );
  }
  if (!Array.isArray(value))
    throw new LaboroError("LABORO_BAD_INPUT", `${file}: expected a JSON array, one item a task`);
  if (value.length > MOST_ENTRIES) throw tooMany(value.length);
  return value.map((item: unknown) => (typeof item === "string" ? item : JSON.stringify(item)));
}

export function readInput(file: string): Buffer {
  try {
    return readFileSync(file === "-" ? 0 : file);
  } catch (cause) {
    const why =
      errnoOf(cause) === "ENOENT" ? "there is no such file" : cause instanceof Error ? cause.message : String(cause);
    throw new LaboroError("LABORO_BAD_INPUT", `cannot read ${file}: ${why}`, { cause });
  }
}

const tooMany = (count: number): LaboroError =>
  new LaboroError("LABORO_BAD_INPUT", `${count} entries; at most ${MOST_ENTRIES} go into one job`);
