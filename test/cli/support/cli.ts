/** The real command line beside a real broker: what it says and how it ends. */
import { type ChildProcess, spawn } from "node:child_process";
import { join } from "node:path";
import { LABORO } from "../../support/launched.js";
import { openTestBroker, type TestBroker } from "../../support/test-broker.js";
import { callInProcess, canShare } from "./in-process.js";

export interface Said {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface CallOptions {
  readonly env?: NodeJS.ProcessEnv;
  readonly input?: string | Uint8Array;
  readonly cwd?: string;
  /** On a pseudo-terminal of this many columns; both streams come as stdout then. */
  readonly columns?: number;
  /** A shell command that reads its output. */
  readonly pipe?: string;
  /** Give it a process of its own, as every verb needs once: from its start to an end that nothing holds up. */
  readonly process?: true;
  /** Called as soon as it runs, to send it a signal when the time has come. */
  readonly started?: (child: ChildProcess, stdout: () => string) => void;
}

export interface CliBroker extends TestBroker {
  readonly data: string;
  laboro(args: readonly string[], options?: CallOptions): Promise<Said>;
}

/** A broker in this process, and a command line that finds it by its data directory. */
export async function openCliBroker(options: Parameters<typeof openTestBroker>[0] = {}): Promise<CliBroker> {
  const setup = await openTestBroker(options);
  const data = join(setup.dir, "data");
  return {
    ...setup,
    data,
    laboro: (args, call = {}) => laboro(args, { ...call, env: { LABORO_DATA: data, HOME: setup.dir, ...call.env } }),
  };
}

/** Runs to the end. The environment is what is given and no more, so that a test means the same everywhere. */
export function laboro(args: readonly string[], options: CallOptions = {}): Promise<Said> {
  const { columns, cwd, input = "", pipe, started } = options;
  const env: NodeJS.ProcessEnv = { PATH: process.env.PATH, LANG: "C.UTF-8", TERM: "xterm", ...options.env };
  const shared = [options.process, columns, pipe, started].every((wish) => wish === undefined);
  if (shared && canShare(args)) return callInProcess(args, env, input, cwd);
  const [file = "", ...rest] = wordsFor([process.execPath, LABORO, ...args], options);
  return new Promise((resolve, reject) => {
    const child = spawn(file, rest, {
      env: columns === undefined ? env : { ...env, COLUMNS: String(columns), SHELL: "/bin/sh" },
      cwd,
      stdio: ["pipe", "pipe", "pipe"],
    });
    let stdout = "";
    let stderr = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      stdout += text;
    });
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      stderr += text;
    });
    child.on("error", reject);
    started?.(child, () => stdout);
    child.on("close", (code) => resolve({ code, stdout: stdout.replaceAll("\r\n", "\n"), stderr }));
    // A command that does not read its input may be gone before all of it is written.
    child.stdin.on("error", () => {});
    child.stdin.end(input);
  });
}

function wordsFor(words: readonly string[], { columns, pipe }: CallOptions): readonly string[] {
  const line = words.map((word) => `'${word}'`).join(" ");
  if (pipe !== undefined) return ["bash", "-c", `set -o pipefail; ${line} | ${pipe}`];
  return columns === undefined ? words : ["script", "-qec", line, "/dev/null"];
}

/** Lengths of time, addresses and places are different each time; so are the blanks that line them up. */
export function steady(text: string, setup?: CliBroker): string {
  const placed = setup === undefined ? text : text.replaceAll(setup.dir, "DIR").replaceAll(setup.broker.url, "URL");
  return placed
    .replace(/\b\d+(?:\.\d+)?(?:ms|s|m\d\ds|m|h\d\dm|h)\b/g, "TIME")
    .replace(/ {2,}/g, "  ")
    .trimEnd();
}

export const sh = (line: string) => ({ kind: "command", argv: [line], shell: true }) as const;
