/** Command lines of the guides: each is one that the verbs take. Nothing is run: jobs are submitted held. */
import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { openCliBroker } from "../cli/support/cli.js";
import { REPOSITORY } from "../support/launched.js";

const GUIDES = join(REPOSITORY, "docs", "guide");
const PAGES = readdirSync(GUIDES);

/** Lines of samples that begin with `laboro run` or `laboro submit`. Parts of a shell program are left out. */
function commandsOf(page: string): string[] {
  const text = readFileSync(join(GUIDES, page), "utf8");
  const fenced = Array.from(text.matchAll(/^```(?:sh)?\n([\s\S]*?)^```$/gm), ([, block = ""]) => block);
  const indented = text.match(/^ {4}laboro .*(?:\\\n.*)*$/gm) ?? [];
  const lines = [...fenced, ...indented]
    .join("\n")
    .replaceAll(/\\\n\s*/g, "")
    .split("\n");
  return lines.map((line) => line.trim()).filter((line) => /^laboro (run|submit) [^$|<>…]*$/.test(line));
}

/** As the shell divides it, without comments and redirections. */
const wordsOf = (line: string): string[] =>
  spawnSync("sh", ["-c", `printf '%s\\0' ${line}`], { encoding: "utf8" })
    .stdout.split("\0")
    .slice(1, -1);

/** What a page says has to be there: files, jobs and limits of that page. */
const NEEDS = /LABORO_NO_SUCH_|cannot read|cannot be read|there is no such|no job/;

describe("the command lines of", () => {
  it.each(PAGES.filter((page) => commandsOf(page).length > 0))("docs/guide/%s are taken", async (page) => {
    const setup = await openCliBroker();
    const cwd = join(setup.dir, "here");
    mkdirSync(cwd);
    for (const name of ["params.txt", "urls.txt", "inputs.txt"])
      writeFileSync(join(cwd, name), Array.from({ length: 300 }, (_, i) => `line ${i}\n`).join(""));
    const refused: string[] = [];
    for (const line of commandsOf(page)) {
      const [verb = "", ...words] = wordsOf(line);
      const { code, stderr } = await setup.laboro([verb, verb === "run" ? "--dry-run" : "--hold", ...words], { cwd });
      if (code !== 0 && !NEEDS.test(stderr)) refused.push(`${line}: ${stderr}`);
    }
    expect(refused).toEqual([]);
  });
});
