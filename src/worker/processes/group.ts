import { readdirSync, readFileSync } from "node:fs";
import { errnoOf } from "../../base/errors.js";

/** Signals every process of a group. One that is gone, or runs as another user, is left alone. */
export function signalGroup(group: number, name: NodeJS.Signals): void {
  try {
    process.kill(-group, name);
  } catch (cause) {
    const errno = errnoOf(cause);
    if (errno !== "ESRCH" && errno !== "EPERM") throw cause;
  }
}

/** How long to wait for a killed group to vanish: a process may be stuck in the kernel. */
const GROUP_EXIT_TIMEOUT_MS = 2_000;
const POLL_MS = 5;
/** After this time the rest may be zombies that their new parent is slow to reap; they do nothing any more. */
const ZOMBIES_AFTER_MS = 20;

/** Calls back, perhaps at once, when no process of a killed group does anything any more. */
export function whenGroupGone(group: number, then: () => void): void {
  const start = performance.now();
  const check = (): void => {
    const waited = performance.now() - start;
    if (!groupExists(group) || waited > GROUP_EXIT_TIMEOUT_MS || (waited > ZOMBIES_AFTER_MS && onlyZombies(group)))
      then();
    else setTimeout(check, waited < ZOMBIES_AFTER_MS ? POLL_MS : POLL_MS * 8);
  };
  check();
}

function groupExists(group: number): boolean {
  try {
    process.kill(-group, 0);
    return true;
  } catch (cause) {
    return errnoOf(cause) === "EPERM";
  }
}

/** Goes through all processes, where the system shows them; false where it does not. */
function onlyZombies(group: number): boolean {
  let seen = false;
  for (const name of listOf("/proc")) {
    if (!/^[0-9]+$/.test(name)) continue;
    // "pid (name) state ppid pgrp …", and the name may hold anything.
    const [state, , pgrp] = textOf(`/proc/${name}/stat`)
      .replace(/^.*\) /s, "")
      .split(" ");
    if (Number(pgrp) !== group) continue;
    if (state !== "Z" && state !== "X") return false;
    seen = true;
  }
  return seen;
}

function listOf(dir: string): string[] {
  try {
    return readdirSync(dir);
  } catch {
    return [];
  }
}

/** Empty for a process that ended between the listing and now. */
function textOf(file: string): string {
  try {
    return readFileSync(file, "latin1");
  } catch {
    return "";
  }
}
