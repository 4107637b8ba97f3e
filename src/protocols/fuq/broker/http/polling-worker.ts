/**
 * A worker that asks for its tasks over HTTP.
 *
 *   disconnected  it has no connection here; its tasks are kept for it during the grace period
 *   joining       its claims are being reconciled, and requests wait
 *   connected     each request is a slot, until it is answered with a task
 *   stopping      it was asked to stop: every request is answered with ::stop::
 *
 * There is no message to cancel a task, and between request and update such a worker sends nothing. It keeps a connection open for as long
 * as it runs, if the broker does not close it. When the last one is closed, it is disconnected.
 */
import type { Socket } from "node:net";
import { now } from "../../../../base/clock.js";
import { LaboroError } from "../../../../base/errors.js";
import type { Core, WorkerPort } from "../../../../broker/core.js";
import type { AttemptRange } from "../../../../dispatch/index.js";
import { JobId, SessionId } from "../../../../model/ids.js";
import type { Job } from "../../../../model/job.js";
import { DEFAULT_POOL } from "../../../../model/recipe.js";
import { taskIndex } from "../../../../model/task-numbers.js";
import { pairKey, pairOf, type Update } from "../../messages.js";
import { FUQ_WORKER, outcomeOf, recordOutcome } from "../fuq-task.js";
import { HttpError } from "./json-http.js";
import type { FuqNode } from "./nodes.js";
import { PendingPolls, type PollAnswer, type PolledTask, PolledTasks, type PollSource } from "./polls.js";

/** Longer than the longest pause of the original between two tries to connect, which is five minutes. */
export const GRACE_MS = 6 * 60_000;

/** TCP keep-alive for a worker that is silent for so long. */
const KEEP_ALIVE_MS = 30_000;

export class PollingWorker implements WorkerPort {
  readonly #core: Core;
  readonly #node: FuqNode;
  readonly #pool: string;
  readonly #polls = new PendingPolls(() => this.#tasks.publishSlots());
  /** Made again with each join. */
  #tasks: PolledTasks;
  /** What it was sent before its last connection was closed: attempts by name. Undefined until it has joined here. */
  #sentBefore: ReadonlyMap<string, number> | undefined;
  readonly #sockets = new Set<Socket>();
  #joining: Promise<void> | undefined;
  /** Each ends with the answer to its next request. */
  #slotsToStop = 0;
  #stoppedSlots = 0;
  #missingTimer: NodeJS.Timeout | undefined;

  constructor(core: Core, node: FuqNode, pool: string | undefined) {
    this.#core = core;
    this.#node = node;
    this.#pool = pool ?? DEFAULT_POOL;
    this.#tasks = this.#newTasks();
  }

  #newTasks(): PolledTasks {
    const slots = (taken: number): number =>
      taken + Math.min(this.#polls.wantedTasks, Math.max(0, this.#slots - taken));
    return new PolledTasks(this.#core, this, this.#polls, slots);
  }

  /** Waits until there is something for it to do, or nobody waits for the answer any more. */
  async request(nproc: number, source: PollSource): Promise<PollAnswer> {
    await this.#attachSocket(source.socket);
    if (this.#slotsToStop > 0) {
      this.#slotsToStop--;
      this.#stoppedSlots++;
      return "stop";
    }
    const work = this.#addPoll(nproc, source);
    this.#returnMissing();
    this.#tasks.publishSlots();
    return work;
  }

  /** Resolves when the result is on disk and, where it asks for more, there is something to do. */
  async update(update: Update, source: PollSource): Promise<PollAnswer> {
    await this.#attachSocket(source.socket);
    const held = await this.#findTask(update);
    const next = update.newJob === null ? [] : this.#addPoll(update.newJob.numProc, source);
    const recorded = held === undefined ? undefined : this.#record(held, update);
    this.#returnMissing();
    this.#tasks.publishSlots();
    await recorded;
    return next;
  }

  #addPoll(nproc: number, source: PollSource): Promise<PollAnswer> {
    if (this.#node.stopping) return Promise.resolve("stop");
    return this.#polls.add(Math.min(Math.max(1, nproc), this.#slots), source);
  }

  get #slots(): number {
    return Math.max(1, this.#node.info.nproc - this.#stoppedSlots);
  }

  /**
   * A worker that asks for more than it can run beside what it was given does not have all of that: an answer did not arrive. With one slot
   * that is certain when it asks. With several, one of the requests may be an old one whose connection is dead; so the state must last.
   */
  #returnMissing(): void {
    if (this.#missing <= 0 || this.#missingTimer !== undefined) return;
    if (this.#slots === 1) {
      this.#tasks.giveBack(this.#tasks.all());
      return;
    }
    const since = now();
    this.#missingTimer = setTimeout(() => {
      this.#missingTimer = undefined;
      this.#tasks.giveBack(this.#tasks.undelivered(this.#missing, since));
      this.#returnMissing();
      this.#tasks.publishSlots();
    }, 2 * this.#core.graceMs).unref();
  }

  get #missing(): number {
    return this.#tasks.claimedCount + this.#polls.wantedTasks - this.#slots;
  }

  async #findTask(update: Update): Promise<PolledTask | undefined> {
    const job = JobId(update.jobId);
    const found = await this.#core.storedJob(job);
    const index = found && taskIndex(found, update.task);
    if (index === undefined) throw new HttpError(500);
    return this.#tasks.get(pairKey(update)) ?? this.#tasks.reclaim(job, index);
  }

  #record(held: PolledTask, update: Update): Promise<void> {
    this.#tasks.remove(held);
    // Before the result frees its slot: where it asks for no more, nobody waits for what would be put there.
    this.#tasks.publishSlots();
    return new Promise((resolve) => recordOutcome(this.#core, this.#node.id, outcomeOf(held, update), resolve));
  }

  // Connections

  /** From its first request on, a connection shows that the worker is there. */
  #attachSocket(socket: Socket): Promise<void> {
    if (!this.#sockets.has(socket) && !socket.destroyed) {
      this.#sockets.add(socket);
      socket.setKeepAlive(true, KEEP_ALIVE_MS);
      socket.once("close", () => {
        this.#sockets.delete(socket);
        this.#leaveIfDisconnected();
      });
    }
    return this.#joined();
  }

  #joined(): Promise<void> {
    this.#joining ??= this.#join().catch((cause: unknown) => {
      this.#joining = undefined;
      throw cause;
    });
    return this.#joining;
  }

  async #join(): Promise<void> {
    const { id, info } = this.#node;
    const { uniqueName: name, tags } = info;
    const session = SessionId(name);
    const profile = { id, session, name, protocol: "fuq (polling)", pool: this.#pool, tags };
    this.#tasks = this.#newTasks();
    await this.#tasks.join(
      { ...profile, ...FUQ_WORKER, resumable: true, graceMs: GRACE_MS },
      // Claimed tasks that were not sent to it return to the queue. After a start of the broker it is not known which were sent.
      (task, attempt) => this.#sentBefore === undefined || this.#sentBefore.get(task) === attempt,
    );
    this.#leaveIfDisconnected();
  }

  #leaveIfDisconnected(): void {
    if (this.#joining === undefined || this.#sockets.size > 0) return;
    this.#end();
    this.#tasks.disconnected(true);
  }

  /** An answer could not be sent: it does not have these. */
  answerNotSent(work: PollAnswer): void {
    if (work === "stop") return;
    this.#tasks.giveBack(work.flatMap((task) => this.#tasks.get(pairKey(pairOf(task))) ?? []));
  }

  // Calls of the core

  assign(job: Job, tasks: AttemptRange): void {
    this.#tasks.assign(job, tasks);
  }

  stop(): void {
    this.#node.stopping = true;
    this.#polls.answerAll("stop");
    this.#tasks.publishSlots();
  }

  /** Requests that wait are answered with nothing: then the worker asks again. There is no message to stop it now. */
  stopSlots(slots: number | "now"): void {
    if (slots === "now") throw new LaboroError("LABORO_NOT_SUPPORTED", "a polling worker cannot be stopped now");
    this.#slotsToStop += slots;
    if (this.#slotsToStop >= this.#slots) this.stop();
    else for (const poll of this.#polls.newestFirst.slice(0, slots)) poll.answer([]);
    this.#tasks.publishSlots();
  }

  close(): void {
    this.#end();
    this.#tasks.close();
    this.#polls.answerAll([]);
  }

  #end(): void {
    clearTimeout(this.#missingTimer);
    this.#missingTimer = undefined;
    this.#joining = undefined;
    // One that was cut while it joined has still what it had before.
    if (this.#tasks.id === undefined) return;
    this.#sentBefore = new Map(this.#tasks.all().map(({ name, attempt }) => [name, attempt]));
  }

  retract(tasks: readonly AttemptRange[]): void {
    this.#tasks.retract(tasks);
  }

  // There is no message for it; the task is recorded as cancelled when it ends.
  cancel(): void {}
  drain(): void {}
  call(): void {}
  cancelCall(): void {}
}
