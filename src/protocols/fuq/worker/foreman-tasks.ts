/**
 * The tasks of a fuq worker, whatever transport it has to its foreman.
 *
 *   running   its command runs in a slot
 *   ended     its command has ended; its UPDATE is not acknowledged yet
 *
 * Both count as running towards the foreman, because to it they do until it has the UPDATE: the original ends at an UPDATE for a task that
 * it does not count. So a slot is free again when its UPDATE is acknowledged.
 *
 * A task that is dropped counts no more, and has no UPDATE. Its command may take a moment to die: a task that comes meanwhile waits for the
 * slot.
 */

import { asLaboroError } from "../../../base/errors.js";
import type { Log } from "../../../base/log.js";
import { LogFile } from "../../../worker/log-file.js";
import type { ProcessEnd, RunningCommand, SlotShell, Slots } from "../../../worker/processes/index.js";
import { ALL_TASKS, pairKey, pairOf, STOP_AT_ONCE, type Task, type TaskPair, type Update } from "../messages.js";
import { statusText } from "../outcome.js";

interface ForemanTasksOptions {
  readonly slots: Slots;
  /** Where logs go of jobs that do not say where. */
  readonly logDirectory: string;
  /** Between SIGTERM and SIGKILL; 0 for SIGKILL at once, as the original does it. */
  readonly cancelGraceMs: number;
  readonly log: Log;
  /** A task has ended, and its UPDATE is to be sent. */
  readonly onEnded: () => void;
}

interface ForemanTask {
  readonly task: Task;
  /** Absent while it waits for one. */
  slot?: SlotShell;
  command?: RunningCommand;
  update?: Update;
}

export class ForemanTasks {
  readonly #options: ForemanTasksOptions;
  readonly #tasks = new Map<string, ForemanTask>();
  /** Those of commands that have not ended yet. */
  readonly #busySlots = new Set<SlotShell>();
  /** max_nproc of the text: what STOP has left. */
  #maxSlots: number;

  constructor(options: ForemanTasksOptions) {
    this.#options = options;
    this.#maxSlots = options.slots.slots.length;
  }

  /** Slots that are free. */
  get nproc(): number {
    return Math.max(0, this.#maxSlots - this.#tasks.size);
  }

  /** Tasks that run, or whose UPDATE is not acknowledged. */
  get nrun(): number {
    return this.#tasks.size;
  }

  /** Nothing is left to do, and nothing will come. */
  get finished(): boolean {
    return this.#maxSlots === 0 && this.#tasks.size === 0;
  }

  get running(): readonly Task[] {
    return Array.from(this.#tasks.values(), ({ task }) => task);
  }

  /** Not acknowledged, in the order in which they were begun. */
  get updates(): readonly Update[] {
    return [...this.#tasks.values()].flatMap(({ update }) => update ?? []);
  }

  /** All of them, or none where too few slots are free. One that is here already is not begun twice. */
  start(tasks: readonly Task[]): boolean {
    const fresh = new Map(tasks.map((task) => [pairKey(pairOf(task)), task]));
    for (const key of this.#tasks.keys()) fresh.delete(key);
    if (fresh.size > this.nproc) return false;
    for (const [key, task] of fresh) this.#tasks.set(key, { task });
    this.#startWaiting();
    return true;
  }

  /** How many tasks it ends. Those that have ended by themselves are not among them. With `drop` they have no UPDATE. */
  cancel({ jobId, task }: TaskPair, drop = false): number {
    let count = 0;
    for (const [key, { task: one, command, update }] of this.#tasks) {
      if (one.job.jobId !== jobId || (task !== ALL_TASKS && one.task !== task)) continue;
      if (update !== undefined) continue;
      if (drop) this.#tasks.delete(key);
      this.#end(command);
      count++;
    }
    return count;
  }

  /** So many slots fewer from now on; 0 is all of them. */
  stop(count: number): void {
    this.#maxSlots = count === 0 || count === STOP_AT_ONCE ? 0 : Math.max(0, this.#maxSlots - count);
    if (count === STOP_AT_ONCE) for (const { command } of this.#tasks.values()) command?.kill();
  }

  /** All tasks have been assigned to other workers. */
  dropAll(): void {
    for (const { command } of this.#tasks.values()) command?.kill();
    this.#tasks.clear();
  }

  /** The foreman has it, or does not want it. */
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
      const file = this.#openLog(held.task);
      held.command = this.#run(held.task, slot, file, (end) =>
        this.#ended(held, slot, end.code === 0 && end.error === undefined, statusText(end)),
      );
    } catch (cause) {
      const status = statusText({ error: asLaboroError(cause).message });
      // Not before the foreman has the reply to its JOB.
      setImmediate(() => this.#ended(held, slot, false, status));
    }
  }

  #openLog({ task, job }: Task): LogFile {
    const { log, logDirectory } = this.#options;
    const dir = job.loggingDir.length === 0 ? logDirectory : job.loggingDir;
    const path = Buffer.concat([dir, "/", job.name, `_${task}.log`].map((part) => Buffer.from(part)));
    return LogFile.open(path, undefined, (why) => log.warn({ job: job.jobId, task }, why));
  }

  /** The command gets the number of its task, and nothing else. */
  #run({ task, job }: Task, slot: SlotShell, file: LogFile, ended: (end: ProcessEnd) => void): RunningCommand {
    const dir = job.workingDir.length === 0 ? {} : { dir: job.workingDir };
    try {
      return slot.run(
        { argv: [job.command, String(task)], ...dir },
        {
          output: (_stream, bytes) => file.write(bytes),
          ended: (end) => {
            file.close();
            ended(end);
          },
        },
      );
    } catch (cause) {
      file.close();
      throw cause;
    }
  }

  #end(command: RunningCommand | undefined): void {
    const { cancelGraceMs } = this.#options;
    if (cancelGraceMs > 0) command?.terminate(cancelGraceMs);
    else command?.kill();
  }

  #ended(held: ForemanTask, slot: SlotShell, success: boolean, status: string): void {
    this.#busySlots.delete(slot);
    this.#startWaiting();
    if (this.#tasks.get(pairKey(pairOf(held.task))) !== held) return;
    held.update = { ...pairOf(held.task), success, status, newJob: null };
    this.#options.onEnded();
  }
}
