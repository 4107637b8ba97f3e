/**
 * One slot: runs one command at a time through a shell that it keeps.
 *
 *     empty      no shell: none was needed yet, or the last one is gone. A command starts one
 *     starting   a shell is being started; a command may wait for it
 *     idle       the shell waits for lines
 *     running    the shell runs the command; with `asInPipe`, a leftover process can still write. Output is delivered
 *     clearing   the command has ended and was reported, but a leftover process still has its output pipes open. It was
 *                sent SIGTERM, and its output is dropped. Clear pipes lead to idle, the end of the grace to ending. The
 *                next command waits here
 *     ending     the shell was sent SIGKILL. When its group is gone, a running command is reported and the slot is
 *                empty; a waiting command starts the next shell, with new pipes
 *     closed     accepts no command
 *
 * A shell that dies has the same effect as ending. Other leftovers of a command in its process group get SIGTERM at the
 * command's end.
 */
import { rmSync } from "node:fs";
import { join } from "node:path";
import { MAX_TIMER_MS } from "../../base/clock.js";
import { asLaboroError, LaboroError } from "../../base/errors.js";
import type { OutputStream } from "../../model/outcome.js";
import { latin1 } from "../../model/shell-command-list.js";
import type { Guardian } from "./guardian.js";
import { type HelperEnd, HelperShell } from "./helper.js";
import type { OutputPipes } from "./output-pipes.js";
import {
  type CommandSpec,
  directScript,
  needsNoSubshell,
  type ProcessSink,
  type RunningCommand,
  signalName,
  subshellScript,
  type TaskReport,
} from "./script.js";
import { type EndReason, endedWithShell, type SlotCommand, type TaskScript } from "./slot-command.js";
import {
  agentDirectory,
  type Directory,
  findCommand,
  neverStarted,
  type Place,
  placeAt,
  startError,
  UNKNOWN_DIRECTORY,
} from "./start-error.js";
import { ShellUsage } from "./usage.js";

interface SlotOptions {
  /** The shells make their folders of pipes by this name in the guardian's folder, a number added for each. */
  readonly name: string;
  readonly guardian: Guardian;
  readonly shell: readonly [string, ...string[]];
  readonly env: NodeJS.ProcessEnv;
  readonly now: () => number;
  readonly memorySampleMs: number;
}

const LEFTOVER_GRACE_MS = 1_000;
const TERM_AGAIN_MS = 20;
const TERM_RETRY_LIMIT_MS = 5_000;
const JUST_BEGUN_MS = 100;
/** No message of a shell about a signal is longer, and its report follows at once. */
const MAX_MESSAGE_BYTES = 64;
const HOLD_MS = 20;

export class SlotShell {
  private readonly options: SlotOptions;
  private state: "empty" | "starting" | "idle" | "running" | "clearing" | "ending" | "closed" = "empty";
  private generation = 0;
  private helper: HelperShell | undefined;
  private output: OutputPipes | undefined;
  private task: SlotCommand | undefined;
  private leftoverGrace: NodeJS.Timeout | undefined;
  private usage: ShellUsage | undefined;
  /** The shell's directory, if it has left the agent's own one. */
  private workingDirectory: Directory | undefined;
  private readonly baseDirectory = agentDirectory();
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
    // Refuses bad input even while there is no shell to send it to.
    if (this.state !== "idle") subshellScript(spec, NO_PIPES, "", this.options.env.PATH);
    const script = this.state === "idle" ? this.scriptOf(spec) : undefined;
    const task: SlotCommand = { spec, sink, started: this.options.now(), stage: "waiting", direct: false };
    this.task = task;
    if (script !== undefined) this.begin(task, script);
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

  private scriptOf(spec: CommandSpec): TaskScript {
    const { pipes = NO_PIPES, mark = "" } = this.helper ?? {};
    const place = this.placeFor(spec);
    if (place !== undefined) return { text: directScript(spec, pipes, mark, place.enter), place };
    // A task without a directory of its own runs in the agent's, wherever the shell is now.
    const dir = spec.dir ?? (this.workingDirectory === undefined ? undefined : this.baseDirectory);
    const text = subshellScript(dir === undefined ? spec : { ...spec, dir }, pipes, mark, this.options.env.PATH);
    return { text, place: undefined };
  }

  /**
   * The directory in which the shell itself would run the command. Undefined if it needs a subshell, which can report
   * why it does not start.
   */
  private placeFor(spec: CommandSpec): Place | undefined {
    const { helper, workingDirectory: current } = this;
    if (helper === undefined || !needsNoSubshell(spec)) return undefined;
    const { asInPipe, argv, env = {} } = spec;
    if (!helper.countsWrites && (asInPipe !== true || spec.dir !== undefined || !isEmpty(env))) return undefined;
    const dir = spec.dir ?? (current === undefined ? undefined : this.baseDirectory);
    const place = dir === undefined ? { directory: undefined, enter: undefined } : placeAt(dir, current);
    if (place === undefined) return undefined;
    const at = dir === undefined ? undefined : latin1(dir, "directory");
    return findCommand(latin1(argv[0] ?? "", "command"), "", at) === undefined ? undefined : place;
  }

  private startShell(): void {
    this.generation += 1;
    this.workingDirectory = undefined;
    const { shell, env, guardian } = this.options;
    try {
      this.helper = new HelperShell(
        { dir: this.shellDir(), shell, env, guardian },
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
  }

  private shellDir(): string {
    return join(this.options.guardian.open(), `${this.options.name}.${this.generation}`);
  }

  private onReady(output: OutputPipes): void {
    this.output = output;
    this.usage = ShellUsage.open(this.helper?.pid, this.options.memorySampleMs);
    if (this.state === "starting") this.becomeIdle();
  }

  private becomeIdle(): void {
    this.state = "idle";
    this.output?.unfollow();
    if (this.task?.stage === "waiting") this.begin(this.task, this.scriptOf(this.task.spec));
  }

  private begin(task: SlotCommand, { text, place }: TaskScript): void {
    this.state = "running";
    task.stage = "begun";
    task.direct = place !== undefined;
    if (place?.enter !== undefined) this.workingDirectory = place.directory;
    task.started = this.options.now();
    this.usage?.begin();
    this.output?.begin();
    this.helper?.send(text);
  }

  private onOutput(stream: OutputStream, bytes: Buffer): void {
    const { task } = this;
    // A waiting task has not written this.
    if (task === undefined || task.stage === "waiting" || task.stage === "cancelled") return;
    if (task.stage === "begun") task.stage = "open";
    this.deliverHeld(task);
    const mayBeMessage = task.direct && task.spec.asInPipe !== true && stream === "stderr" && bytes.at(-1) === NEWLINE;
    if (!mayBeMessage) {
      task.sink.output(stream, bytes);
      return;
    }
    const rest = Math.max(0, bytes.length - MAX_MESSAGE_BYTES);
    if (rest > 0) task.sink.output(stream, bytes.subarray(0, rest));
    task.held = bytes.subarray(rest);
    task.holdTimer = setTimeout(() => this.deliverHeld(task), HOLD_MS);
  }

  /** Delivers held output, without the shell's own bytes at its end. */
  private deliverHeld(task: SlotCommand, messageBytes = 0): void {
    const { held } = task;
    if (held === undefined) return;
    clearTimeout(task.holdTimer);
    delete task.held;
    if (held.length > messageBytes) task.sink.output("stderr", held.subarray(0, held.length - messageBytes));
  }

  private onReport(report: TaskReport): void {
    const { task } = this;
    if (task === undefined || task.stage === "waiting" || task.stage === "cancelled") return;
    // It was written after the process ended, so the pipes hold all that the process wrote.
    const pipes = task.spec.asInPipe === true ? undefined : this.output?.drain();
    const how = this.outcome(report, task);
    if (task.spec.asInPipe === true) {
      this.finishWhenSilent(task, how);
      return;
    }
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

  private outcome(report: TaskReport, task: SlotCommand): EndReason {
    const { spec, direct } = task;
    const code = report.code ?? 0;
    // The shell says nothing about an exit, and nothing of SIGINT and SIGPIPE.
    const messageBytes = direct && code > 128 ? (this.helper?.newMessageBytes() ?? 0) : 0;
    this.deliverHeld(task, messageBytes);
    if (report.signal !== undefined) return { signal: report.signal };
    if (messageBytes > 0 && spec.asInPipe !== true) return { signal: signalName(code - 128) };
    if (direct && report.failed === "directory") this.workingDirectory = UNKNOWN_DIRECTORY;
    const unclear = direct || this.helper?.isBash === true;
    const failed = report.failed ?? (unclear && neverStarted(spec, code, this.options.env.PATH) ? "start" : undefined);
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
    if (task.stage === "begun" && this.hasBegun(task)) this.seenOpen(task);
    this.helper?.signal("SIGTERM");
    // A stopped process takes no SIGTERM.
    this.helper?.signal("SIGCONT");
    // A shell that has not begun the task, or not yet reset its signals, ignores SIGTERM, so it is repeated. A task
    // that has redirected its output looks the same, so the repetition ends after a limit.
    if (task.stage !== "begun" || this.options.now() - task.started > TERM_RETRY_LIMIT_MS) return;
    task.termAgain = setTimeout(() => this.sendTerm(task, againMs * 2), againMs);
  }

  /** Without a subshell it may be the shell that has opened its output, and the command is just to come. */
  private hasBegun(task: SlotCommand): boolean {
    if (this.output?.drain() !== "held" || task.spec.asInPipe === true) return false;
    return !task.direct || this.options.now() - task.started > JUST_BEGUN_MS;
  }

  /** Its signals are at their defaults. Bash loses a signal just before its exec, so another one is sent. */
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
    const { task, state, usage } = this;
    clearTimeout(this.leftoverGrace);
    removeQuietly(this.shellDir());
    this.helper = undefined;
    this.output = undefined;
    this.state = this.whenClosed.length > 0 ? "closed" : "empty";
    if (task?.stage === "waiting") {
      if (state === "starting") this.finish(task, { error: `the slot's shell did not start: ${end.reason}` });
      else this.startShell();
    } else if (task !== undefined && task.stage !== "cancelled") this.finish(task, endedWithShell(task, end));
    usage?.close();
    this.usage = undefined;
    for (const resolve of this.whenClosed.splice(0)) resolve();
  }

  private finish(task: SlotCommand, how: EndReason): void {
    clearTimeout(task.termAgain);
    clearTimeout(task.grace);
    this.deliverHeld(task);
    this.task = undefined;
    task.sink.ended({ ...how, started: task.started, ended: this.options.now(), ...this.usage?.end() });
  }
}

const NO_PIPES = { report: "", stdout: "", stderr: "" };
const NEWLINE = 0x0a;

const isEmpty = (record: object): boolean => Object.keys(record).length === 0;

function removeQuietly(dir: string): void {
  try {
    rmSync(dir, { recursive: true, force: true });
  } catch {
    // It is removed with its parent folder when the agent ends.
  }
}
