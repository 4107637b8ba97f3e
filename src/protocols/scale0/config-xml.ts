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
 */
import { type Config, type ConfigValue, isConfig, isWellFormed, plainValue } from "../../base/config-value.js";

const INDENT = "  ";

type Attributes = Readonly<Record<string, string>>;

export function writeXml(config: Config, version: number): string {
  return `${element("config", membersOf(config), { version: String(version) }).join("\n")}\n`;
}

/** The lines of an element. `content` is text, or the lines of its children. */
function element(name: string, content: string | readonly string[], given: Attributes): string[] {
  const tag = isElementName(name) ? name : "setting";
  const attributes = Object.entries({ ...nameAttribute(name), ...given });
  const open = `<${tag}${attributes.map(([key, value]) => ` ${key}="${entities(value)}"`).join("")}`;
  if (content.length === 0) return [`${open}/>`];
  if (typeof content === "string") return [`${open}>${entities(content)}</${tag}>`];
  return [`${open}>`, ...content.map((line) => INDENT + line), `</${tag}>`];
}

function nameAttribute(name: string): Attributes {
  if (isElementName(name)) return {};
  return isPlain(name) && !/^\s|[\t\n]|\s$/.test(name) ? { name } : { "escaped-name": escapeText(name) };
}

const membersOf = (config: Config): string[] => Object.entries(config).flatMap(([name, value]) => linesOf(name, value));

function linesOf(name: string, value: ConfigValue): string[] {
  if (!Array.isArray(value)) return valueLines(name, value, {});
  const items = value as readonly ConfigValue[];
  const [only] = items;
  if (only === undefined) return element(name, "", { type: "list" });
  return items.length === 1
    ? valueLines(name, only, { list: "true" })
    : items.flatMap((one) => valueLines(name, one, {}));
}

/** One value in one element. */
function valueLines(name: string, value: ConfigValue, attributes: Attributes): string[] {
  if (Array.isArray(value)) {
    const items = (value as readonly ConfigValue[]).flatMap((item) => valueLines("item", item, {}));
    return element(name, items, { ...attributes, type: "list" });
  }
  if (isConfig(value)) {
    const members = membersOf(value);
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

/** Survives XML as it is: no control characters or ends of lines that a reader may change, and no half of a character. */
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

const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&apos;",
};

const entities = (text: string): string => text.replaceAll(/[&<>"']/g, (sign) => ENTITIES[sign] ?? sign);
