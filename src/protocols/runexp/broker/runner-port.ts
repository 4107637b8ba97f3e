/**
 * A runner, as dispatch sees it. It does not say how many threads it has. So each PETO is an offer of one slot, which lasts while its
 * task runs and for a moment after the result, because the same thread is about to ask again; tasks that have become the runner's by then
 * are in hand, and go out with the next PETO. A PETO for which there is nothing gets
 *
 *   FINO      where it was drained or stopped, or the batch is over for it
 *   ELIRI     where it is banned
 *   ATENDI    where it has tasks out (an open PETO would hold the lock that its results need) or is suspended
 *   silence   otherwise, until there is a task
 */
import { randomUUID } from "node:crypto";
import { now } from "../../../base/clock.js";
import { asLaboroError } from "../../../base/errors.js";
import type { WorkerPort } from "../../../broker/core.js";
import type { Done, TasksOf, WorkerProfile } from "../../../dispatch/index.js";
import { SessionId, type WorkerId } from "../../../model/ids.js";
import type { Entries, Job } from "../../../model/job.js";
import type { SentTask } from "./experiments.js";
import type { Manager, Member } from "./manager.js";
import { type Parcelled, parcel, type TaskInHand } from "./shipping.js";

/** How an open PETO is answered. */
export interface Line {
  hand(name: string, kind: string, content: Uint8Array): void;
  hold(): void;
  ban(): void;
  finish(): void;
  close(reason: string): void;
}

/** So long after a result another PETO is counted on. */
const LINGER_MS = 100;
/** A task that was decided on is on its way to the disk, and a PETO waits so long for it before results are let through. */
const PATIENCE_MS = 1_000;

export class RunnerPort implements WorkerPort, Member {
  readonly id: WorkerId;
  readonly host: string;
  readonly #manager: Manager;
  readonly #line: Line;
  #profile: WorkerProfile;
  #state: "joining" | "working" | "gone" = "joining";
  /** It has been told, or is to be told, that there is nothing more. */
  #finishing = false;
  /** A PETO is open. */
  #asking = false;
  /** Threads that have delivered a result and are about to ask. */
  #expected = 0;
  #inHand: TaskInHand[] = [];
  readonly #sent = new Map<string, SentTask>();
  #linger: NodeJS.Timeout | undefined;
  #patience: NodeJS.Timeout | undefined;

  constructor(manager: Manager, host: string, address: string, line: Line) {
    this.#manager = manager;
    this.#line = line;
    this.host = host;
    this.id = manager.newId(host);
    this.#profile = {
      id: this.id,
      session: SessionId(randomUUID()),
      name: host,
      protocol: "runexp",
      pool: manager.pool,
      tags: [],
      services: [],
      total: { slots: 0 },
      reserveRequests: 0,
      resumable: false,
      stocks: true,
      runs: ["script", "command"],
      address,
    };
  }

  async join(): Promise<void> {
    await this.#manager.core.workerJoins(this.#profile, [], this);
    if (this.#state === "gone") {
      this.#manager.core.workerGone(this.id, this, false);
      return;
    }
    this.#state = "working";
    this.#manager.joined(this);
    this.#offer();
    this.lookAgain();
  }

  /** The connection is gone; `orderly` where the runner has said that it goes. */
  leave(orderly: boolean): void {
    if (this.#state === "gone") return;
    const known = this.#state === "working";
    this.#state = "gone";
    this.#asking = false;
    clearTimeout(this.#linger);
    clearTimeout(this.#patience);
    if (known) this.#manager.core.workerGone(this.id, this, orderly);
    this.#manager.gone(this);
  }

  // What the runner says

  asked(): void {
    this.#asking = true;
    if (this.#expected > 0) this.#expected--;
    this.#offer();
    this.lookAgain();
  }

  /** The script of this task is on its way. */
  handed(task: SentTask): void {
    task.started = now();
    this.#manager.core.workerStarted(this.id, [task]);
    this.#manager.handed(this.host, task.job, task.index);
    if (task.experiment) this.#manager.experiments?.handed(this.host, task.name);
  }

  sent(name: string): SentTask | undefined {
    return this.#sent.get(name);
  }

  /** It has this task after all. */
  adopt(task: SentTask): void {
    this.#sent.set(task.name, task);
    this.#offer();
  }

  /** It has not begun this one, and will not. */
  returned(name: string): void {
    const task = this.#sent.get(name);
    if (task === undefined) return;
    this.#sent.delete(name);
    // It has no thread that is about to ask.
    this.#expected = 0;
    this.#offer();
    const { job, index, attempt } = task;
    this.#manager.core.workerRetracted(this.id, [{ job, first: index, last: index, attempt }]);
    this.#manager.lookAgain();
  }

  /** Its result has come; resolves when it is recorded. `worker` is who has the claim, mostly this one. */
  settle(name: string, done: Done, worker: WorkerId): Promise<void> {
    if (this.#sent.delete(name) && !this.#finishing) this.#expected++;
    this.#offer();
    return new Promise((resolve) => this.#manager.core.workerDone(worker, [done], resolve));
  }

  /** RICEVIS goes out. */
  settled(): void {
    if (this.#expected === 0 || this.#state !== "working") return;
    if (this.#linger === undefined) this.#linger = setTimeout(() => this.#lingered(), LINGER_MS);
    else this.#linger.refresh();
  }

  taken(name: string): void {
    this.#sent.delete(name);
    this.#offer();
  }

  /** The answer to an open PETO, as far as there is one. */
  lookAgain(): void {
    while (this.#asking && this.#state === "working") {
      if (!this.#answer()) return;
    }
  }

  /** False where there is nothing to say yet. */
  #answer(): boolean {
    const worker = this.#manager.core.state.workers.get(this.id);
    if (this.#finishing) return this.#say(() => this.#line.finish());
    if (worker?.standing === "banned") {
      this.#giveBack();
      return this.#say(() => this.#line.ban());
    }
    const next = this.#inHand.shift();
    if (next !== undefined) return this.#hand(next);
    const coming = (worker?.out ?? 0) - this.#sent.size;
    if (coming > 0) {
      this.#patience ??= setTimeout(() => this.#waited(), PATIENCE_MS);
      return false;
    }
    if (this.#manager.experiments?.overFor(this.id) === true) {
      this.#finishing = true;
      return true;
    }
    if (this.#sent.size > 0 || worker?.standing === "suspended") return this.#say(() => this.#line.hold());
    return false;
  }

  #say(word: () => void): true {
    this.#asking = false;
    clearTimeout(this.#patience);
    this.#patience = undefined;
    word();
    this.#offer();
    return true;
  }

  #hand(task: TaskInHand): true {
    const made = this.#parcel(task);
    if (made === undefined) return true;
    return this.#say(() => {
      this.#sent.set(made.sent.name, made.sent);
      this.#line.hand(made.sent.name, made.kind, made.content);
    });
  }

  /** Undefined where no runner can do it: then it has failed. */
  #parcel(task: TaskInHand): Parcelled | undefined {
    const { core, experiments, secret } = this.#manager;
    try {
      return parcel(task, experiments, secret);
    } catch (cause) {
      const { job, index, attempt } = task;
      const times = { started: now(), ended: now(), outputEnd: 0 };
      const error = asLaboroError(cause).message;
      core.workerDone(this.id, [{ job: job.id, index, attempt, ...times, error }], () => this.#manager.lookAgain());
      return undefined;
    }
  }

  #waited(): void {
    this.#patience = undefined;
    if (this.#asking && this.#sent.size > 0) this.#say(() => this.#line.hold());
  }

  /** It did not ask after all: what is in hand goes to others. */
  #lingered(): void {
    this.#linger = undefined;
    this.#expected = 0;
    this.#offer();
    if (!this.#asking) this.#giveBack();
  }

  /** The room that dispatch is to reckon with. */
  #offer(): void {
    if (this.#state !== "working") return;
    const slots = this.#sent.size + (this.#finishing ? 0 : this.#expected + (this.#asking ? 1 : 0));
    if (slots === this.#profile.total.slots) return;
    this.#profile = { ...this.#profile, total: { slots } };
    this.#manager.core.workerChanged(this.#profile);
  }

  #giveBack(tasks: readonly TaskInHand[] = this.#inHand): void {
    this.#inHand = this.#inHand.filter((task) => !tasks.includes(task));
    if (tasks.length > 0) this.#manager.core.workerRetracted(this.id, tasks.map(alone));
  }

  // What the core says

  tasks(job: Job, { first, last, attempt }: TasksOf, entries: Entries | undefined): void {
    for (let index = first; index <= last; index++) {
      const entry = entries?.[index - first];
      this.#inHand.push({ job, index, attempt, ...(entry === undefined ? {} : { entry }) });
    }
    if (this.#finishing) this.#giveBack();
    else this.lookAgain();
    // It may have been told ATENDI meanwhile.
    if (this.#inHand.length > 0 && this.#state === "working")
      this.#linger ??= setTimeout(() => this.#lingered(), LINGER_MS);
  }

  retract(tasks: readonly TasksOf[]): void {
    // Answered in any case, as dispatch waits for it.
    const back = this.#inHand.filter((task) => tasks.some((range) => contains(range, task)));
    this.#inHand = this.#inHand.filter((task) => !back.includes(task));
    this.#manager.core.workerRetracted(this.id, back.map(alone));
  }

  /** A runner cannot be told to stop: what it runs comes to its end, and is recorded as cancelled then. */
  cancel(tasks: readonly TasksOf[]): void {
    this.#giveBack(this.#inHand.filter((task) => tasks.some((range) => contains(range, task))));
  }

  call(): void {}

  uncall(): void {}

  drain(): void {
    this.#finishing = true;
    this.#expected = 0;
    this.#giveBack();
    this.#offer();
    this.lookAgain();
  }

  stop(): void {
    this.drain();
  }

  close(reason: string): void {
    this.#finishing = true;
    this.lookAgain();
    this.#line.close(reason);
  }
}

const alone = ({ job, index, attempt }: TaskInHand): TasksOf => ({ job: job.id, first: index, last: index, attempt });

const contains = ({ job, first, last, attempt }: TasksOf, task: TaskInHand): boolean =>
  task.job.id === job && task.attempt === attempt && first <= task.index && task.index <= last;
