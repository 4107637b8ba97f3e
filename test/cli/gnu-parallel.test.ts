/**
 * The same command lines with GNU parallel and with laboro run: the same output, and success or failure alike. What GNU parallel gave is
 * recorded, with its version. Where another version is installed, or with LABORO_FAULTS=full, it is asked again. LABORO_RECORD=1 writes the
 * recording.
 */
import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { FULL } from "../support/fault-batch.js";
import { LABORO, REPOSITORY } from "../support/launched.js";
import { openCliShop } from "./support/cli.js";

interface Result {
  readonly stdout: string;
  readonly succeeded: boolean;
}

const FIXTURES = join(REPOSITORY, "test/fixtures/gnu-parallel");
const RECORDING = join(FIXTURES, "recorded.json");
const LINES = readFileSync(join(FIXTURES, "lines.txt"), "utf8").trimEnd().split("\n");
const AT_ONCE = 4;
const VERSION = /^GNU parallel (\d+)/.exec(String(spawnSync("parallel", ["--version"]).stdout))?.[1];
const recording = JSON.parse(readFileSync(RECORDING, "utf8")) as { version: string; results: Record<string, Result> };
const isAskedAgain =
  VERSION !== undefined && (VERSION !== recording.version || FULL || process.env.LABORO_RECORD === "1");

const FILES: Readonly<Record<string, string>> = {
  words: "alpha\nbeta\ngamma\n",
  nums: "1\n2\n3\n",
  pairs: "a,1\nb c,2\n",
  commands: "echo first\necho second | tr s S\n",
  nul: "x y\0z\nw\0",
  "d/x.txt": "content\n",
};

/** Runs a line in a folder of its own. `command` is the text of PARALLEL. */
function runLine(line: string, command: string, more: NodeJS.ProcessEnv): Promise<Result> {
  const dir = mkdtempSync(join(tmpdir(), "laboro-parallel-"));
  mkdirSync(join(dir, "d"));
  for (const [name, content] of Object.entries(FILES)) writeFileSync(join(dir, name), content);
  const env = { PATH: process.env.PATH, LC_ALL: "C.UTF-8", HOME: dir, PARALLEL_SHELL: "/bin/sh", ...more };
  const script = `PARALLEL() { ${command} "$@"; }; ${line}`;
  const child = spawn("bash", ["-c", script], { cwd: dir, env, stdio: ["ignore", "pipe", "ignore"] });
  const chunks: Buffer[] = [];
  child.stdout.on("data", (chunk: Buffer) => chunks.push(chunk));
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code) => {
      rmSync(dir, { recursive: true, force: true });
      resolve({ stdout: Buffer.concat(chunks).toString(), succeeded: code === 0 });
    });
  });
}

async function runAll(command: string, env: NodeJS.ProcessEnv = {}): Promise<Map<string, Result>> {
  const results = new Map<string, Result>();
  const waiting = [...LINES];
  const work = async (): Promise<void> => {
    for (let line = waiting.shift(); line !== undefined; line = waiting.shift()) {
      const { stdout, succeeded } = await runLine(line, command, env);
      const isOrdered = /-k|--keep-order/.test(line);
      results.set(line, { stdout: isOrdered ? stdout : stdout.split("\n").sort().join("\n"), succeeded });
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return new Map(LINES.map((line) => [line, results.get(line) ?? { stdout: "", succeeded: false }]));
}

describe("laboro run beside GNU parallel", () => {
  it.skipIf(!isAskedAgain)("the recording is what GNU parallel does", { timeout: 120_000 }, async () => {
    const results = Object.fromEntries(await runAll("parallel --will-cite"));
    if (process.env.LABORO_RECORD === "1")
      writeFileSync(RECORDING, `${JSON.stringify({ version: VERSION, results }, undefined, 2)}\n`);
    expect(results).toEqual(recording.results);
  });

  it("prints the same and ends alike", { timeout: 120_000 }, async () => {
    expect(LINES.length).toBeGreaterThanOrEqual(80);
    const { data, worker } = await openCliShop();
    worker({ slots: AT_ONCE });
    const results = await runAll(`'${process.execPath}' '${LABORO}' run`, { LABORO_DATA: data });
    expect(Object.fromEntries(results)).toEqual(recording.results);
  });
});
