/**
 * The data directory: created if missing, private to its user, not on a network filesystem, and locked by this process.
 */
import * as fs from "node:fs";
import { join, resolve } from "node:path";
import { LaboroError } from "../../base/errors.js";
import { type FilesystemFacts, networkFilesystem } from "../../base/files/filesystem.js";
import { acquireLock } from "../../base/files/lock.js";
import { openPrivateDirectory } from "../../base/files/private-directory.js";
import { storeFailure, unusable } from "./failures.js";

export interface DataDirectory {
  release(): void;
}

interface DataDirectoryOptions {
  readonly dir: string;
  readonly allowNetworkFilesystem: boolean;
  /** Facts about the filesystem, for tests; read from the system if absent. */
  readonly facts?: FilesystemFacts;
}

export function openDataDirectory({ dir, allowNetworkFilesystem, facts }: DataDirectoryOptions): DataDirectory {
  try {
    if (!allowNetworkFilesystem) refuseNetwork(dir, facts);
    openPrivateDirectory(resolve(dir));
    fs.accessSync(dir, fs.constants.R_OK | fs.constants.W_OK | fs.constants.X_OK);
    return acquireLock(join(dir, "lock"), `the data directory ${dir}`);
  } catch (cause) {
    const failure = storeFailure(cause, dir);
    // Whatever else keeps a directory from being made or locked is a matter of the directory, not of the store.
    throw failure.code === "LABORO_STORE_FAILED" ? unusable(dir, failure.message, cause) : failure;
  }
}

function refuseNetwork(dir: string, facts: FilesystemFacts | undefined): void {
  const name = networkFilesystem(dir, facts);
  if (name === undefined) return;
  throw new LaboroError(
    "LABORO_DATA_NETWORK_FS",
    `the data directory ${dir} lies on a network filesystem (${name}), where a database can be damaged: give one on a local disk with --data, such as a directory in /var/tmp`,
  );
}
