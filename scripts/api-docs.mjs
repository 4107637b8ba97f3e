// Writes the table of operations into docs/reference/api.md and the members of all answers into docs/reference/json.md,
// from the operations of dist/. With --check it changes nothing, and fails where they differ.
import { readFileSync, writeFileSync } from "node:fs";

const { OPERATIONS } = await import(new URL("../dist/broker/operations/index.js", import.meta.url).href);
const operations = Object.values(OPERATIONS);
const BEGIN_OF_JSON = `## \`${operations[0].name}\``;
const NOTES = { request: "Over HTTP the body of the response is the answer itself." };
/** What the page has instead of the kind in the schema. */
const KINDS = { "events events[].kind": "one of the [events](api.md#events)" };
/** An object with fewer members is printed again. */
const MIN_SHARED = 3;

const SIMPLE = {
  string: "text",
  integer: "whole number",
  number: "number",
  boolean: "true or false",
  object: "object",
};
const MANY = { text: "texts", "whole number": "whole numbers", number: "numbers", "any value": "values" };

const answers = operations.map(({ name, output }) => ({ name, schema: output.json() }));
/** Objects that are printed as a whole: the answers themselves, and the items of their lists. */
const printed = answers.flatMap(({ name, schema }) => [
  { name, of: "", properties: propertiesOf(schema) },
  ...Object.entries(schema.properties ?? {}).map(([member, { items }]) => ({
    name,
    of: member,
    properties: propertiesOf(items ?? {}),
  })),
]);

write("api", (text) => {
  const tableOfOperations = /(^\| `\w+` \| `(?:GET|POST|DELETE) [^`]+` \| \w+ \| .+ \|\n)+/m;
  const row = ({ name, method, path, role, summary }) =>
    `| \`${name}\` | \`${method} ${path}\` | ${role} | ${summary} |\n`;
  return text.replace(tableOfOperations, () => operations.map(row).join(""));
});
write("json", (text) => text.slice(0, text.indexOf(BEGIN_OF_JSON)) + answers.map(sectionOf).join("\n"));

function write(name, change) {
  const file = new URL(`../docs/reference/${name}.md`, import.meta.url);
  const text = readFileSync(file, "utf8");
  const changed = change(text);
  if (changed === text) return;
  if (process.argv.includes("--check")) {
    console.error(`docs/reference/${name}.md is not up to date`);
    process.exitCode = 1;
  } else writeFileSync(file, changed);
}

function sectionOf({ name, schema }) {
  const rows = rowsOf(name, schema, "", [{ name, of: "" }]);
  const shared = rows.shared === undefined ? [] : [`As ${linkTo(rows.shared)}${rows.length > 0 ? ", and:" : "."}`];
  const table = ["| member | is | |", "|---|---|---|", ...rows.map((cells) => `| ${cells.join(" | ")} |`)].join("\n");
  const nothing = rows.length === 0 && shared.length === 0 ? ["Nothing: `{}`."] : [];
  const notes = name in NOTES ? [NOTES[name]] : [];
  const parts = [`## \`${name}\``, ...notes, ...shared, ...nothing, ...(rows.length > 0 ? [table] : [])];
  return `${parts.join("\n\n")}\n`;
}

/** A row for each member, and for the members of members, unless another section has them. */
function rowsOf(operation, schema, before, self) {
  const shared = sharedWith(propertiesOf(schema), self);
  const own = Object.entries(schema.properties ?? {}).filter(
    ([name]) => shared === undefined || !(name in shared.properties),
  );
  const rows = own.flatMap(([name, member]) => {
    const path = before + name;
    const inside = member.items ?? member;
    const below = isRange(inside)
      ? []
      : rowsOf(operation, inside, member.items === undefined ? `${path}.` : `${path}[].`, [
          ...self,
          { name: operation, of: path },
        ]);
    const absent = (schema.required ?? []).includes(name) ? "" : ", may be absent";
    const kind = KINDS[`${operation} ${path}`] ?? kindOf(member);
    const as = below.shared === undefined ? [] : [`as ${linkTo(below.shared)}${below.length > 0 ? ", and:" : ""}`];
    const text = [...(member.description === undefined ? [] : [linked(member.description)]), ...as].join("; ");
    return [[`\`${path}\``, kind + absent, text], ...below];
  });
  return Object.assign(rows, { shared });
}

/** The largest object of another place that has no other members than this one. Of equal ones only the first has its rows. */
function sharedWith(properties, self) {
  const place = ({ name, of }) => printed.findIndex((one) => one.name === name && one.of === of);
  const size = (one) => Object.keys(one.properties).length;
  const here = self.map(place);
  const order = (at) => (printed[at].of === "" ? 0 : printed.length) + at;
  const isShown = (one) =>
    size(one) < Object.keys(properties).length || here.at(-1) === -1 || order(place(one)) < order(here.at(-1));
  return printed
    .filter((one) => !here.includes(place(one)) && size(one) >= MIN_SHARED)
    .filter((one) => Object.entries(one.properties).every(([name, text]) => properties[name] === text) && isShown(one))
    .sort((a, b) => size(b) - size(a) || order(place(a)) - order(place(b)))[0];
}

function linkTo({ name, of }) {
  return `${of === "" ? "" : `\`${of}\` of `}[\`${name}\`](#${name.toLowerCase()})`;
}

function linked(text) {
  return text.replace(/docs\/reference\/(\S+\.md)/, "[$1]($1)");
}

/** Each member as text, by which two are compared. */
function propertiesOf({ properties = {}, required = [] }) {
  return Object.fromEntries(
    Object.entries(properties).map(([name, member]) => [name, `${required.includes(name)} ${JSON.stringify(member)}`]),
  );
}

function isRange({ properties }) {
  return Object.keys(properties ?? {}).join() === "first,last";
}

function kindOf({ type, enum: values, items, additionalProperties, anyOf, const: value }) {
  if (value !== undefined) return JSON.stringify(value);
  if (values !== undefined) return values.join(", ");
  if (anyOf?.some(({ properties }) => properties?.base64 !== undefined)) return "bytes";
  if (anyOf !== undefined) return anyOf.map(kindOf).join(" or ");
  if (type === "array" && isRange(items ?? {})) return "ranges";
  if (type === "array") return items?.properties === undefined ? `list of ${manyOf(items ?? {})}` : "list";
  if (type === "object" && typeof additionalProperties === "object") return `${manyOf(additionalProperties)} by name`;
  return SIMPLE[type] ?? "any value";
}

function manyOf(schema) {
  if (schema.anyOf !== undefined && kindOf(schema) !== "bytes") return schema.anyOf.map(manyOf).join(" or ");
  return MANY[kindOf(schema)] ?? kindOf(schema);
}
