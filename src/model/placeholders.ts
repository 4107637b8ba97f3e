/**
 * Placeholders in the arguments of a command:
 *   {}   the task's entry          {.}  the entry without its last extension
 *   {#}  its number               {/}  the entry without the folders before it
 *   {2} {2.} {2/}                  the same of one column, where the entry has several, with tabs between them
 * A word of its own is replaced as it is. In a line for the shell what replaces them is quoted for the place where it stands: bare,
 * between single quotes, or between double ones. So `cat {}`, `cat '{}'` and `cat "{}.txt"` all mean the file of that name.
 */
import type { Bytes } from "./recipe.js";

const PLACEHOLDER = /\{(?:#|(\d{0,4})([./]?))\}/g;

/** Between the columns of an entry. */
export const COLUMN_SEPARATOR = "\t";

/** Bytes as text with one character a byte, so that any of them can be cut and joined. */
const latin = (bytes: Bytes): string => Buffer.from(bytes).toString("latin1");

export function expandWords(argv: readonly Bytes[], number: number, entry: Bytes | undefined): readonly Bytes[] {
  return argv.map((word) => replace(word, number, entry, (value) => value));
}

export function expandLine(line: Bytes, number: number, entry: Bytes | undefined): Bytes {
  const text = latin(line);
  let quotes: Quotes = "";
  let seen = 0;
  return replace(line, number, entry, (value, at) => {
    quotes = quotesAt(text, seen, at, quotes);
    seen = at;
    return QUOTED[quotes](value);
  });
}

/** What the place in the line is enclosed by. */
type Quotes = "" | "'" | '"';

const QUOTED: Readonly<Record<Quotes, (value: string) => string>> = {
  "": (value) => (/^[\w@%+=:,./-]+$/.test(value) ? value : `'${value.replaceAll("'", "'\\''")}'`),
  "'": (value) => value.replaceAll("'", "'\\''"),
  '"': (value) => value.replace(/[\\"$`]/g, "\\$&"),
};

/** The quotes that are open at `to`, where `quotes` were open at `from`. */
function quotesAt(line: string, from: number, to: number, quotes: Quotes): Quotes {
  let open = quotes;
  for (let i = from; i < to; i++) {
    const character = line[i];
    if (character === "\\" && open !== "'") i++;
    else if (open === "" && (character === "'" || character === '"')) open = character;
    else if (character === open) open = "";
  }
  return open;
}

type Quote = (value: string, at: number) => string;

function replace(word: Bytes, number: number, entry: Bytes | undefined, quote: Quote): Bytes {
  const text = latin(word);
  if (!text.includes("{")) return word;
  const value = entry === undefined ? String(number) : latin(entry);
  const columns = value.split(COLUMN_SEPARATOR);
  const replaced = text.replace(PLACEHOLDER, (found, place: string | undefined, part: string, at: number) => {
    if (place === undefined) return String(number);
    const column = place === "" ? value : columns.length > 1 ? columns[Number(place) - 1] : undefined;
    return column === undefined ? found : quote(PARTS[part]?.(column) ?? column, at);
  });
  return Buffer.from(replaced, "latin1");
}

const PARTS: Readonly<Record<string, (value: string) => string>> = {
  ".": (value) => withoutExtension(value),
  "/": (value) => baseName(value),
};

const baseName = (path: string): string => path.slice(path.lastIndexOf("/") + 1);

function withoutExtension(path: string): string {
  const dot = path.lastIndexOf(".");
  return dot > path.lastIndexOf("/") + 1 ? path.slice(0, dot) : path;
}
