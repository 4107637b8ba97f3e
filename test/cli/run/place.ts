/** A folder of its own for `laboro run`, with no broker anywhere near it. */
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { atEnd } from "../../support/at-end.js";
import { LABORO } from "../../support/launched.js";
import { callInProcess, canShare } from "../support/in-process.js";

export interface Said {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Place {
  readonly dir: string;
  run(...words: readonly string[]): Promise<Said>;
  laboro(...words: readonly string[]): Promise<Said>;
  /** While it runs. */
  begin(
    words: readonly string[],
    terminal?: boolean,
  ): { child: ChildProcess; said: Promise<Said>; output: () => string };
  /** A line for bash, in which `laboro` is the command, and the exit code is that of the first part of a pipe that failed. */
  shell(line: string, terminal?: boolean): ReturnType<Place["begin"]>;
  file(name: string): string;
  lines(name: string): readonly string[];
}

export function openPlace(more: NodeJS.ProcessEnv = {}): Place {
  const dir = mkdtempSync(join(tmpdir(), "laboro-run-"));
  atEnd(() => rmSync(dir, { recursive: true, force: true }));
  const { PATH, TMPDIR } = process.env;
  const env = { PATH, TMPDIR, HOME: dir, LANG: "C.UTF-8", TERM: "xterm", SHELL: "/bin/sh", ...more };
  const begin: Place["begin"] = (words, terminal = false) => start([process.execPath, LABORO, ...words], terminal);
  const start = (all: readonly string[], terminal: boolean): ReturnType<Place["begin"]> => {
    const line = all.map((word) => `'${word.replaceAll("'", "'\\''")}'`).join(" ");
    const [file = "", ...rest] = terminal ? ["script", "-qefc", line, "/dev/null"] : all;
    const child = spawn(file, rest, { cwd: dir, env, stdio: ["pipe", "pipe", "pipe"] });
    atEnd(() => child.kill("SIGKILL"));
    let stdout = "";
    let stderr = "";
    child.stdout?.setEncoding("utf8").on("data", (text: string) => {
      stdout += text;
    });
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      stderr += text;
    });
    const said = new Promise<Said>((resolve, reject) => {
      child.on("error", reject);
      child.on("close", (code, signal) => resolve({ code, signal, stdout, stderr }));
    });
    return { child, said, output: () => stdout + stderr };
  };
  const call = async (words: readonly string[]): Promise<Said> => {
    if (canShare(words)) return { ...(await callInProcess(words, env, "", dir)), signal: null };
    const { child, said } = begin(words);
    child.stdin?.end();
    return said;
  };
  const file = (name: string): string => join(dir, name);
  return {
    dir,
    begin,
    run: (...words) => call(["run", ...words]),
    laboro: (...words) => call(words),
    shell: (line, terminal = false) =>
      start(["bash", "-c", `set -o pipefail; laboro() { "${process.execPath}" "${LABORO}" "$@"; }; ${line}`], terminal),
    file,
    lines: (name) => (existsSync(file(name)) ? readFileSync(file(name), "utf8").split("\n").slice(0, -1) : []),
  };
}
