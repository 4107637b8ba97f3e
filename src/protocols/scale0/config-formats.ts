/**
 * The formats in which a worker may ask for its config. All are written; only JSON is read.
 *
 * XML: `<config version="3">` with an element for each name.
 *   number…     <slots>4</slots>; true, false and null the same way. Text that looks like these has type="string"
 *   object      <environment><LANG>C</LANG></environment>; an empty one has type="object"
 *   list        an element for each item, all of one name. A single item has list="true", an empty list type="list".
 *               A list in a list has type="list" and an <item> for each of its own
 *   odd name    <setting name="2nd one">, where XML has no element of that name
 *   odd text    escaped="true": the inside of a JSON string; for a name, escaped-name="…"
 *
 * ZFL, the ZeroMQ property language: `name = value` lines, four blanks a level, `#` comments.
 *   text        greeting = hello, or quoted: "two words", 'say "hi"'. Line ends and texts with both kinds of quotes are
 *               \-escaped as in JSON, in double quotes: the language itself has no way to write them
 *   number…     slots = 4; true, false and null the same way. Text that looks like one of these is quoted
 *   object      a line with the name alone, its members below it, indented
 *   list        a line or block for each item, all of one name. A single item has a comment above it. A list in a list
 *               is a block with a `$item` for each; an empty list is name = []
 *   odd name    in quotes
 */
import {
  badConfig,
  type Config,
  type ConfigValue,
  checkSize,
  isConfig,
  plainValue,
  readConfig,
} from "../../model/worker-settings.js";

export const CONFIG_TYPES = ["JSON", "XML", "ZFL"] as const;
export type ConfigType = (typeof CONFIG_TYPES)[number];

/** Also in lower case. */
export const configTypeOf = (name: string): ConfigType | undefined =>
  CONFIG_TYPES.find((type) => type === name.toUpperCase());

export function writeConfig(type: ConfigType, config: Config, version: number): string {
  if (type === "JSON") return `${JSON.stringify(config, null, 2)}\n`;
  const lines =
    type === "XML"
      ? element("config", xmlMembers(config), { version: String(version) })
      : [`# config version ${version}`, ...zflMembers(config, 0)];
  return `${lines.join("\n")}\n`;
}

/** Reads JSON. Throws LABORO_BAD_INPUT. */
export function parseConfig(text: string): Config {
  checkSize(text);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw badConfig(`JSON: ${cause instanceof Error ? cause.message : String(cause)}`, cause);
  }
  return readConfig(value);
}

// XML

type Attributes = Readonly<Record<string, string>>;

/** The lines of an element. `content` is text, or the lines of its children. */
function element(name: string, content: string | readonly string[], given: Attributes): string[] {
  const tag = isElementName(name) ? name : "setting";
  const attributes = Object.entries({ ...nameAttribute(name), ...given });
  const open = `<${tag}${attributes.map(([key, value]) => ` ${key}="${entities(value)}"`).join("")}`;
  if (content.length === 0) return [`${open}/>`];
  if (typeof content === "string") return [`${open}>${entities(content)}</${tag}>`];
  return [`${open}>`, ...content.map((line) => `  ${line}`), `</${tag}>`];
}

function nameAttribute(name: string): Attributes {
  if (isElementName(name)) return {};
  return isPlain(name) && !/^\s|[\t\n]|\s$/.test(name) ? { name } : { "escaped-name": escapeText(name) };
}

const xmlMembers = (config: Config): string[] =>
  Object.entries(config).flatMap(([name, value]) => xmlLines(name, value));

function xmlLines(name: string, value: ConfigValue): string[] {
  if (!Array.isArray(value)) return xmlValue(name, value, {});
  const items = value as readonly ConfigValue[];
  const [only] = items;
  if (only === undefined) return element(name, "", { type: "list" });
  return items.length === 1 ? xmlValue(name, only, { list: "true" }) : items.flatMap((one) => xmlValue(name, one, {}));
}

/** One value in one element. */
function xmlValue(name: string, value: ConfigValue, attributes: Attributes): string[] {
  if (Array.isArray(value)) {
    const items = (value as readonly ConfigValue[]).flatMap((item) => xmlValue("item", item, {}));
    return element(name, items, { ...attributes, type: "list" });
  }
  if (isConfig(value)) {
    const members = xmlMembers(value);
    return element(name, members, members.length === 0 ? { ...attributes, type: "object" } : attributes);
  }
  if (typeof value !== "string") return element(name, String(value), attributes);
  const typed = plainValue(value) === undefined ? attributes : { ...attributes, type: "string" };
  return value === "" || isPlain(value)
    ? element(name, value, typed)
    : element(name, escapeText(value), { ...typed, escaped: "true" });
}

/** Names that begin with xml belong to XML, and some parsers refuse names that every JavaScript object has. */
const isElementName = (name: string): boolean =>
  /^[A-Za-z_][A-Za-z0-9_.-]{0,255}$/.test(name) && !/^xml|^prototype$/i.test(name) && !(name in Object.prototype);

/** Unchanged by XML readers: no control characters or line ends, and no lone surrogates. */
const isPlain = (text: string): boolean =>
  // biome-ignore lint/suspicious/noControlCharactersInRegex: it is about these
  !/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\ufffe\uffff]|^[ \t\n]*$/.test(text) && text.isWellFormed();

const escapeText = (text: string): string =>
  JSON.stringify(text)
    .slice(1, -1)
    .replaceAll(/[\s\u007f-\u009f\ufffe\uffff]/g, (sign) => (sign === " " ? sign : unicodeEscape(sign)))
    .replace(/^ | $/g, "\\u0020");

const ENTITIES: Readonly<Record<string, string>> = { "&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos" };

const entities = (text: string): string => text.replaceAll(/[&<>"']/g, (sign) => `&${ENTITIES[sign]};`);

// ZFL

const indent = (depth: number): string => "    ".repeat(depth);

const zflMembers = (config: Config, depth: number): string[] =>
  Object.entries(config).flatMap(([name, value]) => zflLines(isPlainName(name) ? name : quoted(name), value, depth));

function zflLines(name: string, value: ConfigValue, depth: number): string[] {
  const items = Array.isArray(value) ? (value as readonly ConfigValue[]) : [];
  const [only] = items;
  if (items.length > 1) return items.flatMap((item) => zflBlock(name, item, depth));
  return only === undefined || Array.isArray(only)
    ? zflBlock(name, value, depth)
    : [`${indent(depth)}# a list of one`, ...zflBlock(name, only, depth)];
}

/** One value in one property. */
function zflBlock(name: string, value: ConfigValue, depth: number): string[] {
  const line = indent(depth) + name;
  if (Array.isArray(value)) {
    const items = value as readonly ConfigValue[];
    if (items.length === 0) return [`${line} = []`];
    return [line, ...items.flatMap((item) => zflBlock("$item", item, depth + 1))];
  }
  if (isConfig(value)) return [line, ...zflMembers(value, depth + 1)];
  const text = typeof value !== "string" || isPlainText(value) ? String(value) : quoted(value);
  return [`${line} = ${text}`];
}

const isPlainName = (name: string): boolean => /^[A-Za-z0-9_@.&+/-][A-Za-z0-9$_@.&+/-]*$/.test(name);

const isPlainText = (text: string): boolean =>
  /^[A-Za-z0-9$_@.&+/:*,;?!%~^(){}<>|=-]+$/.test(text) && plainValue(text) === undefined;

function quoted(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: it is about these
  const literal = !/[\u0000-\u001f\u007f-\u009f\u2028\u2029]/.test(text) && text.isWellFormed();
  if (literal && !/["\\]/.test(text)) return `"${text}"`;
  if (literal && !text.includes("'")) return `'${text}'`;
  const inside = JSON.stringify(text).slice(1, -1);
  // Not even an escaped quote, because a reader without escapes would reject the whole file.
  const plain = inside.replaceAll(/\\(.)/g, (pair, sign: string) => (sign === '"' ? unicodeEscape(sign) : pair));
  return `"${plain.replaceAll(/[\u007f-\u009f\u2028\u2029]/g, unicodeEscape)}"`;
}

const unicodeEscape = (sign: string): string => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`;
