/**
 * Ensures that no task outlives its agent. A shell in a session of its own, out of reach of the terminal's Ctrl-C, reads from a
 * pipe whose other end only the agent holds. The agent sends it the list of process groups at every change. When the pipe
 * closes, even by kill -9 of the agent, it sends SIGTERM to all of them, SIGKILL a second later, removes the agent's folder of
 * pipes and ends.
 *
 *     watching   receives every change; if it dies, it is started again with the whole list
 *     closed     has received the empty list, and its pipe is closed
 */

import { type ChildProcess, spawn } from "node:child_process";
import { quote } from "../../model/shell-words.js";

export interface GuardianOptions {
  readonly shell: readonly [string, ...string[]];
  /** Removed when the agent is gone. */
  readonly dir: string;
}

const RESTART_MS = 200;

export class Guardian {
  private readonly options: GuardianOptions;
  private readonly groups = new Set<number>();
  private child: ChildProcess | undefined;
  private closed = false;

  constructor(options: GuardianOptions) {
    this.options = options;
    this.start();
  }

  get pid(): number | undefined {
    return this.child?.pid;
  }

  watch(group: number): void {
    this.groups.add(group);
    this.sendGroups();
  }

  unwatch(group: number): void {
    this.groups.delete(group);
    this.sendGroups();
  }

  /** Ends it without harm to any group. It removes the folder. */
  close(): Promise<void> {
    this.closed = true;
    this.groups.clear();
    this.sendGroups();
    const child = this.child;
    if (child?.pid === undefined) return Promise.resolve();
    return new Promise((resolve) => {
      child.ref();
      child.once("exit", () => resolve());
      child.stdin?.end();
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
    child.stdin?.write(preamble(this.options.dir), "latin1");
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
