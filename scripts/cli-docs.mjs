/**
 * Writes docs/reference/cli.md from what the verbs themselves say: node scripts/cli-docs.mjs, after npm run build.
 * With --check it writes nothing, and exits 1 where the page is not current.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

// The page is the same wherever it is made.
process.env.HOME = "~";
delete process.env.LABORO_DATA;
delete process.env.LABORO_BROKER;

const PAGE = fileURLToPath(new URL("../docs/reference/cli.md", import.meta.url));
const { makeProgram } = await import("../dist/cli/lib/program.js");

export const INTRODUCTION = `# The command line

<!-- Made by scripts/cli-docs.mjs from the verbs' own help; change that, not this. -->

\`laboro\` alone is \`laboro status\`. \`laboro VERB --help\` says what this page says.

**Selectors** name jobs and tasks: \`last\`, \`3\`, \`1-4,7\`, \`all\`; tasks of one job \`3.12\`, \`last.1-9,12\`. In an array a
task has its number there, in a list its place from 1. A range selects the tasks that there are in it. **Durations** are
\`90s\`, \`5m\`, \`1h30m\`, \`01:30:00\`; a bare number is seconds. **\`--json\`** gives one document, whose fields are in
[json.md](json.md).

| \`--json\` of | is |
|---|---|
| \`status\` | \`{broker, jobs, hidden}\`: the operation \`status\`, the jobs shown, how many are not |
| \`status JOB\` | the operation \`job\`, with \`usage\` as that operation; while it runs \`perSecond\` and \`leftMs\` |
| \`status JOBS\`, \`wait\` | \`{jobs}\`, each as the operation \`job\` has it |
| \`explain\`, \`workers\`, \`services\` | the operation of that name |
| \`schedule\` | \`{schedules}\`, as the operation has them; \`show\`, \`add\`, \`edit\`: the operation \`schedule\`; \`run\`: \`{job}\` |
| \`doctor\` | \`{checks: [{state, message, remedy?}]}\`, state being \`ok\`, \`warn\` or \`FAIL\` |

**The broker** is the one that \`--broker\` names, else the one whose \`access.json\` is in the directory \`--data\`, else
\`LABORO_BROKER\`, else \`access.json\` in \`LABORO_DATA\` or \`~/.local/share/laboro\`. \`--local\` is \`./.laboro\`, the data of
\`laboro run\` in this directory, running or not; where no broker is configured, verbs use it by themselves. These options
may stand before the verb, too. On a terminal a verb says which broker it means where there is a choice.

**Exit codes**: 0 all succeeded, 1 some failed, 2 a mistake in the command, 3 the broker cannot be reached, 130
interrupted, 141 (\`run\`) nobody reads the output any more. A failure is one line, \`laboro: MESSAGE (CODE)\`, and one that
says what to do; the codes are in [errors.md](errors.md). \`--verbose\` or \`LABORO_VERBOSE=1\` adds where it came from.

On a terminal, tables fit its width and have colours unless \`NO_COLOR\` is set; piped they are never cut. Signs beyond
ASCII appear in UTF-8 locales only.
`;

/** Lines of at most 120 columns. */
const wrapped = (text) =>
  text.replaceAll(/^(?! ).{121,}$/gm, (line) => line.replaceAll(/(.{1,120})(?: +|$)/g, "$1\n").trimEnd());

const cell = (text) => text.replaceAll("|", "\\|").replaceAll("\n", " ");

/** Rows of options that other verbs only name: of those that ask a broker, and of those that submit jobs. */
const shared = new Map();

function namesOfShared(rows) {
  const names = new Map();
  for (const [row, name] of rows) {
    const of = shared.get(row);
    if (of !== undefined) names.set(of, [...(names.get(of) ?? []), name]);
  }
  return [...names].map(([of, list]) => `| as ${of} | ${list.map((name) => `\`${name}\``).join(", ")} |`);
}

function section(command) {
  const help = command.createHelp();
  const lines = [
    `### ${command.name()}`,
    "",
    wrapped(command.description()),
    "",
    `    laboro ${command.name()} ${command.usage()}`,
    "",
  ];
  const described = command.registeredArguments.filter((argument) => argument.description !== "");
  const options = help.visibleOptions(command).filter((option) => option.long !== "--help");
  const rowOf = (option) => `| \`${cell(option.flags)}\` | ${cell(help.optionDescription(option))} |`;
  const own = options.map(rowOf).filter((row) => !shared.has(row));
  const named = namesOfShared(options.map((option) => [rowOf(option), option.long ?? option.short]));
  if (described.length + options.length > 0) {
    lines.push("| | |", "|---|---|");
    for (const argument of described)
      lines.push(`| \`${cell(help.argumentTerm(argument))}\` | ${cell(help.argumentDescription(argument))} |`);
    lines.push(...own, ...named, "");
  }
  if (command.name() === "run") for (const row of own) shared.set(row, "[run](#run)");
  const after = [];
  command.configureOutput({ writeOut: (text) => after.push(text) });
  command.outputHelp();
  const [more, shown] = afterOptions(after.join(""));
  if (more !== "") lines.push(wrapped(more), "");
  if (shown !== "") lines.push("```", ...shown.split("\n").map((line) => line.replace(/^ {2}/, "")), "```", "");
  return lines;
}

/** What stands behind the list of options: words, and examples. */
export function afterOptions(text) {
  const options = Math.max(text.lastIndexOf("-h, --help"), text.lastIndexOf("\n  --help") + 1);
  const rest = text.slice(text.indexOf("\n", options) + 1);
  const at = /^Examples?:$/m.exec(rest);
  if (at === null) return [rest.trim(), ""];
  return [
    rest.slice(0, at.index).trim(),
    rest
      .slice(at.index + at[0].length)
      .trimEnd()
      .replace(/^\n/, ""),
  ];
}

export const program = await makeProgram("all");
/** The commands by the heading that they have in the help of `laboro`. */
export const groups = new Map();
for (const command of program.commands) {
  groups.set(command.helpGroup(), [...(groups.get(command.helpGroup()) ?? []), command]);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writePage();

function writePage() {
  const lines = [INTRODUCTION, "## Options of verbs that ask a broker", ""];
  const asking = program.commands.find((command) => command.name() === "explain");
  const ofBroker = asking.options.filter(({ long }) => ["--broker", "--data", "--local", "--verbose"].includes(long));
  for (const { flags, description } of ofBroker)
    shared.set(
      `| \`${cell(flags)}\` | ${cell(description)} |`,
      "[verbs that ask a broker](#options-of-verbs-that-ask-a-broker)",
    );
  lines.push("| | |", "|---|---|", ...shared.keys(), "");
  for (const [group, commands] of groups) {
    lines.push(`## ${group.replace(/:$/, "")}`, "");
    for (const command of commands) lines.push(...section(command));
  }
  const page = `${lines.join("\n").trimEnd()}\n`;
  if (!process.argv.includes("--check")) writeFileSync(PAGE, page);
  else if (read(PAGE) !== page) {
    console.error("docs/reference/cli.md is not current: npm run build && node scripts/cli-docs.mjs");
    process.exitCode = 1;
  }
}

function read(path) {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}
