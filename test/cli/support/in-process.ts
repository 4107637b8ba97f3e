/**
 * The command line in the test's own process: most tests are about what a verb says, and a process for each would take most of their
 * time. During a call, code that the call has started sees the standard streams and the environment that belong to it; the test, its
 * broker and its workers still see those of the process.
 */
import { AsyncLocalStorage } from "node:async_hooks";
import { Readable, Writable } from "node:stream";
import { runProgram } from "../../../src/cli/lib/program.js";
import type { Said } from "./cli.js";

/** Verbs that do something and are done. Others wait for signals, write past the streams or leave with `process.exit`. */
const VERBS = new Set([
  ...["brokers", "cancel", "clean", "close", "completion", "config", "decode", "doctor", "drain", "edit", "explain"],
  ...["forgive", "help", "hold", "keys", "limit", "limits", "logs", "open", "pause", "release", "request", "rerun"],
  ...["resume", "run", "schedule", "services", "status", "stop", "submit", "tasks", "undrain", "wait", "workers"],
]);

interface Call {
  readonly env: NodeJS.ProcessEnv;
  readonly stdin: Readable;
  readonly stdout: Writable;
  readonly stderr: Writable;
}

const calls = new AsyncLocalStorage<Call>();
let busy = false;

for (const name of ["env", "stdin", "stdout", "stderr"] as const) {
  const before = Object.getOwnPropertyDescriptor(process, name);
  const own = (): unknown => (before?.get === undefined ? before?.value : before.get.call(process));
  Object.defineProperty(process, name, { configurable: true, get: () => calls.getStore()?.[name] ?? own() });
}

/** Whether a call with these words can share the process now: there is one exit code, so there is one call at a time. */
export function canShare(args: readonly string[]): boolean {
  const [first = "status", second = ""] = args;
  return !busy && (VERBS.has(first) || first.startsWith("-") || (first === "scale0" && second === "request"));
}

export async function callInProcess(
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  input: string | Uint8Array = "",
  cwd: string = process.cwd(),
): Promise<Said> {
  const [stdout, stderr] = [new Collected(), new Collected()];
  const stdin = Readable.from(input.length === 0 ? [] : [Buffer.from(input)], { objectMode: false });
  const [codeBefore, cwdBefore] = [process.exitCode, process.cwd()];
  busy = true;
  try {
    process.exitCode = undefined;
    process.chdir(cwd);
    await calls.run({ env, stdin, stdout, stderr }, () => runProgram(args));
    return { code: Number(process.exitCode ?? 0), stdout: stdout.text, stderr: stderr.text };
  } finally {
    process.exitCode = codeBefore;
    process.chdir(cwdBefore);
    busy = false;
  }
}

class Collected extends Writable {
  readonly #parts: Buffer[] = [];

  get text(): string {
    return Buffer.concat(this.#parts).toString();
  }

  override _write(part: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.#parts.push(part);
    done();
  }
}
