/**
 * A worker that asks for its tasks over HTTP.
 *
 *   away      it has no connection here; what it has is kept for it during the grace period
 *   joining   its claims are being put right, and questions wait
 *   here      each question is a slot, until it is answered with a task
 *   stopping  it was asked to stop: every question is answered with ::stop::
 *
 * Nothing tells such a worker to cancel a task, and between question and update it says nothing. What is seen of it are its connections:
 * it keeps one for as long as it lives, if it is not closed here. When the last one is gone, it is away.
 */
import type { Socket } from "node:net";
import { now } from "../../../../base/clock.js";
import type { Core, WorkerPort } from "../../../../broker/core.js";
import type { TasksOf, WorkerProfile } from "../../../../dispatch/index.js";
import { type JobId, SessionId } from "../../../../model/ids.js";
import type { Job } from "../../../../model/job.js";
import { DEFAULT_POOL } from "../../../../model/recipe.js";
import { endOf } from "../../outcome.js";
import { describeTask, type TaskDescription } from "../task-description.js";
import { Refused } from "./exchange.js";
import { type Given, GivenTasks, rangeOf } from "./given.js";
import type { FuqNode } from "./nodes.js";
import { type Asking, Questions, type Work } from "./questions.js";

/** Longer than the longest pause of the original between two tries to connect, which is five minutes. */
export const GRACE_MS = 6 * 60_000;

/** A worker that is silent for so long is asked by the system whether it is still there. */
const KEEP_ALIVE_MS = 30_000;

export interface Update {
  readonly job: JobId;
  /** From 0. */
  readonly index: number;
  readonly success: boolean;
  readonly status: string;
}

export class PollingWorker implements WorkerPort {
  readonly #core: Core;
  readonly #node: FuqNode;
  readonly #pool: string;
  readonly #given = new GivenTasks();
  readonly #questions = new Questions(() => this.#tellRoom());
  readonly #sockets = new Set<Socket>();
  #joining: Promise<void> | undefined;
  #everJoined = false;
  #room = 0;
  #doubt: NodeJS.Timeout | undefined;

  constructor(core: Core, node: FuqNode, pool: string | undefined) {
    this.#core = core;
    this.#node = node;
    this.#pool = pool ?? DEFAULT_POOL;
  }

  /** Waits until there is something for it to do, or nobody waits for the answer any more. */
  async request(nproc: number, asking: Asking): Promise<Work> {
    await this.#heardOn(asking.socket);
    const work = this.#ask(nproc, asking);
    this.#missTasks();
    this.#tellRoom();
    return work;
  }

  /** Resolves when the result is on disk and, where it asks for more, there is something to do. */
  async update(update: Update, nproc: number | undefined, asking: Asking): Promise<Work> {
    await this.#heardOn(asking.socket);
    const held = await this.#heldAs(update);
    const next = nproc === undefined ? undefined : this.#ask(nproc, asking);
    const recorded = held === undefined ? undefined : this.#record(held, update);
    this.#missTasks();
    this.#tellRoom();
    await recorded;
    return next ?? [];
  }

  #ask(nproc: number, asking: Asking): Promise<Work> {
    if (this.#node.stopping) return Promise.resolve("stop");
    return this.#questions.ask(Math.min(Math.max(1, nproc), this.#slots), asking);
  }

  get #slots(): number {
    return Math.max(1, this.#node.info.nproc);
  }

  /**
   * A worker that asks for more than it can run beside what it was given does not have all of that: an answer did not arrive. With one slot
   * that is certain when it asks. With several, one of the questions may be an old one whose connection is dead; so it must last.
   */
  #missTasks(): void {
    if (this.#missing <= 0 || this.#doubt !== undefined) return;
    if (this.#slots === 1) {
      this.#giveBack(this.#given.all());
      return;
    }
    const since = now();
    this.#doubt = setTimeout(() => {
      this.#doubt = undefined;
      this.#giveBack(this.#given.lost(this.#missing, since));
      this.#missTasks();
      this.#tellRoom();
    }, 2 * this.#core.state.settings.graceMs).unref();
  }

  get #missing(): number {
    return this.#given.size + this.#questions.wanted - this.#slots;
  }

  #giveBack(lost: readonly Given[]): void {
    this.#given.remove(lost);
    if (lost.length > 0) this.#core.workerRetracted(this.#node.id, lost.map(rangeOf));
  }

  /** It has room for what it has and what it asks for. */
  #tellRoom(): void {
    const room = this.#given.size + Math.min(this.#questions.wanted, Math.max(0, this.#slots - this.#given.size));
    if (room === this.#room || this.#joining === undefined) return;
    this.#room = room;
    this.#core.workerChanged(this.#profile());
  }

  async #heldAs({ job, index }: Update): Promise<Given | undefined> {
    const known = this.#given.get(job, index);
    if (known !== undefined) return known;
    const found = await this.#core.store.job(job);
    if (found === undefined || index < 0 || index >= found.count) throw new Refused(500);
    const attempt = this.#core.reclaim(this.#node.id, job, index);
    return attempt === undefined ? undefined : { job, index, attempt, since: now() };
  }

  #record(held: Given, { success, status }: Update): Promise<void> {
    const { job, index, attempt, since: started } = held;
    this.#given.remove([held]);
    // Before the result frees its slot: where it asks for no more, nobody waits for what would be put there.
    this.#tellRoom();
    const done = { job, index, attempt, started, ended: now(), outputEnd: 0, ...endOf(success, status) };
    return new Promise((resolve) => this.#core.workerDone(this.#node.id, [done], resolve));
  }

  // Being here

  /** A connection on which it has asked something is a sign of its life from then on. */
  #heardOn(socket: Socket): Promise<void> {
    if (!this.#sockets.has(socket) && !socket.destroyed) {
      this.#sockets.add(socket);
      socket.setKeepAlive(true, KEEP_ALIVE_MS);
      socket.once("close", () => {
        this.#sockets.delete(socket);
        this.#lookWhetherGone();
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
    // What was never sent to it went nowhere. Before a start of the broker, nobody knows what was.
    this.#given.reconcile(await this.#core.heldBy(this.#node.id), !this.#everJoined);
    this.#room = this.#given.size;
    this.#everJoined = true;
    const running = this.#given.all().map((given) => ({ ...rangeOf(given), state: "running" as const }));
    await this.#core.workerJoins(this.#profile(), running, this);
    this.#lookWhetherGone();
  }

  #profile(): WorkerProfile {
    const { id, info } = this.#node;
    return {
      id,
      session: SessionId(info.uniqueName),
      name: info.uniqueName,
      protocol: "fuq (polling)",
      pool: this.#pool,
      tags: info.tags,
      services: [],
      total: { slots: this.#room },
      reserveRequests: 0,
      resumable: true,
      stocks: false,
      runs: ["numbered"],
      graceMs: GRACE_MS,
    };
  }

  #lookWhetherGone(): void {
    if (this.#joining === undefined || this.#sockets.size > 0) return;
    this.#end();
    this.#core.workerGone(this.#node.id, this, this.#given.size === 0);
  }

  /** An answer could not be sent: it does not have these. */
  notSent(work: Work): void {
    if (work === "stop") return;
    this.#giveBack(work.flatMap(({ job_id, task }) => this.#given.get(job_id, task - 1) ?? []));
    this.#tellRoom();
  }

  // What the core wants of it

  tasks(job: Job, { first, last, attempt }: TasksOf): void {
    let index = first;
    for (const question of this.#questions) {
      if (index > last) break;
      const upTo = Math.min(last, index + question.wants - 1);
      const work: TaskDescription[] = [];
      for (; index <= upTo; index++) {
        const { socket } = question;
        this.#given.add({ job: job.id, index, attempt, since: now(), socket });
        work.push(describeTask(job, index));
      }
      this.#core.workerStarted(
        this.#node.id,
        work.map(({ task }) => ({ job: job.id, index: task - 1, attempt })),
      );
      question.answer(work);
    }
    // Who asked has gone meanwhile.
    if (index <= last) this.#core.workerRetracted(this.#node.id, [{ job: job.id, first: index, last, attempt }]);
    this.#tellRoom();
  }

  stop(): void {
    this.#node.stopping = true;
    this.#questions.answerAll("stop");
    this.#tellRoom();
  }

  close(): void {
    this.#end();
    this.#questions.answerAll([]);
  }

  #end(): void {
    clearTimeout(this.#doubt);
    this.#doubt = undefined;
    this.#joining = undefined;
  }

  retract(): void {
    this.#core.workerRetracted(this.#node.id, []);
  }

  // It cannot be told; what it does is recorded as cancelled when it has done it.
  cancel(): void {}
  drain(): void {}
  call(): void {}
  uncall(): void {}
}
