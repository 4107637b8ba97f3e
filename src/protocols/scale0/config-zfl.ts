/**
 * A config as ZFL, the ZeroMQ property language: `name = value` lines, four blanks a level, `#` comments.
 *
 *   text          greeting = hello, or quoted: "two words", 'say "hi"'. A reader that knows no more than the language
 *                 itself gets the same, except where it has no way to say it: ends of lines and both kinds of quotes are
 *                 \-escaped as in JSON, and only in double quotes that have such an escape
 *   number…       slots = 4; true, false and null the same way. Text that reads like one of these is quoted
 *   names         a line with the name alone, the rest below it, indented
 *   list          one line (or block) an item, all of the same name. One item alone has a comment above it that says so; a list in a
 *                 list: the name, and below it a `$item` for each; none: name = []
 *   odd names     in quotes
 */
import {
  badConfig,
  CONFIG_DEPTH,
  type Config,
  type ConfigValue,
  checkSize,
  isConfig,
  isWellFormed,
  plainValue,
  readConfig,
} from "../../base/config-value.js";

const INDENT = "    ";
const ITEM = "$item";
const NOTHING = "[]";
/** Only this reader gives it a meaning: to all others it is a comment. */
const LIST_OF_ONE = "# a list of one";

export function writeZfl(config: Config, version: number): string {
  return `${[`# config version ${version}`, ...membersOf(config, 0)].join("\n")}\n`;
}

const membersOf = (config: Config, depth: number): string[] =>
  Object.entries(config).flatMap(([name, value]) => linesOf(isPlainName(name) ? name : quoted(name), value, depth));

function linesOf(name: string, value: ConfigValue, depth: number): string[] {
  const items = Array.isArray(value) ? (value as readonly ConfigValue[]) : [];
  const [only] = items;
  if (items.length > 1) return items.flatMap((item) => blockOf(name, item, depth));
  return only === undefined || Array.isArray(only)
    ? blockOf(name, value, depth)
    : [INDENT.repeat(depth) + LIST_OF_ONE, ...blockOf(name, only, depth)];
}

/** One value in one property. */
function blockOf(name: string, value: ConfigValue, depth: number): string[] {
  const line = INDENT.repeat(depth) + name;
  if (Array.isArray(value)) {
    const items = value as readonly ConfigValue[];
    if (items.length === 0) return [`${line} = ${NOTHING}`];
    return [line, ...items.flatMap((item) => blockOf(ITEM, item, depth + 1))];
  }
  if (isConfig(value)) return [line, ...membersOf(value, depth + 1)];
  const text = typeof value !== "string" || isPlainText(value) ? String(value) : quoted(value);
  return [`${line} = ${text}`];
}

const isPlainName = (name: string): boolean => /^[A-Za-z0-9_@.&+/-][A-Za-z0-9$_@.&+/-]*$/.test(name);

const isPlainText = (text: string): boolean =>
  /^[A-Za-z0-9$_@.&+/:*,;?!%~^(){}<>|=-]+$/.test(text) && plainValue(text) === undefined;

function quoted(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: it is about these
  const literal = !/[\u0000-\u001f\u007f-\u009f\u2028\u2029]/.test(text) && isWellFormed(text);
  if (literal && !/["\\]/.test(text)) return `"${text}"`;
  if (literal && !text.includes("'")) return `'${text}'`;
  const escaped = (sign: string): string => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`;
  const inside = JSON.stringify(text).slice(1, -1);
  // No quote inside, not even an escaped one: a reader that knows no escapes would refuse the whole file.
  const plain = inside.replaceAll(/\\(.)/g, (pair, sign: string) => (sign === '"' ? escaped(sign) : pair));
  return `"${plain.replaceAll(/[\u007f-\u009f\u2028\u2029]/g, escaped)}"`;
}

interface Property {
  readonly name: string;
  /** A `$item` in quotes is a name like any other. */
  readonly isItem: boolean;
  /** A comment above it says that it is a list, even alone. */
  readonly isList: boolean;
  readonly value: ConfigValue | undefined;
  readonly children: Property[];
  readonly line: number;
}

/** Throws LABORO_BAD_INPUT with the number of the line. */
export function readZfl(text: string): Config {
  checkSize(text);
  const root: Property[] = [];
  const open: Property[][] = [root];
  let above = "";
  for (const [i, line] of text.split(/\r\n|\n|\r/).entries()) {
    const indent = /^ */.exec(line)?.[0].length ?? 0;
    const rest = line.slice(indent);
    const listed = above === " ".repeat(indent) + LIST_OF_ONE;
    above = line;
    if (rest === "" || rest.startsWith("#")) continue;
    const depth = indent / INDENT.length;
    const siblings = open[depth];
    if (siblings === undefined) throw zflError(i, `${indent} blanks do not belong to the line above; a level has four`);
    if (depth > CONFIG_DEPTH) throw zflError(i, `more than ${CONFIG_DEPTH} levels`);
    const property = readLine(rest, i, listed);
    siblings.push(property);
    open.length = depth + 1;
    if (property.value === undefined) open.push(property.children);
  }
  return readConfig(objectOf(root));
}

const LINE = /^(?<name>"(?:[^"\\]|\\.)*"|'[^']*'|[^\s="'#]+)[ \t]*(?:=[ \t]*(?<value>.*))?$/s;

function readLine(text: string, line: number, listed: boolean): Property {
  const [body, comment] = splitComment(text);
  const found = LINE.exec(body.trimEnd())?.groups;
  if (found?.name === undefined) throw zflError(line, `expected NAME or NAME = VALUE, got ${text.slice(0, 40)}`);
  if (comment && body === "") throw zflError(line, "no name");
  const isQuoted = /^["']/.test(found.name);
  const name = isQuoted ? unquoted(found.name, line) : found.name;
  const value = found.value === undefined ? undefined : plainOrQuoted(found.value, line);
  return { name, isItem: !isQuoted && name === ITEM, isList: listed, value, children: [], line };
}

/** A `#` begins a comment, unless it stands in quotes. */
function splitComment(text: string): readonly [body: string, comment: boolean] {
  let quote = "";
  for (let at = 0; at < text.length; at++) {
    const sign = text[at] as string;
    if (quote !== "") {
      if (sign === "\\" && quote === '"') at++;
      else if (sign === quote) quote = "";
    } else if ((sign === '"' || sign === "'") && /(?:^|[=\s])$/.test(text.slice(0, at))) quote = sign;
    else if (sign === "#") return [text.slice(0, at), true];
  }
  return [text, false];
}

function plainOrQuoted(text: string, line: number): ConfigValue {
  if (/^["']/.test(text)) return unquoted(text, line);
  if (text === NOTHING) return [];
  const plain = plainValue(text);
  return plain === undefined ? text : plain;
}

/** Backslashes mean something in double quotes only, and there only where JSON would have them so. */
function unquoted(text: string, line: number): string {
  const quote = text[0];
  const inside = text.slice(1, -1);
  if (text.length < 2 || text.at(-1) !== quote) throw zflError(line, `a quote that does not end: ${text.slice(0, 40)}`);
  if (quote === "'" || !inside.includes("\\")) {
    if (!inside.includes(quote ?? "")) return inside;
    throw zflError(line, `quotes in quotes: ${text.slice(0, 40)}`);
  }
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === "string") return value;
  } catch {
    // Said below, with the line.
  }
  throw zflError(line, `in double quotes a \\ is that of JSON: ${text.slice(0, 40)}`);
}

function objectOf(properties: readonly Property[]): Config {
  const values = new Map<string, { readonly items: ConfigValue[]; readonly list: boolean }>();
  for (const property of properties) {
    if (property.isItem) throw zflError(property.line, `${ITEM} stands beside names`);
    const { items = [], list = property.isList } = values.get(property.name) ?? {};
    items.push(contentOf(property));
    values.set(property.name, { items, list: list || items.length > 1 });
  }
  return Object.fromEntries(
    Array.from(values, ([name, { items, list }]) => [name, list ? items : (items[0] as ConfigValue)]),
  );
}

function contentOf({ value, children }: Property): ConfigValue {
  if (value !== undefined) return value;
  return children[0]?.isItem === true && children.every(({ isItem }) => isItem)
    ? children.map(contentOf)
    : objectOf(children);
}

const zflError = (line: number, why: string) => badConfig(`line ${line + 1} of the ZFL: ${why}`);
