/**
 * Processes and folders of one bench. Every process is ended by its own id, every folder is removed, also after an error or Ctrl-C.
 */
import { execFileSync, fork, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const running = new Set();
const folders = new Set();
let base = tmpdir();

export const setBase = (dir) => {
  base = dir;
};

export function temporaryFolder(name) {
  const dir = mkdtempSync(join(base, `laboro-bench-${name}-`));
  folders.add(dir);
  return dir;
}

export function removeFolder(dir) {
  folders.delete(dir);
  rmSync(dir, { recursive: true, force: true, maxRetries: 3 });
}

/** `{ pid, child, stop }`; the end of its output is kept for the message of a failure. */
export function start(command, args, options = {}) {
  return watch(spawn(command, args, { stdio: ["ignore", "pipe", "pipe"], ...options }), command);
}

/** A module of the bench as a process of its own, with a channel for messages. */
export function startModule(path, args = [], execArgv = []) {
  return watch(
    fork(path, args, { stdio: ["ignore", "pipe", "pipe", "ipc"], execArgv, serialization: "advanced" }),
    path,
  );
}

function watch(child, what) {
  let said = "";
  const remember = (bytes) => {
    said = (said + bytes).slice(-4_000);
  };
  child.stdout?.on("data", remember);
  child.stderr?.on("data", remember);
  const ended = new Promise((resolve) => {
    child.once("error", (error) => resolve(error));
    child.once("close", (code, signal) => resolve(code ?? signal));
  });
  const process = {
    child,
    pid: child.pid,
    ended,
    said: () => said,
    /** The first match in its output. */
    says: (pattern, timeoutMs = 20_000) => untilSaid(process, what, pattern, timeoutMs),
    ask: (message, timeoutMs = 300_000) => ask(process, what, message, timeoutMs),
    stop: (signal = "SIGTERM") => stop(process, signal),
  };
  running.add(process);
  ended.then(() => running.delete(process));
  return process;
}

function untilSaid(process, what, pattern, timeoutMs) {
  return orFailure(process, what, timeoutMs, `did not say ${pattern}`, (resolve) => {
    const check = () => {
      const found = pattern.exec(process.said());
      if (found === null) return;
      process.child.stdout.off("data", check);
      process.child.stderr.off("data", check);
      resolve(found);
    };
    process.child.stdout.on("data", check);
    process.child.stderr.on("data", check);
    check();
  });
}

function ask(process, what, message, timeoutMs) {
  return orFailure(process, what, timeoutMs, "did not answer", (resolve, reject) => {
    process.child.once("message", (answer) => (answer.error ? reject(new Error(answer.error)) : resolve(answer)));
    process.child.send(message);
  });
}

function orFailure(process, what, timeoutMs, problem, begin) {
  return new Promise((resolve, reject) => {
    const fail = (why) => reject(new Error(`${what} ${why}: ${process.said().trim()}`));
    const timer = setTimeout(() => fail(`${problem} within ${timeoutMs} ms`), timeoutMs);
    process.ended.then((how) => fail(`ended (${how})`));
    begin(
      (value) => {
        clearTimeout(timer);
        resolve(value);
      },
      (error) => {
        clearTimeout(timer);
        reject(error);
      },
    );
  });
}

async function stop(process, signal) {
  if (!running.has(process)) return;
  process.child.kill(signal);
  const timer = setTimeout(() => process.child.kill("SIGKILL"), 10_000);
  await process.ended;
  clearTimeout(timer);
}

export async function cleanUp() {
  await Promise.all([...running].map((process) => process.stop()));
  for (const dir of [...folders]) removeFolder(dir);
}

/** The path of a program, or undefined where it is not installed. */
export function which(program) {
  try {
    return execFileSync("sh", ["-c", 'command -v "$1"', "sh", program], {
      encoding: "utf8",
      env: { ...process.env, PATH: `${process.env.PATH}:/usr/sbin:/usr/local/sbin` },
    }).trim();
  } catch {
    return undefined;
  }
}
