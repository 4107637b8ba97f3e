/**
 * A lock on a directory, held by one process at a time. The kernel releases it when the process ends.
 *
 * Each claimant creates its own named pipe, `<path>-<host>-<pid>-<digits>`, and keeps it open for reading. Opening such
 * a pipe for writing fails with ENXIO if no process of this kernel has it open. Then its claimant is dead, even if it
 * was in another container, and any process may remove the pipe, because its name is never used again. A claimant holds
 * the lock if no other pipe is open. Of two concurrent claimants at least one sees the other's pipe, so they never both
 * hold the lock. If each sees the other, both remove their pipe, wait a random time and try again.
 *
 * The kernel does not know processes on other machines. So on a network filesystem a pipe of another machine counts as
 * open.
 */
import { spawnSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import * as fs from "node:fs";
import { hostname } from "node:os";
import { basename, dirname, join } from "node:path";
import { errnoOf, LaboroError } from "../errors.js";
import { unusable } from "./durable.js";
import { type FilesystemFacts, networkFilesystem } from "./filesystem.js";

export interface Lock {
  readonly path: string;
  /** A second call does nothing. */
  release(): void;
}

const TRIES = 20;
const { O_RDONLY, O_WRONLY, O_NONBLOCK } = fs.constants;

/**
 * Takes the lock at this path. For the error LABORO_DATA_IN_USE, `what` is the locked thing and `instead` an
 * alternative. `facts` about the filesystem are for tests.
 */
export function acquireLock(path: string, what: string, instead?: string, facts?: FilesystemFacts): Lock {
  let before: string | undefined;
  for (let tries = 1; ; tries++) {
    let holder = findHolder(path, facts);
    if (holder === undefined) {
      const lock = claim(path);
      try {
        holder = findHolder(path, facts, lock.path);
      } catch (cause) {
        lock.release();
        throw cause;
      }
      if (holder === undefined) return lock;
      lock.release();
    }
    // Each try uses a new name, so a claimant whose pipe is unchanged holds the lock.
    if (holder.file === before || tries === TRIES) throw inUse(holder, what, instead);
    before = holder.file;
    pause(1 + Math.random() * 10 * tries);
  }
}

/** The pipe gets its name after it is open. Before that, others would take its claimant for dead. */
function claim(path: string): Lock {
  const digits = hash(machine()) + hash(bootId() ?? "") + randomBytes(4).toString("hex");
  const own = `${path}-${hostname().replace(/[^\w.-]/g, "_")}-${process.pid}-${digits}`;
  const draft = `${own}.new`;
  try {
    makePipe(draft);
    const fd = fs.openSync(draft, O_RDONLY | O_NONBLOCK);
    fs.renameSync(draft, own);
    let held = true;
    const release = (): void => {
      if (!held) return;
      held = false;
      fs.rmSync(own, { force: true });
      fs.closeSync(fd);
    };
    return { path: own, release };
  } catch (cause) {
    fs.rmSync(draft, { force: true });
    throw unusable(cause, `cannot make the lock ${own}`);
  }
}

/**
 * Node has no mkfifo(3). If there is no program mkfifo, or the filesystem has no pipes, a regular file is the lock. It
 * counts as open until it is removed.
 */
function makePipe(path: string): void {
  const env = { PATH: `${process.env.PATH ?? ""}:/usr/bin:/bin` };
  const { status, error, stderr } = spawnSync("mkfifo", ["-m", "600", path], { env, encoding: "utf8" });
  if (status === 0) return;
  // Fails with the system's reason, such as a full disk.
  fs.closeSync(fs.openSync(path, "wx", 0o600));
  if (errnoOf(error) === "ENOENT" || networkFilesystem(dirname(path)) !== undefined) return;
  throw error ?? new Error(stderr.trim());
}

type Holder = Readonly<Record<"file" | "process", string>>;

/** Finds another claimant that is or may be alive. Removes the pipes of dead ones. */
function findHolder(path: string, facts: FilesystemFacts | undefined, own?: string): Holder | undefined {
  const directory = dirname(path);
  for (const name of fs.readdirSync(directory)) {
    const file = join(directory, name);
    if (!name.startsWith(`${basename(path)}-`) || file === own) continue;
    const found = /^-(.+)-(\d+)-([0-9a-f]{8})([0-9a-f]{8})[0-9a-f]{8}$/.exec(name.slice(basename(path).length));
    if (found === null) continue;
    const [, host, pid, onMachine, onBoot] = found;
    if (isOpen(file) || isElsewhere(onMachine, onBoot, directory, facts))
      return { file, process: `process ${pid} on ${host}` };
    fs.rmSync(file, { force: true });
  }
  return undefined;
}

function isOpen(file: string): boolean {
  try {
    fs.closeSync(fs.openSync(file, O_WRONLY | O_NONBLOCK));
    return true;
  } catch (cause) {
    const errno = errnoOf(cause);
    if (errno === "ENXIO" || errno === "ENOENT") return false;
    throw new LaboroError("LABORO_DATA_UNUSABLE", `cannot read the lock ${file}`, { cause });
  }
}

function isElsewhere(
  onMachine: string | undefined,
  onBoot: string | undefined,
  directory: string,
  facts: FilesystemFacts | undefined,
): boolean {
  const boot = bootId();
  // The same boot id is the same kernel, whatever the host name of a container is.
  if (onMachine === hash(machine()) || (boot !== undefined && onBoot === hash(boot))) return false;
  return networkFilesystem(directory, facts) !== undefined;
}

function inUse({ file, process }: Holder, what: string, instead: string | undefined): LaboroError {
  const remedy = `${instead === undefined ? "Stop it first" : `${instead}, or stop it first`}; if it has certainly ended, remove ${file}.`;
  return new LaboroError("LABORO_DATA_IN_USE", `${what} is in use by ${process}. ${remedy}`);
}

/** Changes with each boot of the machine. */
const bootId = (): string | undefined => read("/proc/sys/kernel/random/boot_id");
/** Two machines can have the same host name. */
const machine = (): string => `${hostname()} ${read("/etc/machine-id") ?? ""}`;
const hash = (text: string): string => createHash("sha256").update(text).digest("hex").slice(0, 8);

function read(path: string): string | undefined {
  try {
    return fs.readFileSync(path, "utf8").trim();
  } catch {
    // Not Linux.
    return undefined;
  }
}

/** Blocks, because a start takes locks synchronously. It waits for milliseconds, only with concurrent claimants. */
function pause(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}
