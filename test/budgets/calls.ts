/**
 * How often functions are called in a run of the built command. V8 counts them itself (NODE_V8_COVERAGE), in every thread, so nothing
 * in the code that is counted knows about it.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { LABORO, REPOSITORY } from "../support/launched.js";

/** The modules that the bundle is made of: in them a function is found by its file. */
const UNBUNDLED = join(REPOSITORY, "dist", "cli", "main.js");

/** A file of `dist/` or a module of Node, and a function in it. */
export type Counted = readonly [file: string, name: string];

export interface Run {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface CountedRun extends Run {
  /** Throws where a file of `dist/` has no such function: a budget must not pass because something was renamed. */
  calls(...counted: readonly Counted[]): number;
  /** Files of JavaScript that were loaded, each thread for itself. */
  readonly modules: number;
}

interface Script {
  readonly url: string;
  readonly functions: readonly {
    readonly functionName: string;
    readonly ranges: readonly { readonly count: number }[];
  }[];
}

/** Runs `laboro` in an empty folder, from its modules. */
export function countedRun(args: readonly string[]): CountedRun {
  return inFolder((dir) => {
    const coverage = join(dir, "coverage");
    const run = laboro(UNBUNDLED, args, dir, { NODE_V8_COVERAGE: coverage });
    const scripts = readdirSync(coverage).flatMap((name) => {
      const { result } = JSON.parse(readFileSync(join(coverage, name), "utf8")) as { result: readonly Script[] };
      return result;
    });
    return {
      ...run,
      modules: scripts.filter(({ url }) => url.startsWith("file:")).length,
      calls: (...counted) => counted.reduce((sum, one) => sum + callsOf(scripts, one), 0),
    };
  });
}

function callsOf(scripts: readonly Script[], [file, name]: Counted): number {
  const loaded = scripts.filter(({ url }) => url === file || url.endsWith(`/dist/${file}`));
  const found = loaded.flatMap(({ functions }) => functions.filter(({ functionName }) => functionName === name));
  // Functions of Node that nobody called are not listed.
  if (found.length === 0 && !file.startsWith("node:")) throw new Error(`${file} was not loaded, or has no ${name}`);
  return found.reduce((sum, { ranges }) => sum + (ranges[0]?.count ?? 0), 0);
}

export const STRACE = "/usr/bin/strace";
export const hasStrace = existsSync(STRACE);

/** System calls of the whole run, SQLite's and the tasks' own among them. */
export function tracedRun(
  args: readonly string[],
  names: readonly string[],
): Run & { readonly lines: readonly string[] } {
  return inFolder((dir) => {
    const trace = join(dir, "trace");
    const run = laboro(LABORO, args, dir, {}, [
      STRACE,
      "-f",
      "-q",
      "--seccomp-bpf",
      "-e",
      `trace=${names.join(",")}`,
      "-o",
      trace,
    ]);
    return { ...run, lines: readFileSync(trace, "utf8").split("\n") };
  });
}

function laboro(
  program: string,
  args: readonly string[],
  dir: string,
  env: Readonly<Record<string, string>>,
  before: readonly string[] = [],
): Run {
  const [command = "", ...rest] = [...before, process.execPath, program, ...args];
  const { status, stdout, stderr } = spawnSync(command, rest, {
    cwd: dir,
    env: { PATH: process.env.PATH, HOME: dir, TMPDIR: dir, LC_ALL: "C", ...env },
    encoding: "utf8",
    timeout: 60_000,
  });
  return { status, stdout, stderr };
}

/** On the disk of the repository: how much is sent together depends on how long a sync takes, and in memory it takes no time. */
function inFolder<T>(act: (dir: string) => T): T {
  const output = join(REPOSITORY, "test", "output");
  mkdirSync(output, { recursive: true });
  const dir = mkdtempSync(join(output, "budget-"));
  try {
    return act(dir);
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}
