/**
 * Placeholders in a command, as in GNU parallel:
 *   {}    the entry of the task           {/}   the entry without its folders
 *   {.}   without its last extension      {//}  the folders of the entry, or `.`
 *   {#}   the number of the task          {/.}  {/} without its last extension
 *   {%}   the slot it runs in, from 1     {2} {2.} {2/} {2//} {2/.}  the same of one column; tabs separate columns
 * A placeholder without a value stays as it is: {2} of an entry with one column.
 *
 * In a word, the value replaces the placeholder. In a shell line, the value never becomes code: the line begins with
 * assignments, and the placeholder is replaced by a variable that is quoted for its place (shell-line.ts).
 */
import { badInput, type LaboroError } from "../base/errors.js";
import { type Bytes, PLACEHOLDER, type Recipe } from "./recipe.js";
import { findPlaceholders, type Quoting, type ShellPlaceholder } from "./shell-line.js";
import { quote } from "./shell-words.js";

/** What the placeholders of one task stand for. */
export interface TaskValues {
  readonly number: number;
  readonly entry?: Bytes | undefined;
  /** From 1. Absent if it is not known. */
  readonly slot?: number | undefined;
}

const EACH_PLACEHOLDER = new RegExp(PLACEHOLDER, "g");
const PLACEHOLDER_HERE = new RegExp(PLACEHOLDER, "y");
const WHOLE_NUMBER = /^(0|-?[1-9]\d{0,17})$/;

/** Between the columns of an entry. */
export const COLUMN_SEPARATOR = "\t";

/** Bytes as text with one character per byte, so that they can be split and joined. */
const latin = (bytes: Bytes): string => Buffer.from(bytes).toString("latin1");

export function expandWords(argv: readonly Bytes[], values: TaskValues): readonly Bytes[] {
  const valueFor = valuesOf(values);
  return argv.map((word) => {
    const text = latin(word);
    return PLACEHOLDER.test(text)
      ? Buffer.from(
          text.replace(EACH_PLACEHOLDER, (form) => valueFor(form) ?? form),
          "latin1",
        )
      : word;
  });
}

/** The line to run. Throws LABORO_BAD_INPUT if a placeholder is in a place where no value is safe. */
export function expandLine(line: Bytes, values: TaskValues): Bytes {
  const names = new Map<string, string>();
  const assignments: string[] = [];
  const text = replaceIn(latin(line), values, ({ text: form, quoting }, value) => {
    let name = names.get(form);
    if (name === undefined) {
      name = `laboro_${names.size + 1}`;
      names.set(form, name);
      assignments.push(`${name}=${quote(Buffer.from(value, "latin1"), "entry")}`);
    }
    return VARIABLE[quoting](name);
  });
  return assignments.length === 0 ? line : Buffer.from(`${assignments.join(" ")}; ${text}`, "latin1");
}

/** The line as a user would type it. */
export const showLine = (line: Bytes, values: TaskValues): string =>
  Buffer.from(
    replaceIn(latin(line), values, ({ quoting }, value) => QUOTED[quoting](value)),
    "latin1",
  ).toString();

const VARIABLE: Readonly<Record<Quoting, (name: string) => string>> = {
  bare: (name) => `"$${name}"`,
  single: (name) => `'"$${name}"'`,
  double: (name) => `\${${name}}`,
  heredoc: (name) => `\${${name}}`,
};

const QUOTED: Readonly<Record<Quoting, (value: string) => string>> = {
  bare: (value) => (/^[\w@%+=:,./-]+$/.test(value) ? value : `'${value.replaceAll("'", "'\\''")}'`),
  single: (value) => value.replaceAll("'", "'\\''"),
  double: (value) => value.replace(/[\\"$`]/g, "\\$&"),
  heredoc: (value) => value.replace(/[\\$`]/g, "\\$&"),
};

function replaceIn(
  line: string,
  values: TaskValues,
  replacement: (found: ShellPlaceholder, value: string) => string,
): string {
  const valueFor = valuesOf(values);
  let text = "";
  let from = 0;
  for (const found of placeholdersIn(line)) {
    const value = valueFor(found.text);
    if (value === undefined) continue;
    const problem = problemWith(found, value);
    if (problem !== undefined) throw badPlace(found, problem);
    text += line.slice(from, found.at) + (found.escaped ? "\\" : "") + replacement(found, value);
    from = found.at + found.text.length;
  }
  return text + line.slice(from);
}

let lastRead: { readonly line: string; readonly found: readonly ShellPlaceholder[] } = { line: "", found: [] };

/** Cached, because the tasks of a job have the same line. */
function placeholdersIn(line: string): readonly ShellPlaceholder[] {
  if (lastRead.line !== line)
    lastRead = { line, found: PLACEHOLDER.test(line) ? findPlaceholders(line, PLACEHOLDER_HERE) : [] };
  return lastRead.found;
}

function problemWith({ refusal, numeric }: ShellPlaceholder, value: string): string | undefined {
  if (refusal !== undefined) return refusal;
  if (!numeric || WHOLE_NUMBER.test(value)) return undefined;
  return `where the shell may evaluate it as arithmetic, which takes whole numbers only, not ${JSON.stringify(value)}; use [ … ] or expr`;
}

const badPlace = ({ text, at }: ShellPlaceholder, problem: string): LaboroError =>
  badInput(`${text} at character ${at + 1} of the line stands ${problem}`);

/** The value of a placeholder, if it has one. */
function valuesOf({ number, entry, slot }: TaskValues): (form: string) => string | undefined {
  const whole = entry === undefined ? undefined : latin(entry);
  const columns = whole?.split(COLUMN_SEPARATOR);
  return (form) => {
    const [, counter, column, part = ""] = PLACEHOLDER.exec(form) ?? [];
    if (counter === "#") return String(number);
    if (counter === "%") return slot === undefined ? undefined : String(slot);
    const value = column === undefined ? whole : columns?.[Number(column) - 1];
    return value === undefined ? undefined : (PARTS[part]?.(value) ?? value);
  };
}

const PARTS: Readonly<Record<string, (value: string) => string>> = {
  ".": (value) => withoutExtension(value),
  "/": (value) => baseName(value),
  "//": (value) => folderOf(value),
  "/.": (value) => withoutExtension(baseName(value)),
};

const baseName = (path: string): string => path.slice(path.lastIndexOf("/") + 1);

/** As dirname(1). */
function folderOf(path: string): string {
  const trimmed = path.replace(/\/+$/, "");
  if (trimmed === "") return path === "" ? "." : "/";
  const slash = trimmed.lastIndexOf("/");
  return slash < 0 ? "." : trimmed.slice(0, slash).replace(/\/+$/, "") || "/";
}

function withoutExtension(path: string): string {
  const dot = path.lastIndexOf(".");
  return dot > path.lastIndexOf("/") + 1 ? path.slice(0, dot) : path;
}

/** The placeholders of a command: of its words, or of its shell line. */
export function placeholderForms(argv: readonly Bytes[], shell: boolean): readonly string[] {
  const texts = argv.map(latin);
  if (!shell) return texts.flatMap((text) => text.match(EACH_PLACEHOLDER) ?? []);
  return texts.flatMap((text) => placeholdersIn(text).map((found) => found.text));
}

/** The column of the placeholder; 1 for the whole entry, 0 if it needs no entry. */
export function columnOf(form: string): number {
  const [, counter, column = "1"] = PLACEHOLDER.exec(form) ?? [];
  return counter === undefined ? Number(column) : 0;
}

/** Throws LABORO_BAD_INPUT for a placeholder that has no value, or is in a place where no value is safe. */
export function checkPlaceholders(recipe: Recipe, entries: readonly Bytes[] | undefined): void {
  if (recipe.kind !== "command" && recipe.kind !== "script") return;
  const shell = recipe.kind === "command" && recipe.shell === true;
  const argv = recipe.kind === "script" ? (recipe.args ?? []) : recipe.placeholders === true ? recipe.argv : [];
  const first = recipe.array?.[0]?.first;
  const known = entries ?? (first === undefined ? undefined : [String(first)]);
  if (known === undefined) {
    const missing = placeholderForms(argv, shell).find((form) => columnOf(form) === 1);
    if (missing !== undefined) throw badInput(`${missing} stands for an entry, and the job has no entries`);
  }
  const [line] = argv;
  if (shell && line !== undefined) checkLine(latin(line), known ?? []);
}

function checkLine(line: string, entries: readonly Bytes[]): void {
  for (const found of placeholdersIn(line)) {
    if (found.refusal === undefined && !found.numeric) continue;
    const tasks = columnOf(found.text) === 0 ? [{ slot: 1 }] : entries.map((entry) => ({ entry }));
    for (const task of tasks) {
      const value = valuesOf({ number: 1, ...task })(found.text);
      const problem = value === undefined ? undefined : problemWith(found, value);
      if (problem !== undefined) throw badPlace(found, problem);
    }
  }
}
