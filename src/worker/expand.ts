/**
 * Placeholders in the arguments of a command:
 *   {}   the task's entry          {.}  the entry without its last extension
 *   {#}  the task's number         {/}  the entry without the folders before it
 * In a line for the shell what replaces them is quoted for it; a word of its own is replaced as it is.
 */
import type { TaskIndex } from "../model/ids.js";
import type { Bytes } from "../model/recipe.js";

const PLACEHOLDER = /\{[#./]?\}/g;

/** Bytes as text with one character a byte, so that any of them can be cut and joined. */
const latin = (bytes: Bytes): string => Buffer.from(bytes).toString("latin1");

export function expandWords(argv: readonly Bytes[], index: TaskIndex, entry: Bytes | undefined): readonly Bytes[] {
  return argv.map((word) => replace(word, index, entry, (value) => value));
}

export function expandLine(line: Bytes, index: TaskIndex, entry: Bytes | undefined): Bytes {
  return replace(line, index, entry, (value) => `'${value.replaceAll("'", "'\\''")}'`);
}

function replace(word: Bytes, index: TaskIndex, entry: Bytes | undefined, quote: (value: string) => string): Bytes {
  const text = latin(word);
  if (!text.includes("{")) return word;
  const value = entry === undefined ? String(index) : latin(entry);
  const replaced = text.replace(PLACEHOLDER, (found) => {
    if (found === "{#}") return String(index);
    return quote(found === "{.}" ? withoutExtension(value) : found === "{/}" ? baseName(value) : value);
  });
  return Buffer.from(replaced, "latin1");
}

const baseName = (path: string): string => path.slice(path.lastIndexOf("/") + 1);

function withoutExtension(path: string): string {
  const dot = path.lastIndexOf(".");
  return dot > path.lastIndexOf("/") + 1 ? path.slice(0, dot) : path;
}
