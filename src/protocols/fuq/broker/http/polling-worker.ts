/**
 * A worker that requests its tasks over HTTP.
 *
 *   disconnected  it has no connection here; its tasks are kept for it during the grace period
 *   joining       its claims are being reconciled, and requests wait
 *   connected     each request is a slot, until it is answered with a task
 *   stopping      it was asked to stop: every request is answered with ::stop::
 *
 * There is no message to cancel a task, and between request and update the worker sends nothing. While it runs it keeps
 * a connection open, if the broker does not close it. When the last one is closed, the worker is disconnected.
 */
import type { Socket } from "node:net";
import { now } from "../../../../base/clock.js";
import { LaboroError } from "../../../../base/errors.js";
import type { Core, WorkerPort } from "../../../../broker/core.js";
import { type AssignedTask, AssignedTasks } from "../../../../broker/sessions/assigned-tasks.js";
import type { AttemptRange } from "../../../../dispatch/index.js";
import { JobId, SessionId, type TaskIndex } from "../../../../model/ids.js";
import type { Job } from "../../../../model/job.js";
import { DEFAULT_POOL } from "../../../../model/recipe.js";
import { taskIndex } from "../../../../model/task-numbers.js";
import { pairKey, pairOf, type Task, type Update } from "../../messages.js";
import { FUQ_WORKER, outcomeOf, recordOutcome, toFuqTask } from "../foreman-tasks.js";
import { HttpError } from "./json-http.js";
import type { FuqNode } from "./nodes.js";

/** Longer than the longest pause of the original between two connection attempts, which is five minutes. */
export const GRACE_MS = 6 * 60_000;
/** TCP keep-alive starts after this long without data. */
const KEEP_ALIVE_MS = 30_000;

export type PollAnswer = readonly Task[] | "stop";

/** The connection of a request. */
export interface PollSource {
  readonly socket: Socket;
  /** Aborted when the client no longer waits for the answer. */
  readonly signal: AbortSignal;
}

/** A request that waits for tasks. */
interface PendingPoll {
  readonly socket: Socket;
  readonly maxTasks: number;
  answer(work: PollAnswer): void;
}

interface PolledTaskFields {
  readonly description: Task;
  /** The connection of the reply. Undefined if the task was sent before this broker started. */
  socket?: Socket;
}
type PolledTask = AssignedTask<PolledTaskFields>;

export class PollingWorker implements WorkerPort {
  readonly #core: Core;
  readonly #node: FuqNode;
  readonly #pool: string;
  readonly #polls = new Set<PendingPoll>();
  /** Created again with each join. */
  #tasks: PolledTasks;
  /** Attempts by name of the tasks that it had when it disconnected. Undefined until it has joined here. */
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
    const slots = (taken: number): number => taken + Math.min(this.#wantedTasks, Math.max(0, this.#slots - taken));
    return new PolledTasks(this.#core, this, () => this.#newestFirst, slots);
  }

  /** Resolves when there is something to do, or the client has disconnected. */
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

  /** Resolves when the result is on disk and, if the worker requests more, there is something to do. */
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

  /** Resolves when it is answered: with nothing if the client has disconnected. */
  async #addPoll(nproc: number, { socket, signal }: PollSource): Promise<PollAnswer> {
    if (this.#node.stopping) return "stop";
    return new Promise((resolve) => {
      const poll: PendingPoll = {
        socket,
        maxTasks: Math.min(Math.max(1, nproc), this.#slots),
        answer: (work) => {
          signal.removeEventListener("abort", withdraw);
          if (this.#polls.delete(poll)) resolve(work);
        },
      };
      const withdraw = (): void => {
        poll.answer([]);
        this.#tasks.publishSlots();
      };
      this.#polls.add(poll);
      signal.addEventListener("abort", withdraw, { once: true });
      if (signal.aborted) withdraw();
    });
  }

  /** The connection of an old request may be dead without notice. */
  get #newestFirst(): readonly PendingPoll[] {
    return [...this.#polls].reverse();
  }

  get #wantedTasks(): number {
    return [...this.#polls].reduce((sum, { maxTasks }) => sum + maxTasks, 0);
  }

  get #slots(): number {
    return Math.max(1, this.#node.info.nproc - this.#stoppedSlots);
  }

  /**
   * If a worker requests more tasks than it has free slots, it lacks some of the tasks that were sent to it: a reply
   * was lost. With one slot this is certain at once. With several slots, a request may be an old one whose connection
   * is dead, so the condition must persist.
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
    return this.#tasks.claimedCount + this.#wantedTasks - this.#slots;
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
    // Before the result frees its slot: if the worker requests no more tasks, a task in that slot would not be sent.
    this.#tasks.publishSlots();
    return new Promise((resolve) => recordOutcome(this.#core, this.#node.id, outcomeOf(held, update), resolve));
  }

  /** The client did not get the answer, so it does not have these tasks. */
  answerNotSent(work: PollAnswer): void {
    if (work === "stop") return;
    this.#tasks.giveBack(work.flatMap((task) => this.#tasks.get(pairKey(pairOf(task))) ?? []));
  }

  // Connections

  /** Resolves when the worker has joined. From its first request on, an open connection means that it is alive. */
  #attachSocket(socket: Socket): Promise<void> {
    if (!this.#sockets.has(socket) && !socket.destroyed) {
      this.#sockets.add(socket);
      socket.setKeepAlive(true, KEEP_ALIVE_MS);
      socket.once("close", () => {
        this.#sockets.delete(socket);
        this.#leaveIfDisconnected();
      });
    }
    this.#joining ??= this.#join().catch((cause: unknown) => {
      this.#joining = undefined;
      throw cause;
    });
    return this.#joining;
  }

  async #join(): Promise<void> {
    const { id, info } = this.#node;
    const { uniqueName: name, tags } = info;
    const profile = { id, session: SessionId(name), name, protocol: "fuq (polling)", pool: this.#pool, tags };
    this.#tasks = this.#newTasks();
    await this.#tasks.join(
      { ...profile, ...FUQ_WORKER, resumable: true, graceMs: GRACE_MS },
      // Claimed tasks that were not sent return to the queue. After a restart of the broker it is not known which were.
      (task, attempt) => this.#sentBefore === undefined || this.#sentBefore.get(task) === attempt,
    );
    this.#leaveIfDisconnected();
  }

  #leaveIfDisconnected(): void {
    if (this.#joining === undefined || this.#sockets.size > 0) return;
    this.#end();
    this.#tasks.disconnected(true);
  }

  #end(): void {
    clearTimeout(this.#missingTimer);
    this.#missingTimer = undefined;
    this.#joining = undefined;
    // A worker that disconnected while it joined still has what it had before.
    if (this.#tasks.id === undefined) return;
    this.#sentBefore = new Map(this.#tasks.all().map(({ name, attempt }) => [name, attempt]));
  }

  // Calls of the core

  assign(job: Job, tasks: AttemptRange): void {
    this.#tasks.assign(job, tasks);
  }

  retract(tasks: readonly AttemptRange[]): void {
    this.#tasks.retract(tasks);
  }

  stop(): void {
    this.#node.stopping = true;
    for (const poll of this.#newestFirst) poll.answer("stop");
    this.#tasks.publishSlots();
  }

  /** Waiting requests get an empty reply, so that the worker sends a new request. It cannot be stopped at once. */
  stopSlots(slots: number | "now"): void {
    if (slots === "now") throw new LaboroError("LABORO_NOT_SUPPORTED", "a polling worker cannot be stopped now");
    this.#slotsToStop += slots;
    if (this.#slotsToStop >= this.#slots) this.stop();
    else for (const poll of this.#newestFirst.slice(0, slots)) poll.answer([]);
    this.#tasks.publishSlots();
  }

  close(): void {
    this.#end();
    this.#tasks.close();
    for (const poll of this.#newestFirst) poll.answer([]);
  }

  // There is no message for these. A cancelled task is recorded as cancelled when it ends.
  cancel(): void {}
  drain(): void {}
  call(): void {}
  cancelCall(): void {}
}

/** The tasks that the worker got in an answer and has not reported. */
class PolledTasks extends AssignedTasks<PolledTaskFields> {
  readonly #polls: () => readonly PendingPoll[];
  readonly #slots: (taken: number) => number;

  constructor(core: Core, port: WorkerPort, polls: () => readonly PendingPoll[], slots: (taken: number) => number) {
    super(core, port);
    this.#polls = polls;
    this.#slots = slots;
  }

  protected describe(job: Job, index: TaskIndex) {
    const description = toFuqTask(job, index);
    return description && { name: pairKey(pairOf(description)), description };
  }

  protected slots(): number {
    return this.#slots(this.claimedCount);
  }

  /** Each request gets as many tasks as it asks for. */
  protected pending(): void {
    this.takeCancels();
    for (const poll of this.#polls()) {
      const given: PolledTask[] = [];
      while (given.length < poll.maxTasks) {
        const task = this.nextUnsent();
        if (task === undefined) break;
        task.socket = poll.socket;
        this.started(task);
        given.push(task);
      }
      if (given.length === 0) break;
      poll.answer(given.map(({ description }) => description));
    }
    // The worker has disconnected meanwhile.
    if (this.count("unsent") > 0) this.drain();
    this.publishSlots();
  }

  /** `count` tasks, sent until then, that did not arrive. First those whose connection is closed: the reply is lost. */
  undelivered(count: number, until: number): readonly PolledTask[] {
    const old = this.all().filter(({ since }) => since <= until);
    if (count >= old.length) return old;
    const doubtful = old.filter(({ socket }) => socket === undefined || socket.destroyed);
    return count >= doubtful.length ? doubtful : [];
  }
}
