/**
 * Directories of one user only: the data directories of brokers and workers. A user who can write there can add a token
 * or a job, and a user who can read there gets the tokens. So the owner and the mode are checked before anything is
 * read.
 */
import * as fs from "node:fs";
import { dirname, join } from "node:path";
import { errnoOf, LaboroError } from "../errors.js";
import { makeDirectory, syncDirectory, unusable } from "./durable.js";

const ROOT = 0;
const OTHERS_WRITE = 0o022;
const OTHERS = 0o077;
/** Files of laboro in such a directory. Their modes are restricted together with the directory. */
const KEPT_FILES =
  /^(?:store\.db(?:-wal|-shm)?|(?:access|tokens|certificates|curve|group|brokers)\.json|(?:join|client)\.url|ca\.pem|worker-secret|results|last-commit)$/;

/** Why the directory cannot be trusted; undefined if it can, or if it does not exist. */
export function distrustReason(dir: string): string | undefined {
  try {
    return foreignReason(dir);
  } catch (cause) {
    // A parent may be no directory, or closed to this user: a program that changed its user may have the old HOME.
    return `it cannot be read (${errnoOf(cause)})`;
  }
}

function foreignReason(dir: string): string | undefined {
  // Windows has no owners and modes.
  const own = process.getuid?.();
  const link = fs.lstatSync(dir, { throwIfNoEntry: false });
  if (own === undefined || link === undefined) return undefined;
  const isForeign = (uid: number): boolean => uid !== own && uid !== ROOT;
  if (link.isSymbolicLink() && isForeign(link.uid)) return `it is a link of another user (uid ${link.uid})`;
  const found = fs.statSync(dir, { throwIfNoEntry: false });
  if (found === undefined || !found.isDirectory()) return undefined;
  if (found.uid !== own) return `it belongs to another user (uid ${found.uid}; this is uid ${own})`;
  if ((found.mode & OTHERS_WRITE) !== 0) return `others can write to it (mode ${octal(found.mode)})`;
  // Other users may have put them there.
  for (const name of fs.readdirSync(dir)) {
    const uid = fs.lstatSync(join(dir, name), { throwIfNoEntry: false })?.uid ?? own;
    if (isForeign(uid)) return `it contains ${name}, which belongs to another user (uid ${uid})`;
  }
  return undefined;
}

/** Throws LABORO_DATA_UNUSABLE if the directory exists and cannot be trusted. */
export function refuseForeignDirectory(dir: string): void {
  const reason = distrustReason(dir);
  if (reason === undefined) return;
  throw new LaboroError(
    "LABORO_DATA_UNUSABLE",
    `the directory ${dir} is not used, because ${reason}: name a directory that only you can write (if this one is yours, check its content, then chmod 700)`,
  );
}

/**
 * Creates the directory, or checks an existing one and removes the rights of others. Syncs the parents of new
 * directories, because files in a directory are durable only if its own name is.
 */
export function openPrivateDirectory(dir: string): void {
  try {
    makeOrRestrict(dir);
  } catch (cause) {
    throw unusable(cause, `cannot use the directory ${dir}`);
  }
}

function makeOrRestrict(dir: string): void {
  const topmost = makeDirectory(dir, 0o700);
  refuseForeignDirectory(dir);
  if (topmost === undefined) {
    restrictModes(dir);
    return;
  }
  for (let made = dir; ; made = dirname(made)) {
    syncDirectory(dirname(made));
    if (made === topmost) return;
  }
}

function restrictModes(dir: string): void {
  const { mode } = fs.statSync(dir);
  if (process.getuid === undefined || (mode & OTHERS) === 0) return;
  fs.chmodSync(dir, mode & 0o700);
  // Some filesystems accept chmod and do nothing.
  const after = fs.statSync(dir).mode;
  if ((after & OTHERS) !== 0) {
    throw new LaboroError(
      "LABORO_DATA_UNUSABLE",
      `the directory ${dir} is not used, because others can read it (mode ${octal(after)}) and its filesystem does not allow a change`,
    );
  }
  for (const name of fs.readdirSync(dir)) if (KEPT_FILES.test(name)) restrictFile(join(dir, name));
}

function restrictFile(path: string): void {
  try {
    const found = fs.lstatSync(path);
    if (found.isFile() && (found.mode & OTHERS) !== 0) fs.chmodSync(path, found.mode & 0o700);
  } catch (cause) {
    // The file was replaced or removed meanwhile.
    if (errnoOf(cause) !== "ENOENT") throw cause;
  }
}

export const octal = (mode: number): string => (mode & 0o777).toString(8).padStart(4, "0");
