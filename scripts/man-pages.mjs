/**
 * Writes dist/man/laboro.1 and a page for each verb from what the verbs themselves say; npm run build calls it. The reference
 * page docs/reference/cli.md (cli-docs.mjs) says the same. npm installs the pages that package.json names in `man`; with
 * --package this writes that list too.
 */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterOptions, groups, INTRODUCTION, program } from "./cli-docs.mjs";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const FOLDER = join(ROOT, "dist", "man");
const PACKAGE = join(ROOT, "package.json");
const manifest = JSON.parse(readFileSync(PACKAGE, "utf8"));
const { version, description } = manifest;

const seconds = process.env.SOURCE_DATE_EPOCH;
const DATE = (seconds === undefined ? new Date() : new Date(Number(seconds) * 1_000)).toISOString().slice(0, 10);

/** Text as roff: no character is a command, and options can be copied. */
const escaped = (text) =>
  text.replaceAll("\\", "\\e").replaceAll("-", "\\-").replaceAll("^", "\\(ha").replaceAll("~", "\\(ti");
const line = (text) => escaped(text).replace(/^(?=[.'])/, "\\&");
const bold = (text) => `\\fB${escaped(text)}\\fR`;

/** Paragraphs; the words of markdown that the reference page has. */
function prose(text) {
  const paragraphs = text.trim().split(/\n\s*\n/);
  return paragraphs.flatMap((paragraph, at) => [...(at === 0 ? [] : [".PP"]), marked(paragraph)]);
}

function marked(text) {
  const plain = text.replaceAll(/\s*\n\s*/g, " ").replaceAll(/\[([^\]]+)\]\([^)]+\)/g, "$1");
  const pieces = plain.split(/\*\*`?(.+?)`?\*\*|`([^`]+)`/);
  const roff = pieces.map((piece, at) =>
    at % 3 === 0 ? escaped(piece ?? "") : piece === undefined ? "" : bold(piece),
  );
  return roff
    .join("")
    .split(/(?<=[a-z)]\.) (?=[A-Z])/)
    .flatMap(wrapped)
    .join("\n");
}

/** Lines of at most 80 characters, as mandoc -Tlint asks for. */
function wrapped(sentence) {
  const lines = [];
  for (const word of sentence.split(" ")) {
    const last = lines.at(-1);
    if (last !== undefined && last.length + word.length < 79) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(word.replace(/^(?=[.'])/, "\\&"));
  }
  return lines;
}

/** Lines as they stand, such as examples. */
const verbatim = (text) => [".EX", ...text.split("\n").map((one) => line(one.replace(/^ {2}/, ""))), ".EE"];

const definition = (term, text) => [".TP", bold(term), ...prose(text)];
const head = (name) => `.TH ${name.toUpperCase()} 1 "${DATE}" "laboro ${version}" "laboro"`;

function options(command) {
  const help = command.createHelp();
  return help
    .visibleOptions(command)
    .flatMap((option) => definition(option.flags, help.optionDescription(option) || option.long));
}

function verbPage(command) {
  const name = `laboro-${command.name()}`;
  const help = command.createHelp();
  const printed = [];
  command.configureOutput({ writeOut: (text) => printed.push(text) });
  command.outputHelp();
  const [more, examples] = afterOptions(printed.join(""));
  const described = command.registeredArguments.filter((argument) => argument.description !== "");
  return [
    head(name),
    ".SH NAME",
    ...wrapped(`${name} \\- ${escaped(command.summary())}`),
    ".SH SYNOPSIS",
    `${bold(`laboro ${command.name()}`)} ${escaped(command.usage())}`,
    ".SH DESCRIPTION",
    ...prose(command.description()),
    ...described.flatMap((argument) => definition(help.argumentTerm(argument), help.argumentDescription(argument))),
    ".SH OPTIONS",
    ...options(command),
    ...command.commands.flatMap((child) => [
      `.SS ${escaped(`${command.name()} ${child.name()} ${child.usage()}`)}`,
      ...prose(child.description()),
      ...options(child),
    ]),
    // The list of the commands in a verb has a section of its own above.
    ...(more === "" || command.commands.length > 0 ? [] : [".SH NOTES", ...notes(more)]),
    ...(examples === "" ? [] : [".SH EXAMPLES", ...notes(examples)]),
    ".SH SEE ALSO",
    `${bold("laboro")}(1)`,
  ];
}

/** Paragraphs; indented or aligned lines stay as they are. */
function notes(text) {
  const paragraphs = text.split(/\n\s*\n/);
  return paragraphs.flatMap((one, at) => [
    ...(at === 0 ? [] : [".PP"]),
    ...(/^ {2}|\S {2,}\S/.test(one) ? verbatim(one) : prose(one)),
  ]);
}

function mainPage() {
  const [, , ...texts] = INTRODUCTION.split(/\n\n/).filter((text) => !text.startsWith("|"));
  const verbs = [...groups].flatMap(([group, commands]) => [
    `.SS ${escaped(group.replace(/:$/, ""))}`,
    ...commands.flatMap((command) => [".TP", `${bold(`laboro-${command.name()}`)}(1)`, escaped(command.summary())]),
  ]);
  return [
    head("laboro"),
    ".SH NAME",
    ...wrapped(`laboro \\- ${escaped(description)}`),
    ".SH SYNOPSIS",
    `${bold("laboro")} ${escaped(program.usage())}`,
    ".SH DESCRIPTION",
    ...prose(texts.join("\n\n")),
    ".SH VERBS",
    ...verbs,
  ];
}

const pages = new Map([["laboro.1", mainPage()]]);
for (const command of program.commands) pages.set(`laboro-${command.name()}.1`, verbPage(command));
rmSync(FOLDER, { recursive: true, force: true });
mkdirSync(FOLDER, { recursive: true });
for (const [name, lines] of pages)
  writeFileSync(join(FOLDER, name), `${lines.filter((one) => one !== "").join("\n")}\n`);
if (process.argv.includes("--package")) {
  manifest.man = [...pages.keys()].map((name) => `./dist/man/${name}`);
  writeFileSync(PACKAGE, `${JSON.stringify(manifest, undefined, 2)}\n`);
}
