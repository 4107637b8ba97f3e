/**
 * Placeholders in a command, as in GNU parallel:
 *   {}    the entry of the task           {/}   the entry without its folders
 *   {.}   without its last extension      {//}  the folders of the entry, or `.`
 *   {#}   the number of the task          {/.}  {/} without its last extension
 *   {%}   the slot it runs in, from 1     {2} {2.} {2/} {2//} {2/.}  the same of one column; tabs separate columns
 * A placeholder without a value stays as it is: {2} of an entry with one column. Where an entry is several values
 * (`several` of a recipe), {} stands for all of them and a {2} without a value for nothing.
 *
 * In a word, the value replaces the placeholder. In a shell line, the value never becomes code: the line begins with
 * assignments, and the placeholder is replaced by a variable that is quoted for its place (shell-line.ts).
 */
import { badInput } from "../base/errors.js";
import { shellWord } from "../base/format.js";
import { type Bytes, outputPaths, PLACEHOLDER, type Recipe, type Several } from "./recipe.js";
import { quote } from "./shell-command-list.js";
import { findPlaceholders, type Quoting, type ShellPlaceholder } from "./shell-line.js";
import { checkedPath } from "./task-files.js";

/** What the placeholders of one task stand for. */
export interface TaskValues {
  readonly number: number;
  readonly entry?: Bytes | undefined;
  /** From 1. Absent if it is not known. */
  readonly slot?: number | undefined;
  readonly several?: Several | undefined;
}

const EACH_PLACEHOLDER = new RegExp(PLACEHOLDER, "g");
const PLACEHOLDER_HERE = new RegExp(PLACEHOLDER, "y");
const WHOLE_NUMBER = /^(0|-?[1-9]\d{0,17})$/;

/** Between the columns of an entry. */
export const COLUMN_SEPARATOR = "\t";

/** Bytes as text with one character per byte, so that they can be split and joined. */
const latin = (bytes: Bytes): string => Buffer.from(bytes).toString("latin1");

export function expandWords(argv: readonly Bytes[], values: TaskValues): readonly Bytes[] {
  const valuesFor = valuesOf(values);
  return argv.flatMap((word): readonly Bytes[] => {
    const text = latin(word);
    const [form] = PLACEHOLDER.exec(text) ?? [];
    if (form === undefined) return [word];
    const all = values.several === "repeated" ? (text.match(EACH_PLACEHOLDER) ?? []).find(isWhole) : undefined;
    const repeated = all === undefined ? undefined : valuesFor(all)?.map((_, at) => at);
    const expanded =
      form === text && values.several !== undefined
        ? (valuesFor(form) ?? [form])
        : (repeated ?? [undefined]).map((at) =>
            text.replace(EACH_PLACEHOLDER, (one) => {
              const found = valuesFor(one);
              return (at === undefined || !isWhole(one) ? found?.join(" ") : found?.[at]) ?? one;
            }),
          );
    return expanded.map((one) => Buffer.from(one, "latin1"));
  });
}

/** `{}` or a part of it, not of a column. */
const isWhole = (form: string): boolean => /^\{\D*\}$/.test(form) && columnOf(form) === 1;

/** Expands path patterns for one task, as of `--send {}`. Throws LABORO_BAD_INPUT for a path outside of the folder. */
export function expandPaths(patterns: readonly string[], values: TaskValues, what: string): string[] {
  return expandWords(patterns, { number: values.number, entry: values.entry }).map((bytes) => {
    const path = Buffer.from(bytes).toString();
    if (typeof bytes !== "string" && !Buffer.from(path).equals(bytes))
      throw badInput(`${what}: ${JSON.stringify(path)} is not UTF-8: rename the file`);
    return checkedPath(path.replace(/^(?:\.\/+)+/, "").replace(/(?<=.)\/+$/, ""), what);
  });
}

/** The line to run. Throws LABORO_BAD_INPUT if a placeholder is in a place where no value is safe. */
export function expandLine(line: Bytes, values: TaskValues): Bytes {
  const names = new Map<string, string>();
  const assignments: string[] = [];
  const text = replaceIn(latin(line), values, ({ text: form, quoting }, value, at) => {
    const key = `${form} ${at}`;
    let name = names.get(key);
    if (name === undefined) {
      name = `laboro_${names.size + 1}`;
      names.set(key, name);
      assignments.push(`${name}=${quote(Buffer.from(value, "latin1"), "entry")}`);
    }
    return VARIABLE[quoting](name);
  });
  return assignments.length === 0 ? line : Buffer.from(`${assignments.join(" ")}; ${text}`, "latin1");
}

/** The command of a task, as it could be typed in a shell. Throws like `expandLine`. */
export function taskCommand(recipe: Recipe, task: Omit<TaskValues, "several">): string {
  if (recipe.kind === "call") return shellJoin([recipe.service, ...(task.entry === undefined ? [] : [task.entry])]);
  const values = { ...task, several: recipe.several };
  if (recipe.kind === "script") return shellJoin([`script${recipe.type}`, ...expandWords(recipe.args ?? [], values)]);
  const { argv, shell, placeholders } = recipe;
  if (shell !== true) return shellJoin(placeholders === true ? expandWords(argv, values) : argv);
  const line = replaceIn(latin(argv.at(-1) ?? ""), values, ({ quoting }, value) => QUOTED[quoting](value));
  return Buffer.from(line, "latin1").toString();
}

const shellJoin = (words: readonly Bytes[]): string =>
  words.map((word) => shellWord(Buffer.from(word).toString())).join(" ");

const VARIABLE: Readonly<Record<Quoting, (name: string) => string>> = {
  bare: (name) => `"$${name}"`,
  single: (name) => `'"$${name}"'`,
  double: (name) => `\${${name}}`,
  heredoc: (name) => `\${${name}}`,
};

const QUOTED: Readonly<Record<Quoting, (value: string) => string>> = {
  bare: shellWord,
  single: (value) => value.replaceAll("'", "'\\''"),
  double: (value) => value.replace(/[\\"$`]/g, "\\$&"),
  heredoc: (value) => value.replace(/[\\$`]/g, "\\$&"),
};

function replaceIn(
  line: string,
  values: TaskValues,
  replacement: (found: ShellPlaceholder, value: string, at: number) => string,
): string {
  const valuesFor = valuesOf(values);
  let text = "";
  let from = 0;
  for (const found of placeholdersIn(line)) {
    const all = valuesFor(found.text);
    if (all === undefined) continue;
    refuseProblem(found, all);
    const replaced = all.map((value, at) => replacement(found, value, at)).join(" ");
    text += line.slice(from, found.at) + (found.escaped ? "\\" : "") + replaced;
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
  return `where the shell may evaluate it as arithmetic, which takes whole numbers only, not ${JSON.stringify(value)}; use [ … ] or expr, or quote the word if it names no array`;
}

function refuseProblem(found: ShellPlaceholder, values: readonly string[]): void {
  const { text, at } = found;
  for (const value of values) {
    const problem = problemWith(found, value);
    if (problem !== undefined) throw badInput(`${text} at character ${at + 1} of the line stands ${problem}`);
  }
}

/** The values of a placeholder: several if an entry has several. Undefined if the placeholder stays as it is. */
function valuesOf({ number, entry, slot, several }: TaskValues): (form: string) => readonly string[] | undefined {
  const whole = entry === undefined ? undefined : latin(entry);
  const columns = whole?.split(COLUMN_SEPARATOR);
  return (form) => {
    const [, counter, column, part = ""] = PLACEHOLDER.exec(form) ?? [];
    if (counter === "#") return [String(number)];
    if (counter === "%") return slot === undefined ? undefined : [String(slot)];
    const partOf = (value: string): string => PARTS[part]?.(value) ?? value;
    if (column === undefined && several !== undefined) return columns?.map(partOf);
    const value = column === undefined ? whole : columns?.[Number(column) - 1];
    if (value === undefined) return several === undefined || columns === undefined ? undefined : [];
    return [partOf(value)];
  };
}

const PARTS: Readonly<Record<string, (value: string) => string>> = {
  ".": (value) => withoutExtension(value),
  "/": (value) => baseName(value),
  "//": (value) => folderOf(value),
  "/.": (value) => withoutExtension(baseName(value)),
};

const baseName = (path: string): string => path.slice(path.lastIndexOf("/") + 1);

/** Like dirname(1). */
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
  const texts = (shell ? argv.slice(-1) : argv).map(latin);
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
    const forms = [...placeholderForms(argv, shell), ...placeholderForms(outputPaths(recipe), false)];
    const missing = forms.find((form) => columnOf(form) === 1);
    if (missing !== undefined) throw badInput(`${missing} stands for an entry, and the job has no entries`);
  }
  const line = argv.at(-1);
  if (shell && line !== undefined) checkLine(latin(line), known ?? [], recipe.several);
}

function checkLine(line: string, entries: readonly Bytes[], several: Several | undefined): void {
  for (const found of placeholdersIn(line)) {
    if (found.refusal === undefined && !found.numeric) continue;
    const tasks = columnOf(found.text) === 0 ? [{ slot: 1 }] : entries.map((entry) => ({ entry }));
    for (const task of tasks) {
      refuseProblem(found, valuesOf({ number: 1, several, ...task })(found.text) ?? []);
    }
  }
}
