/** What laboro needs of the machine. */
import { accessSync, constants, readFileSync } from "node:fs";
import { packageVersion } from "../../../base/package.js";
import { type Check, fail, ok, warn } from "./check.js";

/** The oldest release of each line that loads ES modules by require(), as in package.json's `engines`. Newer lines all do. */
const OLDEST_NODE: Readonly<Record<number, number>> = { 20: 19, 22: 12 };
const NEWEST_LISTED = 22;
/** A worker needs a few for each task, a broker one for each link. */
const FEW_FILES = 1_024;

export function checkMachine(): Check[] {
  return [checkNode(process.versions.node), checkShell("/bin/sh"), ...checkOpenFiles(readLimits())];
}

export function checkNode(version: string): Check {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  const oldest = OLDEST_NODE[major];
  const good = oldest === undefined ? major > NEWEST_LISTED : minor >= oldest;
  const what = `laboro ${packageVersion()} on Node ${version}`;
  return good ? ok(what) : fail(what, "use Node 20.19 or a later 20, or Node 22.12 or newer");
}

function checkShell(path: string): Check {
  try {
    accessSync(path, constants.X_OK);
    return ok(`${path} is there`);
  } catch {
    return fail(`${path} cannot be run`, "commands given as one line need it: install a shell there");
  }
}

function checkOpenFiles(limits: string): Check[] {
  // Node raises its own limit to the hard one, so that is the one that counts.
  const [, hard] = /^Max open files\s+\S+\s+(\S+)/m.exec(limits) ?? [];
  if (hard === undefined) return [];
  const what = `${hard} files may be open at once (ulimit -Hn)`;
  if (hard === "unlimited" || Number(hard) >= FEW_FILES) return [ok(what)];
  return [warn(what, `raise it with ulimit -n ${FEW_FILES} before laboro starts, or use fewer slots`)];
}

function readLimits(): string {
  try {
    return readFileSync("/proc/self/limits", "utf8");
  } catch {
    // Only Linux has it.
    return "";
  }
}
