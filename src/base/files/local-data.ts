/**
 * Where a local broker keeps its data for a directory: in `.laboro` there. On a network filesystem a database can be damaged; then in
 * a folder of this user on this machine, named after the directory.
 */
import { createHash } from "node:crypto";
import { lstatSync } from "node:fs";
import { userInfo } from "node:os";
import { basename, join, resolve } from "node:path";
import { LaboroError } from "../errors.js";
import { makeDirectory } from "./durable.js";
import { type FilesystemFacts, networkFilesystem } from "./filesystem.js";
import { acquireLock, type Lock } from "./lock.js";

export const LOCAL_DATA = ".laboro";
/** On a local disk, writable by every user, and kept over a boot. */
const LOCAL = "/var/tmp";

export interface LocalDataOptions extends FilesystemFacts {
  readonly baseDir?: string;
}

export function localDataDir(directory: string, { baseDir = LOCAL, ...facts }: LocalDataOptions = {}): string {
  const path = resolve(directory);
  if (networkFilesystem(path, facts) === undefined) return join(path, LOCAL_DATA);
  const name = basename(path).replace(/[^\w.-]/g, "_");
  const hash = createHash("sha256").update(path).digest("hex").slice(0, 16);
  return join(userFolder(baseDir), `${name}-${hash}`);
}

/**
 * The lock of the directory itself, where its data is elsewhere: a process on another machine has other data, and would do all of the
 * work too. Data inside the directory has a lock of its own.
 */
export function lockDirectory(directory: string, data: string): Lock | undefined {
  const folder = join(resolve(directory), LOCAL_DATA);
  if (data === folder) return undefined;
  makeDirectory(folder, 0o777);
  return acquireLock(join(folder, "lock"), directory);
}

/** Other users may create folders beside it, so its owner and mode are checked. */
function userFolder(baseDir: string): string {
  const { uid } = userInfo();
  const folder = join(baseDir, `laboro-${uid}`);
  makeDirectory(folder, 0o700);
  const found = lstatSync(folder);
  if (!found.isDirectory() || found.uid !== uid || (found.mode & 0o077) !== 0) {
    throw new LaboroError(
      "LABORO_DATA_UNUSABLE",
      `${folder} is to hold the data of runs on network filesystems, but it is not a folder that is yours alone`,
    );
  }
  return folder;
}
