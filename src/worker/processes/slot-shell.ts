/**
 * One slot: runs one command at a time through a shell that it keeps.
 *
 *     empty      no shell: none was needed yet, or the last one is gone. A command starts one.
 *     starting   a shell is being started; a command may wait for it
 *     idle       the shell waits for lines
 *     running    the shell runs the command; or, with `asInPipe`, a process it left behind can still write. Output is delivered
 *     clearing   the command has ended and was reported, but a process it left behind still holds its output pipes. It was
 *                sent SIGTERM; what it writes is dropped. Clear pipes lead to idle, the end of the grace to ending. The next
 *                command waits here.
 *     ending     the shell was sent SIGKILL. When its group is gone, a running command is reported and the slot is empty;
 *                a command that waits starts the next shell, with new pipes.
 *     closed     takes no more
 *
 * A shell that dies by itself leads to the same as ending. Whatever else a command leaves in its process group gets SIGTERM
 * at the command's end.
 */

import { rmSync } from "node:fs";
import { asLaboroError, LaboroError } from "../../base/errors.js";
import type { OutputStream } from "../../model/outcome.js";
import type { CommandSpec, ProcessEnd, ProcessSink, RunningCommand } from "./command.js";
import type { Guardian } from "./guardian.js";
import { type HelperEnd, HelperShell } from "./helper.js";
import type { OutputPipes } from "./output-pipes.js";
import type { TaskReport } from "./report.js";
import { taskScript } from "./script.js";
import { neverStarted, startError } from "./start-error.js";

export interface SlotOptions {
  /** The path at which the slot's shells make their folders of pipes, a number added for each. */
  readonly dir: string;
  readonly guardian: Guardian;
  readonly shell: readonly [string, ...string[]];
  readonly env: NodeJS.ProcessEnv;
  readonly now: () => number;
}

type EndReason = Pick<ProcessEnd, "code" | "signal" | "error">;

interface SlotCommand {
  readonly spec: CommandSpec;
  readonly sink: ProcessSink;
  /** When it was sent to the shell; before that, when `run` was called. */
  started: number;
  /** waiting: for a shell. begun: sent to the shell. open: its output was seen open, so its signals are at their defaults. */
  stage: "waiting" | "cancelled" | "begun" | "open" | "killed";
  termAgain?: NodeJS.Timeout;
  grace?: NodeJS.Timeout;
}

const LEFTOVER_GRACE_MS = 1_000;
const TERM_AGAIN_MS = 20;
const TERM_RETRY_LIMIT_MS = 5_000;
const JUST_BEGUN_MS = 100;
/** Node treats a longer timeout as 1 ms. */
const MAX_TIMER_MS = 2 ** 31 - 1;

export class SlotShell {
  private readonly options: SlotOptions;
  private state: "empty" | "starting" | "idle" | "running" | "clearing" | "ending" | "closed" = "empty";
  private generation = 0;
  private helper: HelperShell | undefined;
  private output: OutputPipes | undefined;
  private task: SlotCommand | undefined;
  private leftoverGrace: NodeJS.Timeout | undefined;
  private readonly whenClosed: (() => void)[] = [];

  constructor(options: SlotOptions) {
    this.options = options;
  }

  /** A command runs or waits to. */
  get busy(): boolean {
    return this.task !== undefined;
  }

  /** The leader of the slot's process group, while there is one. */
  get pid(): number | undefined {
    return this.helper?.pid;
  }

  run(spec: CommandSpec, sink: ProcessSink): RunningCommand {
    if (this.state === "closed" || this.whenClosed.length > 0) {
      throw new LaboroError("LABORO_INTERNAL", "the slot is closed");
    }
    if (this.task !== undefined) throw new LaboroError("LABORO_INTERNAL", "the slot already runs a command");
    const script = this.scriptOf(spec);
    const task: SlotCommand = { spec, sink, started: this.options.now(), stage: "waiting" };
    this.task = task;
    if (this.state === "idle") this.begin(task, script);
    else if (this.state === "empty") this.startShell();
    return {
      terminate: (graceMs) => {
        if (this.task === task) this.terminate(task, graceMs);
      },
      kill: () => {
        if (this.task === task) this.kill(task);
      },
      pause: () => {
        if (this.task === task) this.output?.pause();
      },
      resume: () => {
        if (this.task === task) this.output?.resume();
      },
    };
  }

  /** Starts the shell, so that the first command does not wait for it. */
  prepare(): void {
    if (this.state === "empty" && this.whenClosed.length === 0) this.startShell();
  }

  /** Ends what runs and the shell. Resolves when no process of the slot is left. */
  close(): Promise<void> {
    if (this.task !== undefined) this.kill(this.task);
    if (this.helper === undefined) {
      this.state = "closed";
      return Promise.resolve();
    }
    this.endShell();
    return new Promise((resolve) => this.whenClosed.push(resolve));
  }

  /** Refuses bad input even while there is no shell to send it to. */
  private scriptOf(spec: CommandSpec): string {
    const { pipes = NO_PIPES, mark = "" } = this.helper ?? {};
    return taskScript(spec, pipes, mark, this.options.env.PATH);
  }

  private startShell(): void {
    this.generation += 1;
    const dir = this.shellDir();
    const { shell, env, guardian } = this.options;
    try {
      this.helper = new HelperShell(
        { dir, shell, env },
        {
          ready: (output) => this.onReady(output),
          output: (stream, bytes) => this.onOutput(stream, bytes),
          report: (report) => this.onReport(report),
          gone: (end) => this.onGone(end),
        },
      );
    } catch (cause) {
      const error = `the slot's shell did not start: ${asLaboroError(cause).message}`;
      if (this.task !== undefined) this.cancel(this.task, error);
      return;
    }
    this.state = "starting";
    if (this.helper.pid !== undefined) guardian.watch(this.helper.pid);
  }

  private shellDir(): string {
    return `${this.options.dir}.${this.generation}`;
  }

  private onReady(output: OutputPipes): void {
    this.output = output;
    if (this.state === "starting") this.becomeIdle();
  }

  private becomeIdle(): void {
    this.state = "idle";
    this.output?.unfollow();
    if (this.task?.stage === "waiting") this.begin(this.task, this.scriptOf(this.task.spec));
  }

  private begin(task: SlotCommand, script: string): void {
    this.state = "running";
    task.stage = "begun";
    task.started = this.options.now();
    this.output?.begin();
    this.helper?.send(script);
  }

  private onOutput(stream: OutputStream, bytes: Buffer): void {
    const { task } = this;
    // A task that waits is not the one that wrote this.
    if (task === undefined || task.stage === "waiting" || task.stage === "cancelled") return;
    if (task.stage === "begun") task.stage = "open";
    task.sink.output(stream, bytes);
  }

  private onReport(report: TaskReport): void {
    const { task } = this;
    if (task === undefined || task.stage === "waiting" || task.stage === "cancelled") return;
    const how = this.outcome(report, task.spec);
    if (task.spec.asInPipe === true) {
      this.finishWhenSilent(task, how);
      return;
    }
    // It was written after the process ended, so the pipes hold all that the process wrote.
    const pipes = this.output?.drain();
    this.helper?.signal("SIGTERM");
    if (this.state === "running") {
      if (pipes === "held") this.clear();
      else this.becomeIdle();
    }
    this.finish(task, how);
  }

  private finishWhenSilent(task: SlotCommand, how: EndReason): void {
    const check = (): boolean => {
      if (this.task !== task || this.state !== "running") return true;
      if (this.output?.drainStdout() === "held") return false;
      this.becomeIdle();
      this.finish(task, how);
      return true;
    };
    if (check()) return;
    this.output?.follow(check);
    // The last writer may have gone just before `follow`, which then never calls back.
    check();
  }

  private outcome(report: TaskReport, spec: CommandSpec): EndReason {
    if (report.signal !== undefined) return { signal: report.signal };
    const code = report.code ?? 0;
    const failed =
      report.failed ?? (this.helper?.isBash && neverStarted(spec, code, this.options.env.PATH) ? "start" : undefined);
    return failed === undefined ? { code } : { error: startError(spec, failed, code) };
  }

  private clear(): void {
    this.state = "clearing";
    this.leftoverGrace = setTimeout(() => this.endShell(), LEFTOVER_GRACE_MS);
    const check = (): void => {
      if (this.state !== "clearing" || this.output?.drain() !== "clear") return;
      clearTimeout(this.leftoverGrace);
      this.becomeIdle();
    };
    this.output?.follow(check);
    // The last writer may have gone just before `follow`, which then never calls back.
    check();
  }

  private terminate(task: SlotCommand, graceMs: number): void {
    if (task.stage === "waiting") this.cancel(task, "cancelled before it was started");
    if (this.state !== "running" || task.grace !== undefined) return;
    task.grace = setTimeout(() => this.kill(task), Math.min(graceMs, MAX_TIMER_MS));
    this.sendTerm(task);
  }

  private sendTerm(task: SlotCommand, againMs = TERM_AGAIN_MS): void {
    // As in a pipe, it may be the shell that has opened its output, and the command is yet to come.
    if (task.stage === "begun" && this.output?.drain() === "held" && task.spec.asInPipe !== true) this.seenOpen(task);
    this.helper?.signal("SIGTERM");
    // A stopped process takes no SIGTERM.
    this.helper?.signal("SIGCONT");
    // A shell that has not begun the task, or has not yet reset its signals, ignores SIGTERM, so it is repeated. But a task that
    // has redirected its output looks the same: the repetition ends after a limit.
    if (task.stage !== "begun" || this.options.now() - task.started > TERM_RETRY_LIMIT_MS) return;
    task.termAgain = setTimeout(() => this.sendTerm(task, againMs * 2), againMs);
  }

  /** Its signals are at their defaults. But bash loses a signal that arrives just before its exec, so another one is sent. */
  private seenOpen(task: SlotCommand): void {
    task.stage = "open";
    if (this.options.now() - task.started > JUST_BEGUN_MS) return;
    task.termAgain = setTimeout(() => this.helper?.signal("SIGTERM"), TERM_AGAIN_MS);
  }

  private kill(task: SlotCommand): void {
    if (task.stage === "waiting") this.cancel(task, "cancelled before it was started");
    if (this.state !== "running") return;
    task.stage = "killed";
    this.endShell();
  }

  /** Ends a task that was not begun. */
  private cancel(task: SlotCommand, error: string): void {
    task.stage = "cancelled";
    // A sink is called from the loop only.
    setImmediate(() => this.finish(task, { error }));
  }

  private endShell(): void {
    clearTimeout(this.leftoverGrace);
    this.state = "ending";
    this.helper?.signal("SIGKILL");
  }

  private onGone(end: HelperEnd): void {
    const { helper, task, state } = this;
    clearTimeout(this.leftoverGrace);
    if (helper?.pid !== undefined) this.options.guardian.unwatch(helper.pid);
    removeQuietly(this.shellDir());
    this.helper = undefined;
    this.output = undefined;
    this.state = this.whenClosed.length > 0 ? "closed" : "empty";
    if (task?.stage === "waiting") {
      if (state === "starting") this.finish(task, { error: `the slot's shell did not start: ${end.reason}` });
      else this.startShell();
    } else if (task !== undefined && task.stage !== "cancelled") this.finish(task, endedWithShell(task, end));
    for (const resolve of this.whenClosed.splice(0)) resolve();
  }

  private finish(task: SlotCommand, how: EndReason): void {
    clearTimeout(task.termAgain);
    clearTimeout(task.grace);
    this.task = undefined;
    task.sink.ended({ ...how, started: task.started, ended: this.options.now() });
  }
}

const NO_PIPES = { report: "", stdout: "", stderr: "" };

/** How a task ended whose shell went down with it. */
function endedWithShell(task: SlotCommand, end: HelperEnd): EndReason {
  if (task.stage === "killed") return { signal: "SIGKILL" };
  const error = `the slot's shell ended while the command ran (${end.reason})`;
  return end.signal === undefined ? { error } : { signal: end.signal, error };
}

function removeQuietly(dir: string): void {
  try {
    rmSync(dir, { recursive: true, force: true });
  } catch {
    // The folder above goes when the agent ends, and this one with it.
  }
}
