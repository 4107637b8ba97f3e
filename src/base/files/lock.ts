/**
 * A lock on a directory, held by one process at a time and left behind harmlessly by one that dies.
 *
 * Each claimant creates a file of its own, `<path>-<random>`, that names its process; then it reads the files of the others. It holds
 * the lock if none of them belongs to a live process. Of two that claim at once at least one sees the other's file, so they never
 * both hold it. Where each sees the other, both remove their file, wait a random time and try again. Any process can remove the file
 * of a dead one, because its name is never used again.
 *
 * A holder is dead if its machine has booted since, or if its process id is gone or belongs to a process that started at another
 * time. A holder on another machine, or in a process namespace that cannot be seen from here, counts as alive.
 */
import { randomBytes } from "node:crypto";
import * as fs from "node:fs";
import { basename, dirname, join } from "node:path";
import { errnoOf, LaboroError } from "../errors.js";
import { writeFileAtomically } from "./durable.js";
import { isAlive, type ProcessIdentity, parseProcessIdentity, thisProcess } from "./process-identity.js";

export interface Lock {
  readonly path: string;
  /** Gives the lock back; a second call does nothing. */
  release(): void;
}

const TRIES = 20;

/** Takes the lock at this path; `what` names what is locked in the error LABORO_DATA_IN_USE, and `instead` what else could be done. */
export function acquireLock(path: string, what: string, instead?: string): Lock {
  const text = `${JSON.stringify(thisProcess())}\n`;
  let before: string | undefined;
  for (let tries = 1; ; tries++) {
    const own = `${path}-${randomBytes(8).toString("hex")}`;
    // A rename makes it appear whole: nobody ever reads half a name.
    writeFileAtomically(own, text);
    const release = (): void => fs.rmSync(own, { force: true });
    let holder: Holder | undefined;
    try {
      holder = findHolder(path, own);
    } catch (cause) {
      release();
      throw cause;
    }
    if (holder === undefined) return { path: own, release };
    release();
    // Each try has a new name, so one that is still there does not merely claim the lock.
    if (holder.file === before || tries === TRIES) throw inUse(holder, what, instead);
    before = holder.file;
    pause(1 + Math.random() * 10 * tries);
  }
}

interface Holder {
  readonly file: string;
  readonly process: ProcessIdentity | undefined;
}

/** Another claimant that is alive, or may be; files of dead ones are removed. */
function findHolder(path: string, own: string): Holder | undefined {
  const directory = dirname(path);
  const form = /^-[0-9a-f]{16}$/;
  for (const name of fs.readdirSync(directory)) {
    const file = join(directory, name);
    if (!name.startsWith(basename(path)) || file === own || !form.test(name.slice(basename(path).length))) continue;
    let text: string;
    try {
      text = fs.readFileSync(file, "utf8");
    } catch (cause) {
      if (errnoOf(cause) === "ENOENT") continue;
      throw new LaboroError("LABORO_DATA_UNUSABLE", `cannot read the lock ${file}`, { cause });
    }
    const process = parseProcessIdentity(text);
    if (process === undefined || isAlive(process)) return { file, process };
    fs.rmSync(file, { force: true });
  }
  return undefined;
}

function inUse({ file, process }: Holder, what: string, instead: string | undefined): LaboroError {
  const who = process === undefined ? "an unknown process" : `process ${process.pid} on ${process.host}`;
  const remedy = `${instead === undefined ? "Stop it first" : `${instead}, or stop it first`}; if it is gone for certain, remove ${file}.`;
  return new LaboroError("LABORO_DATA_IN_USE", `${what} is in use by ${who}. ${remedy}`);
}

/** Taking a lock is part of a synchronous start; the wait is milliseconds, and only where another claims at the same time. */
function pause(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}
