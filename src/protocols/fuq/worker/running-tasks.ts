/**
 * The tasks of a fuq worker, with any transport.
 *
 *   running   its command runs in a slot, or waits for one
 *   ended     its command has ended, and its UPDATE is not acknowledged
 *
 * Both count as running, because the foreman counts a task until it has the UPDATE. The original exits at an UPDATE for
 * a task that it does not count. A dropped task does not count and has no UPDATE. A new task may have to wait for a
 * slot until the command of a dropped task has died.
 */
import { asLaboroError } from "../../../base/errors.js";
import type { Log } from "../../../base/log.js";
import { LogFile } from "../../../worker/job-files.js";
import type { ProcessEnd, RunningCommand, SlotShell, Slots } from "../../../worker/processes/index.js";
import {
  ALL_TASKS,
  pairKey,
  pairOf,
  STOP_AT_ONCE,
  statusText,
  type Task,
  type TaskPair,
  type Update,
} from "../messages.js";

interface RunningTasksOptions {
  readonly slots: Slots;
  /** For logs of jobs without a LoggingDir. */
  readonly logDirectory: string;
  /** Between SIGTERM and SIGKILL. 0: SIGKILL at once, as in the original. */
  readonly cancelGraceMs: number;
  readonly log: Log;
  readonly onEnded: () => void;
}

interface ForemanTask {
  readonly task: Task;
  /** Undefined while it waits for one. */
  slot?: SlotShell;
  command?: RunningCommand;
  update?: Update;
}

export class RunningTasks {
  readonly #options: RunningTasksOptions;
  readonly #tasks = new Map<string, ForemanTask>();
  readonly #busySlots = new Set<SlotShell>();
  /** max_nproc of the specification: the slots that STOP has left. */
  #maxSlots: number;

  constructor(options: RunningTasksOptions) {
    this.#options = options;
    this.#maxSlots = options.slots.slots.length;
  }

  get nproc(): number {
    return Math.max(0, this.#maxSlots - this.#tasks.size);
  }

  /** Tasks that run, or whose UPDATE is not acknowledged. */
  get nrun(): number {
    return this.#tasks.size;
  }

  get finished(): boolean {
    return this.#maxSlots === 0 && this.#tasks.size === 0;
  }

  get running(): readonly Task[] {
    return Array.from(this.#tasks.values(), ({ task }) => task);
  }

  /** Unacknowledged updates, in the order in which the tasks arrived. */
  get updates(): readonly Update[] {
    return [...this.#tasks.values()].flatMap(({ update }) => update ?? []);
  }

  /** Starts all, or none if too few slots are free. A task that is here already is not started again. */
  start(tasks: readonly Task[]): boolean {
    const fresh = new Map(tasks.map((task) => [pairKey(pairOf(task)), task]));
    for (const key of this.#tasks.keys()) fresh.delete(key);
    if (fresh.size > this.nproc) return false;
    for (const [key, task] of fresh) this.#tasks.set(key, { task });
    this.#startWaiting();
    return true;
  }

  /** Returns how many tasks it cancels, without those that have ended. With `drop` they send no UPDATE. */
  cancel({ jobId, task }: TaskPair, drop = false): number {
    const { cancelGraceMs } = this.#options;
    let count = 0;
    for (const [key, { task: one, command, update }] of this.#tasks) {
      if (one.job.jobId !== jobId || (task !== ALL_TASKS && one.task !== task)) continue;
      if (update !== undefined) continue;
      if (drop) this.#tasks.delete(key);
      if (cancelGraceMs > 0) command?.terminate(cancelGraceMs);
      else command?.kill();
      count++;
    }
    return count;
  }

  /** Removes `count` slots; 0 means all. */
  stop(count: number): void {
    this.#maxSlots = count === 0 || count === STOP_AT_ONCE ? 0 : Math.max(0, this.#maxSlots - count);
    if (count === STOP_AT_ONCE) for (const { command } of this.#tasks.values()) command?.kill();
  }

  /** All tasks have been assigned to other workers. */
  dropAll(): void {
    for (const { command } of this.#tasks.values()) command?.kill();
    this.#tasks.clear();
  }

  /** The foreman has recorded the update, or refused it permanently. */
  acknowledged(update: TaskPair): void {
    const key = pairKey(update);
    if (this.#tasks.get(key)?.update !== undefined) this.#tasks.delete(key);
  }

  #startWaiting(): void {
    for (const held of this.#tasks.values()) {
      if (held.slot !== undefined) continue;
      const slot = this.#options.slots.slots.find((one) => !this.#busySlots.has(one));
      if (slot === undefined) return;
      this.#begin(held, slot);
    }
  }

  #begin(held: ForemanTask, slot: SlotShell): void {
    held.slot = slot;
    this.#busySlots.add(slot);
    try {
      held.command = this.#run(held.task, slot, (end) =>
        this.#ended(held, slot, end.code === 0 && end.error === undefined, statusText(end)),
      );
    } catch (cause) {
      const status = statusText({ error: asLaboroError(cause).message });
      // After the reply to the JOB.
      setImmediate(() => this.#ended(held, slot, false, status));
    }
  }

  /** The only argument of the command is the number of its task. */
  #run({ task, job }: Task, slot: SlotShell, ended: (end: ProcessEnd) => void): RunningCommand {
    const { log, logDirectory } = this.#options;
    const logDir = job.loggingDir.length === 0 ? logDirectory : job.loggingDir;
    const path = Buffer.concat([logDir, "/", job.name, `_${task}.log`].map((part) => Buffer.from(part)));
    const file = LogFile.open(path, undefined, (why) => log.warn({ job: job.jobId, task }, why));
    const dir = job.workingDir.length === 0 ? {} : { dir: job.workingDir };
    const onEnded = (end: ProcessEnd): void => {
      file.close();
      ended(end);
    };
    try {
      const command = { argv: [job.command, String(task)], ...dir };
      return slot.run(command, { output: (_stream, bytes) => file.write(bytes), ended: onEnded });
    } catch (cause) {
      file.close();
      throw cause;
    }
  }

  #ended(held: ForemanTask, slot: SlotShell, success: boolean, status: string): void {
    this.#busySlots.delete(slot);
    this.#startWaiting();
    if (this.#tasks.get(pairKey(pairOf(held.task))) !== held) return;
    held.update = { ...pairOf(held.task), success, status, newJob: null };
    this.#options.onEnded();
  }
}
