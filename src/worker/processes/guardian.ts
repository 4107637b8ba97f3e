/**
 * Ensures that no task outlives its agent. A shell in its own session, out of reach of the terminal's Ctrl-C, reads
 * from a pipe whose other end only the agent has. The agent sends it the list of process groups at every change. When
 * the pipe closes, even by kill -9 of the agent, it sends SIGTERM to all of them, SIGKILL a second later, removes the
 * agent's folder of pipes and ends.
 *
 *   unused     no process and no folder: a worker that only calls functions needs neither
 *   watching   receives every change; if it dies, it is started again with the whole list
 *   closed     has received the empty list, and its pipe is closed
 */
import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { errnoOf } from "../../base/errors.js";
import { quote } from "../../model/shell-command-list.js";

interface GuardianOptions {
  readonly shell: readonly [string, ...string[]];
  /** Where the agent's folder of pipes is created. */
  readonly parent: string;
}

const RESTART_MS = 200;

export class Guardian {
  private readonly options: GuardianOptions;
  private readonly groups = new Set<number>();
  private child: ChildProcess | undefined;
  private readonly folder: string;
  private made = false;
  private closed = false;

  constructor(options: GuardianOptions) {
    this.options = options;
    this.folder = join(options.parent, `laboro-${randomBytes(6).toString("hex")}`);
  }

  /** Starts it at the first call. Returns the agent's folder of pipes, which it removes when the agent is gone. */
  open(): string {
    if (!this.made) {
      // It is there before the folder, so that none is left of an agent that is killed in between.
      if (this.child === undefined) this.start();
      mkdirSync(this.folder, { mode: 0o700 });
      this.made = true;
    }
    return this.folder;
  }

  get pid(): number | undefined {
    return this.child?.pid;
  }

  watch(group: number): void {
    this.groups.add(group);
    this.open();
    this.sendGroups();
  }

  unwatch(group: number): void {
    this.groups.delete(group);
    this.sendGroups();
  }

  /** Ends it without harm to any group. The folder is removed here: that takes no process. */
  async close(): Promise<void> {
    this.closed = true;
    this.groups.clear();
    if (this.made) rmSync(this.folder, { recursive: true, force: true });
    const child = this.child;
    if (child?.pid === undefined) return;
    await new Promise<void>((resolve) => {
      child.ref();
      child.once("exit", () => resolve());
      child.stdin?.end("trap - EXIT\n");
    });
  }

  private start(): void {
    const [file, ...args] = this.options.shell;
    const child = spawn(file, args, { detached: true, cwd: "/", stdio: ["pipe", "ignore", "ignore"] });
    this.child = child;
    child.stdin?.on("error", () => {});
    const lost = (): void => {
      if (this.child !== child) return;
      this.child = undefined;
      if (!this.closed) setTimeout(() => this.closed || this.start(), RESTART_MS).unref();
    };
    child.once("error", lost);
    child.once("exit", lost);
    // The guardian does not keep the agent's event loop alive.
    child.unref();
    child.stdin?.write(preamble(this.folder), "latin1");
    this.sendGroups();
  }

  private sendGroups(): void {
    this.child?.stdin?.write(`groups='${[...this.groups].join(" ")}'\n`);
  }
}

function preamble(dir: string): string {
  return (
    "trap '' HUP INT QUIT TERM\ngroups=\n" +
    'signal() { for group in $groups; do kill -s "$1" -- "-$group"; done; }\n' +
    `end() { case $groups in ?*) signal TERM; sleep 1; signal KILL;; esac; command -p rm -rf ${quote(dir)}; }\n` +
    "trap end EXIT\n"
  );
}

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

/** Calls back, perhaps at once, when all processes of a killed group are gone or zombies. */
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

/** Reads all processes in /proc; false if the system does not show them. */
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
