import { execFile, spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { VERBS } from "../../src/cli/lib/verb-list.js";
import { REPOSITORY } from "../support/launched.js";

describe("docs/reference/cli.md", () => {
  it("says what the verbs say", async () => {
    const check = join(REPOSITORY, "scripts", "cli-docs.mjs");
    const stderr = await new Promise<string>((resolve) => {
      execFile(process.execPath, [check, "--check"], (_error, _stdout, said) => resolve(said));
    });
    expect(stderr, "run: npm run build && node scripts/cli-docs.mjs").toBe("");
  });
});

const PAGES = join(REPOSITORY, "dist", "man");
const names = readdirSync(PAGES);
const paths = names.map((name) => join(PAGES, name));
/** What a program writes, of which nothing is expected on standard error. */
const run = (file: string, ...args: readonly string[]) => {
  const { status, stdout, stderr } = spawnSync(file, args, {
    encoding: "utf8",
    env: { ...process.env, MANWIDTH: "80", LANG: "C.UTF-8" },
  });
  return { status, stdout, stderr };
};
const isInstalled = (file: string, ...args: readonly string[]): boolean => {
  const installed = spawnSync(file, args).error === undefined;
  if (!installed) console.log(`${file} is not installed here: the man pages are not tested with it`);
  return installed;
};

describe("the man pages", () => {
  it("are one for each verb, and those that npm installs", () => {
    const expected = ["laboro.1", ...VERBS.map(({ name }) => `laboro-${name}.1`)].sort();
    expect(names.sort(), "run: npm run build").toEqual(expected);
    const { man } = JSON.parse(readFileSync(join(REPOSITORY, "package.json"), "utf8")) as { man: string[] };
    const listed = expected.map((name) => `./dist/man/${name}`);
    expect([...man].sort(), "run: node scripts/man-pages.mjs --package").toEqual(listed);
  });

  it.skipIf(!isInstalled("mandoc"))("have no fault that mandoc knows (needs mandoc)", () => {
    expect(run("mandoc", "-Tlint", ...paths)).toEqual({ status: 0, stdout: "", stderr: "" });
  });

  it.skipIf(!isInstalled("man", "--version"))("show what the help shows, also of a verb in a verb (needs man)", () => {
    for (const page of ["laboro-logs", "laboro-scale0", "laboro"]) {
      const { status, stdout, stderr } = run("man", "--warnings", "-l", join(PAGES, `${page}.1`));
      expect([status, stderr]).toEqual([0, ""]);
      const plain = stdout.replaceAll(/\s+/g, " ");
      expect(plain).toContain("NAME");
      if (page === "laboro-logs") expect(plain).toContain("-f, --follow ");
      if (page === "laboro-scale0") expect(plain).toContain("laboro scale0 request upper hello");
      if (page === "laboro") expect(plain).toMatch(/laboro-logs\(1\) .*explain\(1\)/);
    }
  });
});
