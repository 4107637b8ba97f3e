// Builds the documentation site in site/: the pages of docs/ and the API of the package's entries. With --check it only
// reads the API. Whatever TypeDoc warns of is an error: a dead link, or a member without text.
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { Application, Comment, Converter, ReflectionKind } from "../test/node_modules/typedoc/dist/index.js";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const REPOSITORY = "https://github.com/laboro/laboro";
const checksOnly = process.argv.includes("--check");

/** The groups of pages in the order of the site. Pages that are not named follow the named ones. */
const GROUPS = [
  [
    "Guides",
    /^guide\/(?!from-|gnu-parallel)/,
    ["first-batch", "tour", "recipes", "many-machines", "ssh", "sdk", "services"],
  ],
  ["Coming from", /^guide\//, ["gnu-parallel", "from-slurm", "from-hyperqueue", "from-bullmq"]],
  [
    "Reference",
    /^reference\/(?!protocols\/|dispatch|store|own-protocol|dependencies)/,
    ["cli", "job-file", "worker", "api", "json"],
  ],
  ["Protocols", /^reference\/protocols\//, ["laboro"]],
  ["Inside", /./, ["architecture", "glossary", "dispatch", "store"]],
];

const pages = readdirSync(join(ROOT, "docs"), { recursive: true, encoding: "utf8" }).filter((path) =>
  path.endsWith(".md"),
);
const groupOf = (path) => GROUPS.findIndex(([, pattern]) => pattern.test(path));
const placeOf = (path) => {
  const place = GROUPS[groupOf(path)][2].indexOf(path.replace(/^.*\/|\.md$/g, ""));
  return place === -1 ? Infinity : place;
};
const ordered = pages.sort((a, b) => groupOf(a) - groupOf(b) || placeOf(a) - placeOf(b) || (a < b ? -1 : 1));

const copies = mkdtempSync(join(tmpdir(), "laboro-docs-"));
process.once("exit", () => rmSync(copies, { recursive: true }));
cpSync(join(ROOT, "docs", "images"), join(copies, "docs", "images"), { recursive: true });
for (const path of ordered) copyPage(`docs/${path}`, GROUPS[groupOf(path)][0]);
copyPage("README.md");

const { OPERATIONS } = await import("../dist/broker/operations/index.js");
/** By exported name: the descriptions of members, as `retry.waitMs`. */
const TEXTS = {
  Submission: textsOf(OPERATIONS.submit.input.json()),
  JobInfo: textsOf(OPERATIONS.job.output.json()),
  TaskResult: textsOf(OPERATIONS.tasks.output.json().properties.tasks),
  WorkerInfo: textsOf(OPERATIONS.workers.output.json().properties.workers),
  BrokerEvent: textsOf(OPERATIONS.events.output.json().properties.events),
  ScheduleInfo: textsOf(OPERATIONS.schedule.output.json()),
  Schedules: textsOf(OPERATIONS.schedule.output.json()),
  ScheduleInput: textsOf(OPERATIONS.scheduleSet.input.json()),
  ScheduleEdit: textsOf(OPERATIONS.scheduleEdit.input.json()),
  AllocatorInfo: textsOf(OPERATIONS.allocator.output.json()),
  Allocators: textsOf(OPERATIONS.allocator.output.json()),
};

const app = await Application.bootstrap({
  name: "laboro",
  entryPoints: ["client", "task", "files", "worker", "broker"].map((name) =>
    join(ROOT, "dist", "entries", `${name}.d.ts`),
  ),
  tsconfig: join(ROOT, "scripts", "typedoc-tsconfig.json"),
  readme: join(copies, "README.md"),
  projectDocuments: checksOnly ? [] : ordered.map((path) => join(copies, "docs", path)),
  out: join(ROOT, "site"),
  groupOrder: [...GROUPS.map(([name]) => name), "Modules", "*"],
  includeVersion: true,
  searchInComments: true,
  searchInDocuments: true,
  skipErrorChecking: true,
  disableSources: true,
  excludeExternals: true,
  navigation: { includeGroups: true },
  highlightLanguages: "bash console css html ini javascript json sql toml tsx typescript yaml".split(" "),
  requiredToBeDocumented: "Class Function Interface Method TypeAlias Variable Property Accessor".split(" "),
  validation: { invalidLink: true, notDocumented: false, notExported: false },
  treatWarningsAsErrors: true,
});
app.converter.on(Converter.EVENT_RESOLVE_BEGIN, ({ project }) => describeBySchemas(project));
const project = await app.convert();
if (project === undefined) process.exit(1);
app.validate(project);
for (const name of undocumentedIn(project)) app.logger.warn(`${name} has no text`);
if (!checksOnly) await app.generateOutputs(project);
process.exitCode = app.logger.hasErrors() || app.logger.hasWarnings() ? 1 : 0;

/** With its title and group for the site. Links to source files lead to the repository. */
function copyPage(path, group) {
  const text = readFileSync(join(ROOT, path), "utf8");
  const linked = text.replaceAll(/(\]\(|^\[[^\]]+\]: )([^)\s#]+)/gm, (whole, before, target) => {
    const file = relative(ROOT, resolve(ROOT, dirname(path), target));
    if (/^\w+:/.test(target) || file.startsWith("docs/") || file === "README.md") return whole;
    return `${before}${REPOSITORY}/${statSync(join(ROOT, file)).isDirectory() ? "tree" : "blob"}/main/${file}`;
  });
  const title = /^# (.+)$/m.exec(text)?.[1].replaceAll("`", "");
  const front = group === undefined ? "" : `---\ntitle: ${JSON.stringify(title)}\ngroup: ${group}\n---\n`;
  mkdirSync(dirname(join(copies, path)), { recursive: true });
  writeFileSync(join(copies, path), front + linked);
}

function textsOf(schema, before = "", texts = new Map()) {
  for (const [name, member] of Object.entries((schema.items ?? schema).properties ?? {})) {
    if (member.description !== undefined) texts.set(before + name, member.description);
    textsOf(member, `${before}${name}.`, texts);
  }
  return texts;
}

/** Types that come from schemas have no comments of their own: their members get the descriptions of the schemas. */
function describeBySchemas(described) {
  for (const property of described.getReflectionsByKind(ReflectionKind.Property)) {
    if (property.hasComment()) continue;
    const [, owner, ...path] = property.getFullName().replaceAll("__type.", "").split(".");
    const texts = TEXTS[owner] ?? TEXTS.Submission;
    const text = texts.get(path.join(".")) ?? texts.get(path.slice(1).join("."));
    if (text !== undefined) property.comment = new Comment([{ kind: "text", text }]);
  }
}

/** Exported names without text. The members of types without a name need none. */
function undocumentedIn(documented) {
  const kinds = app.options.getValue("requiredToBeDocumented").reduce((all, name) => all | ReflectionKind[name], 0);
  return documented
    .getReflectionsByKind(kinds)
    .filter((one) => !one.getFullName().includes("__type"))
    .filter((one) => ![one, ...(one.getNonIndexSignatures?.() ?? [])].some((part) => part.hasComment()))
    .map((one) => one.getFullName());
}
