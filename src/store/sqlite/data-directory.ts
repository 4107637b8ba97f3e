/** The data directory: created if missing, not on a network filesystem, and locked by this process. */
import * as fs from "node:fs";
import { dirname, join, resolve } from "node:path";
import { LaboroError } from "../../base/errors.js";
import { makeDirectory, syncDirectory } from "../../base/files/durable.js";
import { type FilesystemFacts, networkFilesystem } from "../../base/files/filesystem.js";
import { acquireLock } from "../../base/files/lock.js";
import { storeFailure, unusable } from "./failures.js";

export interface DataDirectory {
  release(): void;
}

export interface DataDirectoryOptions {
  readonly dir: string;
  readonly allowNetworkFilesystem: boolean;
  /** Facts about the filesystem, for tests; read from the system if absent. */
  readonly facts?: FilesystemFacts;
}

export function openDataDirectory({ dir, allowNetworkFilesystem, facts }: DataDirectoryOptions): DataDirectory {
  try {
    if (!allowNetworkFilesystem) refuseNetwork(dir, facts);
    makeDurable(resolve(dir));
    fs.accessSync(dir, fs.constants.R_OK | fs.constants.W_OK | fs.constants.X_OK);
    return acquireLock(join(dir, "lock"), `the data directory ${dir}`);
  } catch (cause) {
    const failure = storeFailure(cause, dir);
    // Whatever else keeps a directory from being made or locked is a matter of the directory, not of the store.
    throw failure.code === "LABORO_STORE_FAILED" ? unusable(dir, failure.message, cause) : failure;
  }
}

/** What is synced inside a directory is found again only if its own name was synced, and those above it that are new. */
function makeDurable(dir: string): void {
  const topmost = makeDirectory(dir, 0o700);
  if (topmost === undefined) return;
  for (let made = dir; ; made = dirname(made)) {
    syncDirectory(dirname(made));
    if (made === topmost) return;
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
