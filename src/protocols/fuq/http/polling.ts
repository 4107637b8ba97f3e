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
import { now } from "../../../broker/clock.js";
import type { Core, WorkerPort } from "../../../broker/core.js";
import type { TasksOf, WorkerProfile } from "../../../dispatch/index.js";
import { type JobId, SessionId } from "../../../model/ids.js";
import type { Job } from "../../../model/job.js";
import { DEFAULT_POOL } from "../../../model/recipe.js";
import { describeTask, type TaskDescription } from "./description.js";
import { Refused } from "./exchange.js";
import type { FuqNode } from "./nodes.js";
import { endOf } from "./outcome.js";
import { Questions, type Work } from "./questions.js";

/** Longer than the longest pause of the original between two tries to connect, which is five minutes. */
export const GRACE_MS = 6 * 60_000;

export interface Update {
  readonly job: JobId;
  /** From 0. */
  readonly index: number;
  readonly success: boolean;
  readonly status: string;
}

interface Held {
  readonly job: JobId;
  readonly index: number;
  readonly attempt: number;
  readonly since: number;
}

export class PollingWorker implements WorkerPort {
  readonly #core: Core;
  readonly #node: FuqNode;
  readonly #pool: string;
  readonly #held = new Map<string, Held>();
  readonly #questions = new Questions(() => this.#tellRoom());
  readonly #sockets = new Set<Socket>();
  readonly #vanished: () => void;
  #joining: Promise<void> | undefined;
  #room = 0;

  /** `vanished` is called when its last connection is gone. */
  constructor(core: Core, node: FuqNode, pool: string | undefined, vanished: () => void) {
    this.#core = core;
    this.#node = node;
    this.#pool = pool ?? DEFAULT_POOL;
    this.#vanished = vanished;
  }

  /** It has asked something on this connection, which is a sign of its life from now on. */
  heardOn(socket: Socket): void {
    if (this.#sockets.has(socket)) return;
    this.#sockets.add(socket);
    socket.setKeepAlive(true, 30_000);
    socket.once("close", () => {
      this.#sockets.delete(socket);
      if (this.#sockets.size > 0) return;
      this.#leave();
      this.#vanished();
    });
  }

  /** Waits until there is something for it to do, or nobody waits for the answer any more. */
  async request(nproc: number, gone: AbortSignal): Promise<Work> {
    await this.#joined();
    const work = this.#ask(nproc, gone);
    this.#missTasks();
    this.#tellRoom();
    return work;
  }

  /** Resolves when the result is on disk and, where it asks for more, there is something to do. */
  async update(update: Update, nproc: number | undefined, gone: AbortSignal): Promise<Work> {
    await this.#joined();
    const held = await this.#heldAs(update);
    const next = nproc === undefined ? undefined : this.#ask(nproc, gone);
    if (held === undefined) this.#tellRoom();
    else await this.#record(held, update);
    return next ?? [];
  }

  #ask(nproc: number, gone: AbortSignal): Promise<Work> {
    if (this.#node.stopping) return Promise.resolve("stop");
    return this.#questions.ask(Math.min(Math.max(1, nproc), this.#slots), gone);
  }

  get #slots(): number {
    return Math.max(1, this.#node.info.nproc);
  }

  /** A worker that asks for as many tasks as it can run has none: an answer of ours did not arrive. */
  #missTasks(): void {
    if (this.#questions.wanted < this.#slots || this.#held.size === 0) return;
    const lost = [...this.#held.values()];
    this.#held.clear();
    this.#core.workerRetracted(this.#node.id, lost.map(rangeOf));
  }

  /** It has room for what it has and what it asks for. */
  #tellRoom(): void {
    const room = this.#held.size + Math.min(this.#questions.wanted, Math.max(0, this.#slots - this.#held.size));
    if (room === this.#room || this.#joining === undefined) return;
    this.#room = room;
    this.#core.workerChanged(this.#profile());
  }

  async #heldAs({ job, index }: Update): Promise<Held | undefined> {
    const known = this.#held.get(keyOf(job, index));
    if (known !== undefined) return known;
    const found = await this.#core.store.job(job);
    if (found === undefined || index < 0 || index >= found.count) throw new Refused(500);
    const attempt = this.#core.reclaim(this.#node.id, job, index);
    return attempt === undefined ? undefined : { job, index, attempt, since: now() };
  }

  #record(held: Held, { success, status }: Update): Promise<void> {
    const { job, index, attempt, since: started } = held;
    this.#held.delete(keyOf(job, index));
    // Before the result frees its slot: where it asks for no more, nobody waits for what would be put there.
    this.#tellRoom();
    const done = { job, index, attempt, started, ended: now(), outputEnd: 0, ...endOf(success, status) };
    return new Promise((resolve) => this.#core.workerDone(this.#node.id, [done], resolve));
  }

  // Being here

  #joined(): Promise<void> {
    this.#joining ??= this.#join().catch((cause: unknown) => {
      this.#joining = undefined;
      throw cause;
    });
    return this.#joining;
  }

  async #join(): Promise<void> {
    const held = await this.#core.heldBy(this.#node.id);
    this.#held.clear();
    for (const { job, first, last, attempt } of held) {
      for (let index = first; index <= last; index++) this.#keep({ job, index, attempt });
    }
    this.#room = this.#held.size;
    const running = held.map((tasks) => ({ ...tasks, state: "running" as const }));
    await this.#core.workerJoins(this.#profile(), running, this);
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

  #leave(): void {
    if (this.#joining === undefined) return;
    this.#joining = undefined;
    this.#core.workerGone(this.#node.id, this, this.#held.size === 0);
  }

  #keep(task: Omit<Held, "since">): void {
    this.#held.set(keyOf(task.job, task.index), { ...task, since: now() });
  }

  /** An answer could not be sent: it does not have these. */
  notSent(work: Work): void {
    if (work === "stop") return;
    const lost = work.flatMap(({ job_id, task }) => this.#held.get(keyOf(job_id, task - 1)) ?? []);
    for (const { job, index } of lost) this.#held.delete(keyOf(job, index));
    this.#core.workerRetracted(this.#node.id, lost.map(rangeOf));
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
        this.#keep({ job: job.id, index, attempt });
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
    this.#joining = undefined;
    this.#questions.answerAll([]);
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

const keyOf = (job: number, index: number): string => `${job}.${index}`;

const rangeOf = ({ job, index, attempt }: Held): TasksOf => ({ job, first: index, last: index, attempt });
