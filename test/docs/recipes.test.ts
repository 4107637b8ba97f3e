/**
 * The commands of guides that say what is printed, run as they stand there. What they work on, and the programs that a reader would have,
 * are made here.
 */
import { spawn } from "node:child_process";
import { accessSync, chmodSync, constants, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { atEnd } from "../support/at-end.js";
import { LABORO, REPOSITORY } from "../support/launched.js";
import { openTestBroker } from "../support/test-broker.js";

interface Recipe {
  readonly title: string;
  readonly commands: string;
  readonly prints: string;
  /** Blocks that begin with `# NAME`, by name. */
  readonly files: Readonly<Record<string, string>>;
}

/** Sections of a page with commands and what they print. */
function recipesOf(page: string): Recipe[] {
  const [, ...sections] = readFileSync(join(REPOSITORY, page), "utf8").split(/^## /m);
  return sections.flatMap((section) => {
    const [title = ""] = section.split("\n");
    const blocks = (language: string): string[] =>
      Array.from(section.matchAll(/^```(\w*)\n([\s\S]*?)^```$/gm))
        .filter(([, found]) => found === language)
        .map(([, , text = ""]) => text);
    const files = blocks("toml").map((text) => [/^# ([\w.-]+)\n/.exec(text)?.[1] ?? "", text] as const);
    const recipe = { title, commands: blocks("sh").join(""), prints: blocks("").join("") };
    return recipe.commands === "" || recipe.prints === "" ? [] : [{ ...recipe, files: Object.fromEntries(files) }];
  });
}

const sh = (...lines: readonly string[]): string => ["#!/bin/sh", ...lines, ""].join("\n");

/** By the number of the recipe, or by the page; a file that begins with #! can be executed. */
const FILES: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  1: {
    simulate: sh(
      '[ "$1$3" = --rate--seed ] || exit 2',
      'echo "$(echo "$2 * 300 + $4" | bc | cut -d. -f1) rate=$2 seed=$4"',
    ),
  },
  2: { train: sh('[ "$1 $3 $4" = "--fold --of 5" ] || exit 2', 'echo "fold $2: 0.8$2"') },
  3: {
    "photos/cat.jpg": "cat",
    "photos/trip/sea.jpg": "sea",
    "bin/convert": sh('[ "$2 $3" = "-resize 800x800" ] && cp "$1" "$4"'),
  },
  4: { "commands.txt": "echo built docs\necho built web\nprintf 'built %s\\n' tests\n" },
  5: { "orders.csv": "1,Brno,3\n2,Porto,1\n", ship: sh('echo "$4 parcels to $2"') },
  6: {
    "users.json": JSON.stringify([
      { name: "Ada", mail: "ada@example.org" },
      { name: 'Grace "Amazing" Hopper', mail: "grace@example.org" },
    ]),
  },
  7: { "inbox/a b": "1", "inbox/it's; rm -rf x": "2", "inbox/line\nbreak": "3" },
  8: {
    "data/a.csv": "",
    "data/b.csv": "",
    check: sh('case $1 in *b.csv) echo "warning: empty";; *) echo fine;; esac'),
  },
  9: { "big.txt": "four words on each\nline of this file\n".repeat(250) },
  10: {
    "test-on": sh('[ "$1 $2" != "node22 postgres" ] || { echo "2 tests failed"; exit 1; }', "echo ok"),
  },
  11: {
    // The first time it kills the run that it is a task of, whose process is somewhere above.
    night: sh(
      'echo "$1" >> steps',
      '[ "$1" = 3 ] && [ ! -e killed ] || { echo "step $1"; exit 0; }',
      // What is printed is on disk.
      "touch killed; until grep -q 'step 2' out-1; do sleep 0.02; done",
      "pid=$PPID",
      "until tr '\\0' ' ' < /proc/$pid/cmdline | grep -q ' run -j'; do pid=$(awk '/^PPid/ { print $2 }' /proc/$pid/status); done",
      "kill -9 $pid; sleep 600",
    ),
  },
  12: {
    parse: sh('[ "$1" = b.log ] && exit 1', 'echo "$1: $(wc -l < $1) lines"'),
    "parse-fixed": sh('echo "$1: $(wc -l < $1) lines"'),
    "a.log": "\n".repeat(10),
    "b.log": "\n".repeat(11),
    "c.log": "\n".repeat(12),
  },
  13: {
    flaky: sh(
      '[ "$1" = b ] && { echo "b: no such option"; exit 2; }',
      '[ "$LABORO_ATTEMPT" = 3 ] || exit 75',
      'echo "$1 worked"',
    ),
  },
  17: { backup: sh('echo "$1 is saved"') },
  18: { invoice: sh('echo "invoice $1" >> invoices') },
  19: { "measure.py": "import sys\nprint('measured', *sys.argv[1:])\n" },
  20: { train: sh("exit 0") },
  "from-slurm": {
    simulate: sh('echo "seed $2 done by $(hostname | wc -l) node"'),
    "post.sh": sh("echo all are done"),
  },
  "from-hyperqueue": {
    "inputs.txt": "a.nii\nb.nii\nc.nii\n",
    segment: sh('[ "$1" != b.nii ] && echo "$1 is segmented"'),
  },
};

function openFolder(files: Readonly<Record<string, string>>): string {
  const dir = mkdtempSync(join(tmpdir(), "laboro-recipe-"));
  atEnd(() => rmSync(dir, { recursive: true, force: true }));
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(dir, name)), { recursive: true });
    writeFileSync(join(dir, name), text);
    if (text.startsWith("#!")) chmodSync(join(dir, name), 0o755);
  }
  return dir;
}

/** Every page fails once as an overloaded server does. Counts how many are asked for at a time. */
async function openSite(): Promise<{ url: string; most(): number }> {
  const asked = new Set<string>();
  let [now, most] = [0, 0];
  const server = createServer(({ url = "" }, response) => {
    most = Math.max(most, ++now);
    response.on("close", () => now--);
    response.statusCode = asked.has(url) || url === "/a" ? 200 : 503;
    asked.add(url);
    setImmediate(() => response.end(`page ${url.slice(1)}\n`));
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  atEnd(() => void server.close());
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, most: () => most };
}

/** Standard output of a line of commands, each of which must succeed. */
function run(commands: string, dir: string, env: NodeJS.ProcessEnv): Promise<{ stdout: string; stderr: string }> {
  const laboro = `laboro() { "${process.execPath}" "${LABORO}" "$@"; }`;
  const child = spawn("bash", ["-euo", "pipefail", "-c", `${laboro}\n${commands}`], {
    cwd: dir,
    env: { PATH: `${join(dir, "bin")}:${process.env.PATH}`, HOME: dir, LANG: "C.UTF-8", LC_ALL: "C", ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  atEnd(() => void child.kill("SIGKILL"));
  let [stdout, stderr] = ["", ""];
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    stdout += text;
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr += text;
  });
  return new Promise((resolve, reject) => {
    child.on("close", (code) => (code === 0 ? resolve({ stdout, stderr }) : reject(new Error(`${code}: ${stderr}`))));
  });
}

/** Lengths of time are different each time. */
const steady = (text: string): string =>
  text.replaceAll(/ +$/gm, "").replaceAll(/\b(in|after) [\d.]+m?s\b/g, "$1 TIME");

/** Programs of a page that a machine may not have. */
const PROGRAMS = ["bc", "curl", "jq", "python3"];

function missingFor({ commands, files }: Recipe): string[] {
  const text = [commands.replaceAll(".py", " python3"), ...Object.values(files)].join("\n");
  const folders = (process.env.PATH ?? "").split(delimiter);
  const isThere = (program: string): boolean =>
    folders.some((folder) => {
      try {
        accessSync(join(folder, program), constants.X_OK);
        return true;
      } catch {
        return false;
      }
    });
  const isUsed = (program: string): boolean => new RegExp(`\\b${program}\\b`).test(text);
  return PROGRAMS.filter((program) => isUsed(program) && !isThere(program));
}

/** The recipes of this page that need a broker, by what they work on. */
const WITH_BROKER = new Set(["14", "15", "16", "17", "18", "19", "20"]);

describe.each(["recipes", "from-slurm", "from-hyperqueue"])("docs/guide/%s.md", (page) => {
  const recipes = recipesOf(`docs/guide/${page}.md`);

  it("has commands with what they print", () => {
    if (page === "recipes") expect(recipes.map(({ title }) => Number.parseInt(title, 10))).toEqual(TWENTY);
    else expect(recipes.length).toBeGreaterThan(0);
  });

  it.for(recipes)("$title", { timeout: 120_000 }, async (recipe, { skip }) => {
    const missing = missingFor(recipe);
    if (missing.length > 0) skip(`not installed here: ${missing.join(", ")}`);
    const name = page === "recipes" ? String(Number.parseInt(recipe.title, 10)) : page;
    const site = name === "14" ? await openSite() : undefined;
    const urls = site && { "urls.txt": ["a", "b", "c"].map((path) => `${site.url}/${path}\n`).join("") };
    const dir = openFolder({ ...FILES[name], ...recipe.files, ...urls });
    const env: NodeJS.ProcessEnv = {};
    if (page !== "recipes" || WITH_BROKER.has(name)) {
      const setup = await openTestBroker();
      setup.worker({ name: "node7", slots: 8, resources: { gpu: 2 } });
      env.LABORO_DATA = join(setup.dir, "data");
    }
    const { stdout, stderr } = await run(recipe.commands, dir, env);
    expect(steady(stdout), stderr).toBe(steady(recipe.prints));
    if (site !== undefined) expect(site.most()).toBeLessThanOrEqual(2);
    if (name === "11") expect(stderr).toContain("resuming job 1: 2 of 5 tasks are done");
  });
});

const TWENTY = Array.from({ length: 20 }, (_, at) => at + 1);
