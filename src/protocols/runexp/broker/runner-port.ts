/**
 * A runner as a worker of dispatch:
 *
 *   joining   JES was received
 *   working   dispatch knows it
 *   gone      its connection has ended
 *
 * A runner does not report how many threads it has. So each PETO offers one slot, which lasts while its task runs and
 * for a moment after the result, because the same thread is about to send PETO again. Tasks that are assigned in that
 * time are sent with the next PETO. A PETO for which there is no task gets
 *
 *   FINO      if the runner is drained or stopped, or the batch is over for it (see below)
 *   ELIRI     if it is banned
 *   ATENDI    if it is suspended, or runs tasks of `serve` or from before a restart: an open PETO holds the lock that
 *             its results need
 *   nothing   otherwise, until there is a task
 *
 * A batch of experiments is over for a runner if no experiment waits, and it runs some itself or no other worker does.
 * An idle runner keeps its open PETO while others run experiments, and gets those of a lost runner. A busy runner
 * cannot keep an open PETO, so it may leave, as with an original manager. Experiments that return to the queue later
 * wait for the next runner that joins. After a restart no runner leaves before the earlier tasks have a result or are
 * queued again, because some tasks may never have arrived.
 */
import { randomUUID } from "node:crypto";
import { now } from "../../../base/clock.js";
import { asLaboroError } from "../../../base/errors.js";
import type { WorkerPort } from "../../../broker/core.js";
import type { AttemptRange, Done } from "../../../dispatch/index.js";
import { SessionId, type WorkerId } from "../../../model/ids.js";
import type { Entries, Job } from "../../../model/job.js";
import type { NoJobReply } from "../messages.js";
import type { Manager } from "./listener.js";
import { assignmentKey, type PackedTask, packTask, type RunnerTask, RunnerTasks } from "./runner-tasks.js";

/** How an open PETO is answered. */
interface PetoReplies {
  sendJob(name: string, kind: string, content: Uint8Array): void;
  noJob(answer: NoJobReply): void;
  close(reason: string): void;
}

/** How long after a result the next PETO is expected. */
const NEXT_PETO_TIMEOUT_MS = 100;
/** How long an open PETO waits for an assignment that is being stored, before results may pass. */
const ASSIGNMENT_TIMEOUT_MS = 1_000;

export class RunnerPort implements WorkerPort {
  readonly id: WorkerId;
  readonly host: string;
  readonly #manager: Manager;
  readonly #replies: PetoReplies;
  readonly tasks: RunnerTasks;
  readonly #address: string;
  #state: "joining" | "working" | "gone" = "joining";
  /** It gets FINO. */
  #finishing = false;
  #petoOpen = false;
  /** Announced by LABORO. */
  #announced: RunnerTask | undefined;
  /** Threads that have delivered a result and are about to send PETO. */
  #expectedPetos = 0;
  #nextPetoTimer: NodeJS.Timeout | undefined;
  #assignmentTimer: NodeJS.Timeout | undefined;
  /** The connection is closed by the broker. */
  #closing = false;

  constructor(manager: Manager, host: string, address: string, replies: PetoReplies) {
    this.#manager = manager;
    this.#replies = replies;
    this.host = host;
    this.id = manager.newId(host);
    this.#address = address;
    this.tasks = new RunnerTasks(manager.core, this, {
      slots: (used) => used + (this.#finishing ? 0 : this.#expectedPetos + (this.#petoOpen ? 1 : 0)),
      mayTake: () => !this.#finishing,
      onPending: () => this.#assigned(),
    });
  }

  async join(): Promise<void> {
    const { id, host: name } = this;
    const profile = { id, session: SessionId(randomUUID()), name, protocol: "runexp", pool: this.#manager.pool };
    const takes = { tags: [], resumable: false, canPrefetch: false, taskKinds: ["script", "command"] } as const;
    await this.tasks.joinNew({ ...profile, ...takes, address: this.#address });
    if (this.#state === "gone") return;
    this.#state = "working";
    this.#manager.joined(this);
    this.tasks.publishSlots();
    this.answerOpenPeto();
  }

  /** `orderly`: after FINO ANKAU. */
  leave(orderly: boolean): void {
    if (this.#state === "gone") return;
    const known = this.#state === "working";
    this.#state = "gone";
    this.#petoOpen = false;
    clearTimeout(this.#nextPetoTimer);
    clearTimeout(this.#assignmentTimer);
    if (known && !orderly && !this.#closing) {
      const { length } = this.tasks.all().filter(({ sent }) => sent?.experiment === true);
      this.#manager.experiments?.lost(this.host, length);
    }
    if (orderly) this.tasks.giveBackAll();
    this.tasks.disconnected(orderly);
    this.#manager.gone(this);
  }

  // Messages of the runner

  petoReceived(): void {
    this.#petoOpen = true;
    if (this.#expectedPetos > 0) this.#expectedPetos--;
    this.tasks.publishSlots();
    this.answerOpenPeto();
  }

  scriptSent(): void {
    const task = this.#announced;
    this.#announced = undefined;
    if (task?.sent === undefined) return;
    const { sent } = task;
    sent.started = now();
    this.tasks.started(task);
    this.#manager.assignments.add(this.host, assignmentKey(sent));
    if (sent.experiment) this.#manager.experiments?.assigned(this.host, sent.name);
  }

  /** Resolves when the result is stored. `worker` has the claim; mostly it is this one. */
  settle(name: string, done: Done, worker: WorkerId): Promise<void> {
    if (this.#remove(name) && !this.#finishing) this.#expectedPetos++;
    this.tasks.publishSlots();
    return new Promise((resolve) => this.#manager.core.workerDone(worker, [done], resolve));
  }

  /** RICEVIS is being sent. */
  resultAcknowledged(): void {
    if (this.#expectedPetos === 0 || this.#state !== "working") return;
    if (this.#nextPetoTimer === undefined)
      this.#nextPetoTimer = setTimeout(() => this.#nextPetoTimedOut(), NEXT_PETO_TIMEOUT_MS);
    else this.#nextPetoTimer.refresh();
  }

  /** Its result came over another connection of the same host. */
  forgetTask(name: string): void {
    if (this.#remove(name)) this.tasks.publishSlots();
  }

  #remove(name: string): boolean {
    const task = this.tasks.sent(name);
    if (task !== undefined) this.tasks.remove(task);
    return task !== undefined;
  }

  /** Answers an open PETO, if there is an answer. To be called when a task has ended or returned to the queue. */
  answerOpenPeto(): void {
    while (this.#petoOpen && this.#state === "working") {
      if (!this.#answer()) return;
    }
  }

  /** It has a task that is not sent yet and may return to the queue. */
  get hasUnsent(): boolean {
    return (this.#manager.core.worker(this.id)?.assigned ?? 0) > this.tasks.usedSlots;
  }

  /** False if there is no answer yet. */
  #answer(): boolean {
    const worker = this.#manager.core.worker(this.id);
    if (this.#finishing) return this.#reply(() => this.#replies.noJob("FINO"));
    if (worker?.standing === "banned") {
      this.tasks.drain();
      return this.#reply(() => this.#replies.noJob("ELIRI"));
    }
    const next = this.tasks.nextUnsent();
    if (next !== undefined) return this.#sendTask(next);
    if (this.hasUnsent) return this.#waitForAssignment();
    const open = this.#manager.experiments?.whereOpen(this.id);
    const earlier = this.#manager.hasEarlierTasks();
    const mayLeave = this.tasks.usedSlots > 0 && !this.#manager.anyUnsent && !earlier;
    if (open === "here" || (open === "elsewhere" && mayLeave)) {
      this.#finishing = true;
      return true;
    }
    if (worker?.standing === "suspended") return this.#reply(() => this.#replies.noJob("ATENDI"));
    if (this.tasks.usedSlots === 0 && !this.#manager.hasEarlierTasks(this.host)) return false;
    const hold = open === undefined || earlier;
    return hold ? this.#reply(() => this.#replies.noJob("ATENDI")) : this.#waitForAssignment();
  }

  /** A waiting task is about to be assigned, to this runner or to another. */
  #waitForAssignment(): false {
    this.#assignmentTimer ??= setTimeout(() => this.#assignmentTimedOut(), ASSIGNMENT_TIMEOUT_MS);
    return false;
  }

  #reply(send: () => void): true {
    this.#petoOpen = false;
    clearTimeout(this.#assignmentTimer);
    this.#assignmentTimer = undefined;
    send();
    this.tasks.publishSlots();
    return true;
  }

  #sendTask(task: RunnerTask): true {
    const made = this.#packTask(task);
    if (made === undefined) return true;
    task.sent = made.sent;
    this.#announced = task;
    this.#reply(() => this.#replies.sendJob(made.sent.name, made.kind, made.content));
    this.#manager.answerOpenPetos();
    return true;
  }

  /** Undefined if no runner can run it: then it has failed. */
  #packTask(task: RunnerTask): PackedTask | undefined {
    const { core, experiments, secret } = this.#manager;
    const { job, index, attempt } = task;
    const open = core.job(job);
    try {
      if (open !== undefined) return packTask(open, task, experiments, secret);
    } catch (cause) {
      const times = { started: now(), ended: now(), outputBytes: 0 };
      const error = asLaboroError(cause).message;
      core.workerDone(this.id, [{ job, index, attempt, ...times, error }], () => this.#manager.answerOpenPetos());
    }
    this.tasks.remove(task);
    return undefined;
  }

  #assignmentTimedOut(): void {
    this.#assignmentTimer = undefined;
    if (this.#petoOpen && this.tasks.usedSlots > 0) this.#reply(() => this.#replies.noJob("ATENDI"));
  }

  /** No PETO came: the unsent tasks return to the queue. */
  #nextPetoTimedOut(): void {
    this.#nextPetoTimer = undefined;
    this.#expectedPetos = 0;
    this.tasks.publishSlots();
    if (!this.#petoOpen) this.tasks.drain();
  }

  #assigned(): void {
    this.answerOpenPeto();
    // It may have got ATENDI meanwhile.
    if (this.tasks.count("unsent") > 0 && this.#state === "working")
      this.#nextPetoTimer ??= setTimeout(() => this.#nextPetoTimedOut(), NEXT_PETO_TIMEOUT_MS);
  }

  // Calls of the core

  assign(job: Job, tasks: AttemptRange, entries: Entries | undefined): void {
    this.tasks.assign(job, tasks, entries);
  }

  retract(tasks: readonly AttemptRange[]): void {
    this.tasks.retract(tasks);
  }

  /** The protocol has no message for it: a running task ends by itself, and is recorded as cancelled. */
  cancel(tasks: readonly AttemptRange[]): void {
    this.tasks.retract(tasks);
  }

  call(): void {}

  cancelCall(): void {}

  readonly drainEnds = true;

  drain(): void {
    this.#finishing = true;
    this.#expectedPetos = 0;
    this.tasks.drain();
    this.answerOpenPeto();
  }

  stop(): void {
    this.drain();
  }

  close(reason: string): void {
    this.#finishing = true;
    this.#closing = true;
    this.answerOpenPeto();
    this.#replies.close(reason);
  }
}
