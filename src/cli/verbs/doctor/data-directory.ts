/** The data directory of a broker on this machine. */
import * as fs from "node:fs";
import { join } from "node:path";
import { LaboroError } from "../../../base/errors.js";
import { networkFilesystem } from "../../../base/files/filesystem.js";
import { acquireLock } from "../../../base/files/lock.js";
import { distrustReason } from "../../../base/files/private-directory.js";
import { formatSize } from "../../../base/format.js";
import { damageReports, findDamage } from "../../../store/sqlite/damage.js";
import { findMiscounted, inspectDatabase } from "../../../store/sqlite/inspect.js";
import { type Check, fail, messageOf, ok, warn } from "./check.js";

const DATABASE = "store.db";
const RESTORE = "restore it from a backup, or move it away to start with an empty one";
const LOW_SPACE = 1024 ** 3;
const NO_SPACE = 64 * 1024 ** 2;
/** Files with tokens or keys. */
const SECRETS = /^(?:access|tokens|certificates)\.json$|\.key$|^join/;

export function checkDataDirectory(dir: string): Check[] {
  const stat = fs.statSync(dir, { throwIfNoEntry: false });
  if (stat === undefined)
    return [ok(`the data directory ${dir} is not there; laboro serve makes it`), ...checkDisk(dir)];
  if (!stat.isDirectory()) return [fail(`${dir} is no directory`, "give another with --data")];
  try {
    fs.accessSync(dir, fs.constants.R_OK | fs.constants.W_OK | fs.constants.X_OK);
  } catch {
    return [
      fail(`the data directory ${dir} cannot be read and written`, "give another with --data, or change its owner"),
    ];
  }
  const foreign = distrustReason(dir);
  if (foreign !== undefined)
    return [
      fail(`the data directory ${dir} is not used: ${foreign}`, "make it yours alone, or give another with --data"),
    ];
  return [
    ok(`the data directory ${dir} has mode ${octal(stat.mode)}`),
    ...checkDisk(dir),
    ...checkSecrets(dir),
    ...damageReports(dir).map((report) => fail(report)),
    checkDatabase(dir),
  ];
}

function checkDisk(dir: string): Check[] {
  try {
    const network = networkFilesystem(dir);
    const kind =
      network === undefined
        ? ok("it lies on a local filesystem")
        : warn(`it lies on a network filesystem (${network})`, "a database can be damaged there: use a local disk");
    return [kind, ...checkSpace(dir)];
  } catch (cause) {
    return [warn(`its filesystem cannot be checked: ${messageOf(cause)}`, "check that the path is right")];
  }
}

function checkSpace(dir: string): Check[] {
  if (!fs.existsSync(dir)) return [];
  const { bavail, bsize } = fs.statfsSync(dir);
  const free = bavail * bsize;
  const what = `${formatSize(free)} are free there`;
  const remedy = "free disk space, for example with laboro clean --older-than 7d";
  if (free >= LOW_SPACE) return [ok(what)];
  return [free >= NO_SPACE ? warn(what, remedy) : fail(what, remedy)];
}

function checkSecrets(dir: string): Check[] {
  const secrets = fs.readdirSync(dir).filter((name) => SECRETS.test(name));
  const open = secrets.filter((name) => (fs.statSync(join(dir, name)).mode & 0o077) !== 0);
  if (open.length > 0) {
    const files = open.map((name) => join(dir, name)).join(" ");
    return [fail(`others can read ${open.join(", ")}`, `chmod 600 ${files}, and start the broker with a new token`)];
  }
  return secrets.length === 0 ? [] : [ok(`only you can read ${secrets.join(", ")}`)];
}

/** Under the lock, so that no broker starts meanwhile. One that runs has checked its files itself. */
function checkDatabase(dir: string): Check {
  const file = join(dir, DATABASE);
  try {
    const lock = acquireLock(join(dir, "lock"), `the data directory ${dir}`);
    try {
      const stored = inspectDatabase(file);
      const damage = findDamage(file, stored);
      if (damage !== undefined)
        return fail(`no broker runs there; ${damage.text}`, "restore a backup, or start without it");
      if (stored.commits === 0) return ok("no broker has kept anything there yet");
      const jobs = findMiscounted(file);
      if (jobs.length === 0) return ok("no broker runs there; its database is whole");
      return fail(`the counters of these jobs differ from their results: ${jobs.join(", ")}`, RESTORE);
    } finally {
      lock.release();
    }
  } catch (cause) {
    if (cause instanceof LaboroError && cause.code === "LABORO_DATA_IN_USE") {
      const [, holder = "another process"] = /in use by (.+?)\. /.exec(cause.message) ?? [];
      return ok(`it is in use by ${holder}, which checked it when it started`);
    }
    return fail(messageOf(cause), RESTORE);
  }
}

const octal = (mode: number): string => (mode & 0o777).toString(8).padStart(4, "0");
