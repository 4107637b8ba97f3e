/**
 * Where a local broker keeps the data of a directory: in its `.laboro`. If that cannot be used (a network filesystem,
 * where a database can be damaged; a `.laboro` of another user; a read-only directory), then in a directory of this
 * user on this machine, named after the directory.
 */
import { createHash } from "node:crypto";
import { accessSync, constants, existsSync, lstatSync } from "node:fs";
import { userInfo } from "node:os";
import { basename, dirname, join, resolve, sep } from "node:path";
import { errnoOf, LaboroError } from "../errors.js";
import { makeDirectory } from "./durable.js";
import { type FilesystemFacts, networkFilesystem } from "./filesystem.js";
import { acquireLock, type Lock } from "./lock.js";
import { distrustReason, openPrivateDirectory } from "./private-directory.js";

export const LOCAL_DATA = ".laboro";
/** On a local disk, writable by every user, and kept over a boot. */
const LOCAL = "/var/tmp";

interface LocalDataOptions extends FilesystemFacts {
  readonly baseDir?: string;
}

interface LocalData {
  readonly dir: string;
  /** Set if the data is not in the directory itself: why. */
  readonly elsewhere?: { readonly kind: "network" | "foreign" | "read-only"; readonly reason: string };
}

export function localData(directory: string, { baseDir = LOCAL, ...facts }: LocalDataOptions = {}): LocalData {
  const path = resolve(directory);
  const elsewhere = unusableReason(path, facts);
  if (elsewhere === undefined) return { dir: join(path, LOCAL_DATA) };
  const name = basename(path).replace(/[^\w.-]/g, "_");
  const hash = createHash("sha256").update(path).digest("hex").slice(0, 16);
  return { dir: join(userFolder(baseDir), `${name}-${hash}`), elsewhere };
}

/**
 * For a command that writes its results to the directory. It always needs `.laboro` there, for its lock and its
 * temporary files; only the database can be elsewhere.
 */
export function localDataForOutputs(directory: string): string {
  const { dir, elsewhere } = localData(directory);
  if (elsewhere === undefined || elsewhere.kind === "network") return dir;
  throw new LaboroError("LABORO_DATA_UNUSABLE", elsewhere.reason);
}

/** Whether this is the data directory of a local broker, which runs only while it is used. */
export function isLocalData(dir: string): boolean {
  const path = resolve(dir);
  return basename(path) === LOCAL_DATA || dirname(path) === userFolderPath(LOCAL);
}

function unusableReason(path: string, facts: FilesystemFacts): LocalData["elsewhere"] {
  const network = networkFilesystem(path, facts);
  if (network !== undefined) return { kind: "network", reason: `${path} is on a network filesystem (${network})` };
  const own = join(path, LOCAL_DATA);
  try {
    const foreign = distrustReason(own);
    if (foreign !== undefined) return { kind: "foreign", reason: `${own} is not used: ${foreign}` };
    // A missing directory is created by the caller.
    const existing = [own, path].find((dir) => existsSync(dir));
    if (existing !== undefined) accessSync(existing, constants.W_OK | constants.X_OK);
    return undefined;
  } catch (cause) {
    return { kind: "read-only", reason: `${path} cannot be written (${errnoOf(cause) ?? String(cause)})` };
  }
}

/**
 * Locks the directory itself if its data is elsewhere: a process on another machine has other data and would run all of
 * the work again. Data inside the directory has its own lock.
 */
export function lockDirectory(directory: string, data: string): Lock | undefined {
  const folder = join(resolve(directory), LOCAL_DATA);
  if (data === folder) return undefined;
  makeDirectory(folder, 0o777);
  return acquireLock(join(folder, "lock"), directory);
}

const userFolderPath = (baseDir: string): string => join(baseDir, `laboro-${userInfo().uid}`);

/** Other users can create directories in the same place, so its owner and mode are checked. */
function userFolder(baseDir: string): string {
  const folder = userFolderPath(baseDir);
  try {
    openPrivateDirectory(folder);
    if (!lstatSync(folder).isDirectory()) throw new Error("it is a link");
  } catch (cause) {
    const text = cause instanceof Error ? cause.message : String(cause);
    throw new LaboroError("LABORO_DATA_UNUSABLE", `${folder} cannot keep the data of this run: ${text}`, { cause });
  }
  return folder;
}

/** Data of runs inside tasks, below the data of the outer run. */
export const INNER = "inner";

/**
 * The data directory of a run inside a task of another run on `dir`. It is a separate one, because the inner run would
 * otherwise wait for slots that the tasks of the outer run hold. `key` distinguishes the runs of one task. The next
 * attempt of the task finds the same directory and resumes. Undefined if this process is not inside such a task.
 */
export function innerDataDir(dir: string, key: string): string | undefined {
  const { LABORO_RUN: outer = "", LABORO_JOB: job, LABORO_TASK: task } = process.env;
  if (job === undefined || task === undefined || !`${outer}${sep}`.startsWith(`${resolve(dir)}${sep}`))
    return undefined;
  return join(outer, INNER, `${job}.${task}-${key.slice(0, 12)}`);
}
