import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { REPOSITORY } from "../support/launched.js";

const filesIn = (folder: string): string[] =>
  readdirSync(join(REPOSITORY, folder), { recursive: true, encoding: "utf8" })
    .filter((path) => !path.includes("node_modules"))
    .map((path) => `${folder}/${path}`);

const SOURCES = ["bench", "bin", "docs", "examples", "scripts", "src", "test"].flatMap(filesIn);
const PAGES = ["README.md", "CONTRIBUTING.md", "SECURITY.md", ...SOURCES.filter((path) => /^docs\/.*\.md$/.test(path))];

const textOf = (path: string): string => readFileSync(join(REPOSITORY, path), "utf8");

/** What a heading is called in a link to it. */
const anchorsOf = (page: string): string[] =>
  Array.from(page.matchAll(/^#+ (.+)$/gm), ([, heading = ""]) =>
    heading
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N} _-]/gu, "")
      .replaceAll(" ", "-"),
  );

function isBroken(page: string, link: string): boolean {
  const [path = "", anchor] = link.split("#");
  const target = path === "" ? page : join(dirname(page), path);
  if (!existsSync(join(REPOSITORY, target))) return true;
  return anchor !== undefined && !anchorsOf(textOf(target)).includes(anchor);
}

/** `src/broker/`, `broker/core.ts` or `core.ts`: whole, or the end of a path where that says enough. */
const isThere = (mentioned: string): boolean =>
  SOURCES.some((path) => path === mentioned || path.endsWith(`/${mentioned}`));

const OUR_FOLDERS = /^(bench|bin|docs|examples|scripts|src|test)\//;

/** Names of source files and of our folders that stand alone between backticks. */
const mentionedIn = (page: string): string[] =>
  Array.from(page.matchAll(/`([\w./-]+)`/g), ([, text = ""]) => text)
    .filter((text) => OUR_FOLDERS.test(text) || /^[a-z0-9/-]+\.(ts|mjs)$/.test(text))
    .map((text) => text.replace(/\/$/, ""));

describe.each(PAGES)("%s", (path) => {
  const page = textOf(path);

  it("links to nothing that is not there", () => {
    const links = Array.from(
      page.matchAll(/\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)$/gm),
      ([, link, defined = ""]) => link ?? defined,
    );
    expect(links.filter((link) => !/^(https?|mailto):/.test(link) && isBroken(path, link))).toEqual([]);
  });

  it("names no source file or folder that is not there", () => {
    expect(mentionedIn(page).filter((mentioned) => !isThere(mentioned))).toEqual([]);
  });
});

describe("docs/architecture.md", () => {
  const page = textOf("docs/architecture.md");

  it("has only files in its pictures that are there", () => {
    const named = Array.from(page.matchAll(/(?<!\.)[\w/-]+\.ts\b/g), ([name]) => name).filter(
      (name) => !name.startsWith("/"),
    );
    expect(named.length).toBeGreaterThan(30);
    expect(named.filter((name) => !isThere(name))).toEqual([]);
  });

  it("has a link for each file in its walks", () => {
    const walks = page.slice(page.indexOf("## The walk of a task"), page.indexOf("## When something fails"));
    const named = new Set(Array.from(walks.matchAll(/\[?`[\w/-]+\.ts`\]?/g), ([name]) => name));
    const defined = Array.from(page.matchAll(/^(\[`[^`]+`\]): /gm), ([, name]) => name);
    expect(named.size).toBeGreaterThan(30);
    expect(new Set(defined)).toEqual(named);
  });

  it("has a link in each step of its walks", () => {
    const walks = page.slice(page.indexOf("## The walk of a task"), page.indexOf("## When something fails"));
    const steps = walks.split(/^(?=\d\. )/m).slice(1);
    expect(steps.length).toBeGreaterThan(20);
    expect(steps.filter((step) => !/\[`[^`]+`\]/.test(step))).toEqual([]);
  });

  it("has every folder of the source, the broker, the protocols and the store in its picture", () => {
    const picture = page.slice(page.indexOf("## The picture"), page.indexOf("## The walk of a task"));
    const folders = ["src", "src/broker", "src/protocols", "src/store", "src/worker"].flatMap((folder) =>
      readdirSync(join(REPOSITORY, folder), { withFileTypes: true }).filter((entry) => entry.isDirectory()),
    );
    const words = new Set(picture.match(/[\w-]+/g));
    expect(folders.map(({ name }) => name).filter((name) => !words.has(name))).toEqual([]);
  });

  it("tells of every folder of the source", () => {
    const names = readdirSync(join(REPOSITORY, "src"));
    expect(names.filter((name) => !page.includes(`\`src/${name}`))).toEqual([]);
  });
});

it("docs/reference/worker.md has the options of laboro worker, and no others", () => {
  const optionsIn = (page: string, heading: RegExp): string[] => {
    const section =
      textOf(page)
        .split(/^##+ /m)
        .find((text) => heading.test(text)) ?? "";
    const cells = Array.from(section.matchAll(/^\| [^|]*\|/gm), ([cell]) => cell);
    return [...new Set(cells.flatMap((cell) => cell.match(/--[a-z][\w-]*/g) ?? []))].sort();
  };
  const inHelp = optionsIn("docs/reference/cli.md", /^(laboro )?worker\n/);
  expect(inHelp.length).toBeGreaterThan(20);
  expect(optionsIn("docs/reference/worker.md", /^Options\n/)).toEqual(inHelp);
});

describe("docs/reference/dispatch.md", () => {
  it("speaks of nothing that the source does not have", () => {
    const source = SOURCES.filter((path) => /^src\/.*\.ts$/.test(path))
      .map(textOf)
      .join("\n");
    const words = new Set(source.match(/\w+/g));
    const named = Array.from(
      textOf("docs/reference/dispatch.md").matchAll(/`(?:state\.)?([a-zA-Z]\w+)(?:\(\w*\))?`/g),
      ([, name = ""]) => name,
    );
    expect(named.length).toBeGreaterThan(20);
    expect(named.filter((name) => !words.has(name))).toEqual([]);
  });
});

/** Its lines without tables, samples and the targets of links; they stay as empty lines. */
const proseOf = (path: string): string[] =>
  textOf(path)
    .replaceAll(/^```.*?^```/gms, "")
    .split("\n")
    .map((line) => (/^ *\||^ {4}|^\[[^\]]+\]: /.test(line) ? "" : line));

it.each([...PAGES, "CHANGELOG.md"])("%s has lines of at most 120 columns, tables and samples aside", (path) => {
  expect(proseOf(path).filter((line) => line.length > 120)).toEqual([]);
});

const MAX_LINES_OF_A_PARAGRAPH = 5;
const MAX_LINES_WITHOUT_HEADING = 40;

it.each(PAGES)("%s can be skimmed: one title, headings, short paragraphs", (path) => {
  const lines = proseOf(path);
  expect(lines.filter((line) => line.startsWith("# "))).toHaveLength(1);
  const paragraphs = lines.join("\n").split(/\n\n+|\n(?= *(?:[-*]|\d+\.) )/);
  expect(paragraphs.filter((text) => text.trim().split("\n").length > MAX_LINES_OF_A_PARAGRAPH)).toEqual([]);
  const sections = lines.join("\n").split(/^(?=#+ )/m);
  const tooLong = sections.filter((text) => text.split("\n").filter(Boolean).length > MAX_LINES_WITHOUT_HEADING);
  expect(tooLong.map((text) => text.split("\n", 1)[0])).toEqual([]);
});
