/**
 * The shell that starts the commands of one slot. Node's own spawn copies the page tables of the whole agent and blocks
 * the loop meanwhile; a fork of this shell costs the same however large the agent grows.
 *
 *     starting   spawned as leader of its own session; makes its named pipes and says "ready"
 *     ready      reads lines from its stdin, reports on its report pipe
 *     ended      the process ended; the rest of its group is sent SIGKILL
 *     gone       the group has vanished, all pipes are read to the end; nothing follows
 *
 * It catches or ignores the signals that are sent to its group, so it survives them. In a task they are reset to their
 * defaults.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { OutputStream } from "../../model/outcome.js";
import { quote } from "../../model/shell-command-list.js";
import { type Guardian, signalGroup, whenGroupGone } from "./guardian.js";
import { OutputPipe, OutputPipes } from "./output-pipes.js";
import { ReportReader, type ShellPipes, type TaskReport } from "./script.js";

interface HelperOptions {
  /** Watches this shell's process group until it is gone. */
  readonly guardian: Guardian;
  /** Made for this shell; holds its pipes. */
  readonly dir: string;
  readonly shell: readonly [string, ...string[]];
  readonly env: NodeJS.ProcessEnv;
}

interface HelperEvents {
  ready(output: OutputPipes): void;
  output(stream: OutputStream, bytes: Buffer): void;
  report(report: TaskReport): void;
  gone(end: HelperEnd): void;
}

export interface HelperEnd {
  readonly signal?: string;
  /** For a person. */
  readonly reason: string;
}

export class HelperShell {
  readonly pipes: ShellPipes;
  /** Marks the lines on the report pipe that are for the agent; no task knows it. */
  readonly mark = randomBytes(12).toString("hex");
  private readonly events: HelperEvents;
  private readonly guardian: Guardian;
  private readonly child: ChildProcess;
  /** Bash forgets the EXIT trap before an exec that then fails. */
  isBash = false;
  /** Bytes that the shell had written when it was ready, and its messages since. Absent if the system does not tell. */
  private unreportedBytes: number | undefined;
  private readonly reader = new ReportReader(this.mark);
  private reports: OutputPipe | undefined;
  private output: OutputPipes | undefined;
  private startupOutput = "";
  private startupError: string | undefined;
  private end: HelperEnd | undefined;

  constructor(options: HelperOptions, events: HelperEvents) {
    const { dir, shell, env, guardian } = options;
    const [file, ...args] = shell;
    this.events = events;
    this.guardian = guardian;
    this.pipes = { report: join(dir, "report"), stdout: join(dir, "out"), stderr: join(dir, "err") };
    mkdirSync(dir, { mode: 0o700 });
    this.child = spawn(file, args, { detached: true, env, stdio: ["pipe", "pipe", "ignore"] });
    this.child.once("close", (code, signal) => {
      this.onEnd(signal === null ? { reason: `exit ${code}` } : { signal, reason: signal });
    });
    this.child.once("error", (cause) => {
      if (this.child.pid === undefined) this.onEnd({ reason: cause.message });
    });
    // "close" reports its end; a write after that has no effect. Without free descriptors there are no streams.
    this.child.stdin?.on("error", () => {});
    this.child.stdout?.on("data", (bytes: Buffer) => this.onStartupOutput(bytes));
    // Before the first line: a shell whose agent is gone ends by itself only while it waits for lines.
    if (this.pid !== undefined) guardian.watch(this.pid);
    this.send(preamble(this.pipes));
  }

  /** The process group of the slot, and the shell that leads it. Absent if the shell could not be spawned. */
  get pid(): number | undefined {
    return this.child.pid;
  }

  /** Shell text in latin1. */
  send(script: string): void {
    this.child.stdin?.write(script, "latin1");
  }

  /** Signals the group: the shell, its task, and all that stayed in the group. */
  signal(name: NodeJS.Signals): void {
    if (this.pid !== undefined && this.end === undefined) signalGroup(this.pid, name);
  }

  /** Whether messages of the shell can be distinguished from the output of a command that the shell runs itself. */
  get countsWrites(): boolean {
    return this.unreportedBytes !== undefined;
  }

  /** How many bytes the shell has written to the output of its task since the last call: its message about a signal. */
  newMessageBytes(): number {
    const written = this.written();
    if (this.unreportedBytes === undefined || written === undefined) return 0;
    const more = Math.max(0, written - this.reader.ownBytes - this.unreportedBytes);
    this.unreportedBytes += more;
    return more;
  }

  /** What the shell itself has written, without its children. */
  private written(): number | undefined {
    try {
      const found = /^wchar: (\d+)$/m.exec(readFileSync(`/proc/${this.pid}/task/${this.pid}/io`, "latin1"));
      return found === null ? undefined : Number(found[1]);
    } catch {
      return undefined;
    }
  }

  private onStartupOutput(bytes: Buffer): void {
    this.startupOutput += bytes.toString();
    if (this.output !== undefined || this.end !== undefined || !this.startupOutput.endsWith("ready\n")) return;
    this.isBash = this.startupOutput !== "ready\n";
    this.unreportedBytes = this.isBash ? undefined : this.written();
    try {
      this.output = new OutputPipes(this.pipes, (stream, piece) => this.events.output(stream, piece));
      // The shell waits for a reader of its report pipe, so this is never too early for it.
      this.reports = new OutputPipe(this.pipes.report, (piece) => {
        const report = this.reader.push(piece);
        if (report !== undefined) this.events.report(report);
      });
      this.reports.follow();
    } catch (cause) {
      this.startupError = cause instanceof Error ? cause.message : String(cause);
      this.signal("SIGKILL");
      return;
    }
    this.events.ready(this.output);
  }

  private onEnd(end: HelperEnd): void {
    // The rest of the group has lost its leader and must not continue unwatched.
    this.signal("SIGKILL");
    const message = this.startupError ?? (this.output === undefined ? this.startupOutput.trim() : "");
    const full = message === "" ? end : { ...end, reason: `${end.reason}: ${message}` };
    this.end = full;
    this.child.stdin?.destroy();
    if (this.pid === undefined) this.onVanished(full);
    else whenGroupGone(this.pid, () => this.onVanished(full));
  }

  /**
   * All writers of reports are gone, so the pipe contains everything that is left. It is not read to its end: a shell
   * that was killed right after its "ready" never opened the pipe, and without a writer the kernel signals no end.
   */
  private onVanished(end: HelperEnd): void {
    this.reports?.drain();
    this.reports?.close();
    this.output?.drain();
    this.output?.close();
    if (this.pid !== undefined) this.guardian.unwatch(this.pid);
    this.events.gone(end);
  }
}

function preamble({ report, stdout, stderr }: ShellPipes): string {
  return (
    // Ignored, not caught: SIGTERM is sent after each task and must not wake the shell.
    "exec 2>&1\ntrap : HUP INT QUIT PIPE ALRM USR1 USR2\ntrap '' TERM\n" +
    `command -p mkfifo -m 600 ${quote(report)} ${quote(stdout)} ${quote(stderr)}||exit 1\necho "$BASH_VERSION"ready\n` +
    `exec >${quote(report)} 2>&1\n`
  );
}
