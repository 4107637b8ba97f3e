// Brings docs/reference/api.md and docs/reference/json.md up to the operations of dist/: the table of one, the members of the other.
// What was written by hand beside a member stays.
import { readFileSync, writeFileSync } from "node:fs";

const { OPERATIONS } = await import(new URL("../dist/broker/operations/index.js", import.meta.url).href);
const page = (name) => new URL(`../docs/reference/${name}.md`, import.meta.url);
/** Shown once, under another operation. */
const ELSEWHERE = ["jobs jobs", "task result", "task earlierAttempts", "overview status", "overview recentEvents"];

const api = readFileSync(page("api"), "utf8");
const rows = Object.values(OPERATIONS).map(
  ({ name, method, path, role, summary }) => `| \`${name}\` | \`${method} ${path}\` | ${role} | ${summary} |\n`,
);
const tableOfOperations = /(^\| `\w+` \| `(?:GET|POST|DELETE) [^`]+` \| \w+ \| .+ \|\n)+/m;
writeFileSync(
  page("api"),
  api.replace(tableOfOperations, () => rows.join("")),
);

const [top, ...sections] = readFileSync(page("json"), "utf8").split(/^(?=## `)/m);
const written = new Map(sections.map((section) => [/^## `(\w+)`/.exec(section)?.[1], section]));
writeFileSync(page("json"), [top, ...Object.values(OPERATIONS).map(sectionOf)].join(""));

function sectionOf({ name, output }) {
  const before = written.get(name) ?? `## \`${name}\`\n\n`;
  const known = new Map(Array.from(before.matchAll(/^\| `([\w.[\]*]+)` \|.*$/gm), ([row, member]) => [member, row]));
  const members = membersOf(name, output.json());
  if (members.length === 0) return before.includes("Nothing") ? before : `## \`${name}\`\n\nNothing: \`{}\`.\n\n`;
  const words =
    before
      .slice(before.indexOf("\n") + 1)
      .split(/^\|/m, 1)[0]
      ?.trim() ?? "";
  const after = before.slice(before.lastIndexOf("|\n") + 2).trim();
  const table = members.map(([member, kind, text]) => known.get(member) ?? `| \`${member}\` | ${kind} | ${text} |`);
  const parts = [`## \`${name}\``, words, ["| member | is | |", "|---|---|---|", ...table].join("\n")];
  if (known.size > 0) parts.push(after);
  return `${parts.filter((part) => part !== "").join("\n\n")}\n\n`;
}

function membersOf(operation, { properties = {}, required = [] }, before = "") {
  return Object.entries(properties).flatMap(([name, member]) => {
    const path = before + name;
    const absent = required.includes(name) ? "" : ", may be absent";
    const own = [path, kindOf(member) + absent, member.description ?? ""];
    const inside = member.items ?? member;
    const isRange = Object.keys(inside.properties ?? {}).join() === "first,last";
    if (isRange || ELSEWHERE.includes(`${operation} ${path}`)) return [own];
    return [own, ...membersOf(operation, inside, member.items === undefined ? `${path}.` : `${path}[].`)];
  });
}

function kindOf({ type, enum: values, items, additionalProperties, anyOf }) {
  if (values !== undefined) return values.join(", ");
  if (anyOf !== undefined) return "bytes";
  if (type === "array") return items?.properties === undefined ? `list of ${kindOf(items ?? {})}s` : "list";
  if (type === "object") return typeof additionalProperties === "object" ? "values by name" : "object";
  return { string: "text", integer: "whole number", number: "number", boolean: "true or false" }[type] ?? "any value";
}
