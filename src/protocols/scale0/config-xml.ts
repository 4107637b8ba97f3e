/**
 * A config as XML: `<config version="3">` with an element for each name.
 *
 *   text          <greeting>hello</greeting>
 *   number…       <slots>4</slots>; true, false and null the same way. Text that reads like one of these has type="string"
 *   names         <environment><LANG>C</LANG></environment>; none at all: type="object"
 *   list          one element an item, all of the same name. One item alone has list="true"; none: type="list". A list in a
 *                 list: type="list", with an <item> for each of its own
 *   odd names     <setting name="2nd one">, where XML has no element of that name
 *   odd text      escaped="true": it is what stands between the quotes of a JSON string; for a name, escaped-name="…"
 *
 * What is read may come from anyone: a document type, entities beyond the five of XML, depth and size are refused.
 */
import { XMLBuilder, XMLParser, XMLValidator } from "fast-xml-parser";
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

const TEXT = "#text";
const CDATA = "#cdata";
const ATTRIBUTES = ":@";
/** What the library puts before an attribute's name. */
const AT = "@_";

type Attributes = Readonly<Record<string, string>>;
/** One node, in order: an element's name with its children, and its attributes. */
type Node = Readonly<Record<string, unknown>>;

const builder = new XMLBuilder({
  preserveOrder: true,
  ignoreAttributes: false,
  format: true,
  suppressEmptyNode: true,
  suppressBooleanAttributes: false,
});

const parser = new XMLParser({
  preserveOrder: true,
  ignoreAttributes: false,
  parseTagValue: false,
  trimValues: false,
  processEntities: false,
  cdataPropName: CDATA,
  ignoreDeclaration: true,
  ignorePiTags: true,
  // The element itself, and <item>s inside lists.
  maxNestedTags: CONFIG_DEPTH + 1,
  strictReservedNames: true,
});

export function writeXml(config: Config, version: number): string {
  const root = element("config", membersOf(config), { version: String(version) });
  const text: string = builder.build([root]);
  return `${text.trim()}\n`;
}

function element(name: string, children: readonly Node[], given: Attributes): Node {
  const attributes = Object.entries({ ...namedBy(name), ...given });
  const node = { [isElementName(name) ? name : "setting"]: children };
  if (attributes.length === 0) return node;
  return { ...node, [ATTRIBUTES]: Object.fromEntries(attributes.map(([at, to]) => [AT + at, to])) };
}

function namedBy(name: string): Attributes {
  if (isElementName(name)) return {};
  return isPlain(name) && !/^\s|[\t\n]|\s$/.test(name) ? { name } : { "escaped-name": escapeText(name) };
}

const membersOf = (config: Config): Node[] => Object.entries(config).flatMap(([name, value]) => nodesOf(name, value));

function nodesOf(name: string, value: ConfigValue): Node[] {
  if (!Array.isArray(value)) return [nodeOf(name, value, {})];
  const items = value as readonly ConfigValue[];
  const [only] = items;
  if (only === undefined) return [element(name, [], { type: "list" })];
  return items.length === 1 ? [nodeOf(name, only, { list: "true" })] : items.map((item) => nodeOf(name, item, {}));
}

/** One value in one element. */
function nodeOf(name: string, value: ConfigValue, attributes: Attributes): Node {
  if (Array.isArray(value)) {
    const items = (value as readonly ConfigValue[]).map((item) => nodeOf("item", item, {}));
    return element(name, items, { ...attributes, type: "list" });
  }
  if (isConfig(value)) {
    const members = membersOf(value);
    return element(name, members, members.length === 0 ? { ...attributes, type: "object" } : attributes);
  }
  if (typeof value !== "string") return element(name, [{ [TEXT]: String(value) }], attributes);
  if (value === "") return element(name, [], attributes);
  const typed = plainValue(value) === undefined ? attributes : { ...attributes, type: "string" };
  return isPlain(value)
    ? element(name, [{ [TEXT]: value }], typed)
    : element(name, [{ [TEXT]: escapeText(value) }], { ...typed, escaped: "true" });
}

/** The library has words that it will not have as names, and XML some that begin with itself. */
const isElementName = (name: string): boolean =>
  /^[A-Za-z_][A-Za-z0-9_.-]{0,255}$/.test(name) && !/^xml|^prototype$/i.test(name) && !(name in Object.prototype);

/** Survives XML as it is: no control characters, no ends of lines that a reader may change, nothing that is half a character. */
const isPlain = (text: string): boolean =>
  // biome-ignore lint/suspicious/noControlCharactersInRegex: it is about these
  !/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\ufffe\uffff]|^[ \t\n]*$/.test(text) && isWellFormed(text);

const escapeText = (text: string): string =>
  JSON.stringify(text)
    .slice(1, -1)
    .replaceAll(/[\s\u007f-\u009f\ufffe\uffff]/g, (sign) =>
      sign === " " ? sign : `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`,
    )
    .replace(/^ | $/g, "\\u0020");

export interface ParsedXml {
  readonly config: Config;
  /** As the root element has it, where it does. */
  readonly version?: number;
}

/** Throws LABORO_BAD_INPUT. */
export function readXml(text: string): ParsedXml {
  checkSize(text);
  if (/<!(?:DOCTYPE|ENTITY)/i.test(text)) throw badConfig("XML with a document type or entities of its own is refused");
  const valid = XMLValidator.validate(text, { allowBooleanAttributes: false });
  if (valid !== true) throw badConfig(`line ${valid.err.line} of the XML: ${valid.err.msg}`);
  const roots = elementsIn(parsed(text));
  const [root] = roots;
  if (root === undefined || roots.length > 1 || root.name !== "config")
    throw badConfig("expected one element <config>");
  const config = readConfig(objectOf(root));
  const { version } = root.attributes;
  return version !== undefined && /^\d{1,15}$/.test(version) ? { config, version: Number(version) } : { config };
}

function parsed(text: string): readonly Node[] {
  try {
    return parser.parse(text) as readonly Node[];
  } catch (cause) {
    throw badConfig(`XML: ${cause instanceof Error ? cause.message : String(cause)}`, cause);
  }
}

interface Element {
  readonly name: string;
  readonly attributes: Attributes;
  readonly children: readonly Element[];
  /** Without that of its children. */
  readonly text: string;
}

function elementsIn(nodes: readonly Node[]): Element[] {
  const found: Element[] = [];
  for (const node of nodes) {
    for (const [name, children] of Object.entries(node)) {
      if (name === TEXT || name === CDATA || name === ATTRIBUTES) continue;
      const inside = children as readonly Node[];
      found.push({ name, attributes: attributesOf(node), children: elementsIn(inside), text: textIn(inside) });
    }
  }
  return found;
}

function attributesOf(node: Node): Attributes {
  const given = Object.entries((node[ATTRIBUTES] ?? {}) as Attributes);
  return Object.fromEntries(given.map(([name, value]) => [name.slice(AT.length), decoded(String(value))]));
}

function textIn(nodes: readonly Node[]): string {
  const raw = (inside: unknown): string => (inside as readonly Node[]).map((node) => String(node[TEXT] ?? "")).join("");
  return nodes.map((node) => (CDATA in node ? raw(node[CDATA]) : decoded(String(node[TEXT] ?? "")))).join("");
}

const ENTITIES: Readonly<Record<string, string>> = { lt: "<", gt: ">", amp: "&", quot: '"', apos: "'" };

function decoded(text: string): string {
  return text.replaceAll(/&([^;&\s]{0,12};?)/g, (_, given: string) => {
    const name = given.endsWith(";") ? given.slice(0, -1) : "";
    const [, hex, decimal] = /^#(?:x([0-9a-fA-F]{1,6})|(\d{1,7}))$/.exec(name) ?? [];
    const point = hex === undefined ? Number(decimal) : Number.parseInt(hex, 16);
    const sign = point > 0 && point <= 0x10ffff ? String.fromCodePoint(point) : ENTITIES[name];
    if (sign === undefined || !isWellFormed(sign)) throw badConfig(`XML: no such entity: &${given}`);
    return sign;
  });
}

function objectOf({ children, text }: Element): Config {
  if (text.trim() !== "") throw badConfig(`XML: text between elements: ${text.trim().slice(0, 40)}`);
  const values = new Map<string, { items: ConfigValue[]; list: boolean }>();
  for (const child of children) {
    const name = nameOf(child);
    const known = values.get(name) ?? { items: [], list: false };
    // Repeated, or marked: a list.
    known.list ||= known.items.length > 0 || child.attributes.list === "true";
    known.items.push(contentOf(child));
    values.set(name, known);
  }
  return Object.fromEntries(
    Array.from(values, ([name, { items, list }]) => [name, list ? items : (items[0] as ConfigValue)]),
  );
}

function nameOf({ name, attributes }: Element): string {
  const { name: given, "escaped-name": escaped } = attributes;
  return name !== "setting" ? name : escaped === undefined ? (given ?? name) : unescapeText(escaped);
}

function contentOf(element: Element): ConfigValue {
  const { attributes, children, text } = element;
  if (attributes.type === "list") {
    objectOf({ ...element, children: [] });
    return children.map(contentOf);
  }
  if (attributes.type === "object" || children.length > 0) return objectOf(element);
  const own = attributes.escaped === "true" ? unescapeText(text) : text;
  const plain = attributes.type === "string" ? undefined : plainValue(own);
  return plain === undefined ? own : plain;
}

function unescapeText(text: string): string {
  try {
    const value: unknown = JSON.parse(`"${text}"`);
    if (typeof value === "string") return value;
  } catch {
    // Said below, with what it is.
  }
  throw badConfig(`XML: escaped text that JSON could not have: ${text.slice(0, 40)}`);
}
