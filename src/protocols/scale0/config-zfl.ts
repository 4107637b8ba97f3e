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
import { type Config, type ConfigValue, isConfig, isWellFormed, plainValue } from "../../base/config-value.js";

const INDENT = "    ";
const ITEM = "$item";
const NOTHING = "[]";
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
