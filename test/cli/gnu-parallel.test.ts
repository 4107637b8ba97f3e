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
import { openCliBroker } from "./support/cli.js";
import { callInProcess } from "./support/in-process.js";

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

/** Calls `run` in a folder of its own with the files in it. */
async function inFolder(run: (dir: string, env: NodeJS.ProcessEnv) => Promise<Result>): Promise<Result> {
  const dir = mkdtempSync(join(tmpdir(), "laboro-parallel-"));
  mkdirSync(join(dir, "d"));
  for (const [name, content] of Object.entries(FILES)) writeFileSync(join(dir, name), content);
  try {
    return await run(dir, { PATH: process.env.PATH, LC_ALL: "C.UTF-8", HOME: dir, PARALLEL_SHELL: "/bin/sh" });
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

/** Runs a line in bash. `command` is the text of PARALLEL. */
const runLine = (line: string, command: string, more: NodeJS.ProcessEnv): Promise<Result> =>
  inFolder((dir, env) => {
    const script = `PARALLEL() { ${command} "$@"; }; ${line}`;
    const child = spawn("bash", ["-c", script], {
      cwd: dir,
      env: { ...env, ...more },
      stdio: ["ignore", "pipe", "ignore"],
    });
    const chunks: Buffer[] = [];
    child.stdout.on("data", (chunk: Buffer) => chunks.push(chunk));
    return new Promise((resolve, reject) => {
      child.on("error", reject);
      child.on("close", (code) => resolve({ stdout: Buffer.concat(chunks).toString(), succeeded: code === 0 }));
    });
  });

/** The words after PARALLEL in each of these lines, as bash splits them. */
function wordsOf(lines: readonly string[]): Map<string, readonly string[]> {
  const script = `PARALLEL() { printf '%d\\0' $#; printf '%s\\0' "$@"; }; ${lines.join("\n")}`;
  const said = spawnSync("bash", ["-c", script]).stdout.toString().split("\0");
  return new Map(lines.map((line) => [line, said.splice(0, 1 + Number(said[0])).slice(1)]));
}

const ordered = (line: string, { stdout, succeeded }: Result): Result => {
  const isOrdered = /-k|--keep-order/.test(line);
  return { stdout: isOrdered ? stdout : stdout.split("\n").sort().join("\n"), succeeded };
};

/** Options about this machine alone, which are refused with a broker elsewhere. */
const isLocal = (line: string): boolean => /--memfree|--load/.test(line);

async function runAll(
  lines: readonly string[],
  command: string,
  env: NodeJS.ProcessEnv = {},
): Promise<Map<string, Result>> {
  const results = new Map<string, Result>();
  const waiting = [...lines];
  const work = async (): Promise<void> => {
    for (let line = waiting.shift(); line !== undefined; line = waiting.shift())
      results.set(line, ordered(line, await runLine(line, command, isLocal(line) ? {} : env)));
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return results;
}

/** Lines that bash only splits into words: outside of quotes there is no pipe, no redirection, no second command. */
const isOneCall = (line: string): boolean =>
  /^PARALLEL[^|&;<>"']*$/.test(line.replaceAll(/'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"/g, ""));

describe("laboro run beside GNU parallel", () => {
  it.skipIf(!isAskedAgain)(
    "the recording is what GNU parallel does (needs another version of it than the recorded, or LABORO_RECORD=1)",
    { timeout: 120_000 },
    async () => {
      const said = await runAll(LINES, "parallel --will-cite");
      const results = Object.fromEntries(LINES.map((line) => [line, said.get(line)]));
      if (process.env.LABORO_RECORD === "1")
        writeFileSync(RECORDING, `${JSON.stringify({ version: VERSION, results }, undefined, 2)}\n`);
      expect(results).toEqual(recording.results);
    },
  );

  it("prints the same and ends alike", { timeout: 120_000 }, async () => {
    expect(LINES.length).toBeGreaterThanOrEqual(80);
    const { data, worker } = await openCliBroker();
    worker({ slots: AT_ONCE });
    // Those that need a shell get processes of their own.
    const results = await runAll(
      LINES.filter((line) => !isOneCall(line)),
      `'${process.execPath}' '${LABORO}' run`,
      { LABORO_DATA: data },
    );
    for (const [line, words] of wordsOf(LINES.filter(isOneCall))) {
      const result = await inFolder(async (dir, env) => {
        const where = isLocal(line) ? env : { ...env, LABORO_DATA: data };
        const { code, stdout } = await callInProcess(["run", ...words], where, "", dir);
        return { stdout, succeeded: code === 0 };
      });
      results.set(line, ordered(line, result));
    }
    expect(Object.fromEntries(results)).toEqual(recording.results);
  });
});
