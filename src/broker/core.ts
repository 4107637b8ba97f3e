/**
 * The broker without its doors: dispatch, store and the sessions' side of both. Sessions call in with what their peers said and
 * are called back through their port; none of them sees the store, dispatch, or another session.
 */
import {
  createState,
  Decisions,
  type Done,
  type Holding,
  nextAlarm,
  onCommitted,
  onDone,
  onDrain,
  onForget,
  onHalt,
  onJobAdded,
  onOpened,
  onProfile,
  onReply,
  onRequest,
  onResume,
  onRetracted,
  onStarted,
  onTime,
  onWorkerAway,
  onWorkerJoined,
  onWorkerLeft,
  type Reconciled,
  restoreClaim,
  type Settings,
  type State,
  type TasksOf,
  type WorkerProfile,
} from "../dispatch/index.js";
import { claimOf } from "../dispatch/state.js";
import { type ErrorCode, LaboroError } from "../model/errors.js";
import { type JobId, RequestId, type WorkerId } from "../model/ids.js";
import type { Entries, Job, JobEnd } from "../model/job.js";
import type { Answer, OutputChunk, Parcel, Store, Write } from "../store/contract.js";
import { now } from "./clock.js";
import { CommitLoop } from "./commit-loop.js";
import type { Log } from "./log.js";

/** How the core speaks to a worker; each protocol has its own. */
export interface WorkerPort {
  tasks(job: Job, tasks: TasksOf, entries: Entries | undefined): void;
  retract(tasks: readonly TasksOf[]): void;
  cancel(tasks: readonly TasksOf[]): void;
  call(request: RequestId, service: string, body: Uint8Array, timeoutMs: number): void;
  uncall(request: RequestId): void;
  drain(): void;
  stop(): void;
  /** Another session of the same worker took over, or the broker closes. */
  close(reason: string): void;
}

/** What a worker that joined goes on with, and how much of each task's output is stored. */
export interface Welcomed {
  readonly keep: readonly (Reconciled["keep"][number] & { readonly outputStored: number })[];
  readonly drop: Reconciled["drop"];
}

export type Reply = (body: Uint8Array, error: ErrorCode | undefined) => void;

interface Asked {
  readonly service: string;
  readonly body: Uint8Array;
  readonly deadline: number;
  readonly reply: Reply;
}

const EMPTY = new Uint8Array(0);

export class Core {
  readonly store: Store;
  readonly state: State;
  readonly #log: Log;
  readonly #commits: CommitLoop;
  readonly #ports = new Map<WorkerId, WorkerPort>();
  readonly #asked = new Map<RequestId, Asked>();
  readonly #watchers = new Map<JobId, ((end: JobEnd) => void)[]>();
  #requests = 0;
  #alarm: NodeJS.Timeout | undefined;
  #alarmAt = Number.POSITIVE_INFINITY;
  #stopping = false;

  private constructor(store: Store, state: State, log: Log, failed: (cause: LaboroError) => void) {
    this.store = store;
    this.state = state;
    this.#log = log;
    this.#commits = new CommitLoop(store, {
      committed: (writes, answers) => this.#committed(writes, answers),
      deliver: (send, answer) => {
        const port = this.#ports.get(send.worker);
        if (port === undefined) return;
        if (send.kind === "retract") port.retract(send.tasks);
        else if (send.kind === "cancel") port.cancel(send.tasks);
        else this.#handOver(port, send, answer);
      },
      halted: (cause) => {
        log.error({ code: cause.code }, `nothing is handed out or taken until it passes: ${cause.message}`);
        onHalt(this.state);
      },
      resumed: () => {
        log.info({}, "the disk has room again: work goes on");
        if (!this.#stopping) this.decide((out) => onResume(this.state, out, now()));
      },
      failed,
    });
  }

  static async open(store: Store, settings: Settings, log: Log, failed: (cause: LaboroError) => void): Promise<Core> {
    const held = await store.open(now());
    const core = new Core(store, createState(settings, held.epoch, store.shared), log, failed);
    core.decide((out) => onOpened(core.state, out, held, now()));
    return core;
  }

  /** Let dispatch decide, and see to what it wants. `after` runs when its writes are durable. */
  decide<T>(step: (out: Decisions) => T, after?: () => void): T {
    const out = new Decisions();
    const result = step(out);
    if (out.writes.length > 0 || out.sends.length > 0 || after !== undefined) this.#commits.add(out, after);
    for (const call of out.calls) {
      if (call.kind === "refuse") this.#answer(call.request, new TextEncoder().encode(call.why), call.code);
      else this.#passOn(call.kind, call.worker, call.request);
    }
    this.#setAlarm();
    return result;
  }

  // Workers

  async workerJoins(profile: WorkerProfile, held: readonly Holding[], port: WorkerPort): Promise<Welcomed> {
    if (this.#stopping) throw new LaboroError("LABORO_BROKER_STOPPING", "this broker is stopping");
    if (this.store.shared) await this.#adopt(profile.id);
    this.#ports.get(profile.id)?.close("another connection of this worker took over");
    this.#ports.set(profile.id, port);
    const { keep, drop } = this.decide((out) => onWorkerJoined(this.state, out, profile, held, now()));
    const ends = await this.store.outputEnds(keep);
    return { keep: keep.map((task, i) => ({ ...task, outputStored: ends[i] ?? 0 })), drop };
  }

  async #adopt(worker: WorkerId): Promise<void> {
    const answer = await this.#commits.ask({ op: "adopt", worker });
    if (answer.op !== "adopt") return;
    for (const held of answer.parcels) restoreClaim(this.state, held, now());
  }

  workerChanged(profile: WorkerProfile): void {
    this.decide((out) => onProfile(this.state, out, profile, now()));
  }

  workerStarted(id: WorkerId, tasks: readonly { job: JobId; index: number; attempt: number }[]): void {
    onStarted(this.state, id, tasks);
  }

  /** `recorded` is called when the results are durable, or known to be nobody's. */
  workerDone(id: WorkerId, done: readonly Done[], recorded: () => void): void {
    const stale = this.decide((out) => onDone(this.state, out, id, done, now()), recorded);
    if (stale > 0) this.#log.info({ worker: id, stale }, "results came for tasks that are no longer this worker's");
  }

  workerRetracted(id: WorkerId, tasks: readonly TasksOf[]): void {
    this.decide((out) => onRetracted(this.state, out, id, tasks, now()));
  }

  /** Bytes of output. False where the task is not this worker's, and nothing will come of it. */
  workerOutput(id: WorkerId, chunk: OutputChunk, stored: () => void): boolean {
    const worker = this.state.workers.get(id);
    const claim = worker === undefined ? undefined : claimOf(worker, chunk.job, chunk.index);
    if (claim?.attempt !== chunk.attempt) return false;
    this.#commits.write({ op: "output", chunks: [chunk] }, stored);
    return true;
  }

  workerReplied(id: WorkerId, request: RequestId, body: Uint8Array, error: ErrorCode | undefined): void {
    const wanted = this.decide((out) => onReply(this.state, out, id, request, now()));
    if (wanted) this.#answer(request, body, error);
    else this.#asked.delete(request);
  }

  workerDrains(id: WorkerId): void {
    this.decide((out) => onDrain(this.state, out, id));
  }

  /** The session behind `port` is over; `orderly` where the worker has said that it stops. */
  workerGone(id: WorkerId, port: WorkerPort, orderly: boolean): void {
    if (this.#ports.get(id) !== port) return;
    this.#ports.delete(id);
    if (this.#stopping) return;
    this.decide((out) =>
      orderly ? onWorkerLeft(this.state, out, id, now()) : onWorkerAway(this.state, out, id, now()),
    );
  }

  portOf(id: WorkerId): WorkerPort | undefined {
    return this.#ports.get(id);
  }

  // Requests

  request(
    asked: { service: string; pool: string; body: Uint8Array; timeoutMs: number; retry: boolean },
    reply: Reply,
  ): RequestId {
    const id = RequestId(++this.#requests);
    const { service, pool, body, timeoutMs, retry } = asked;
    const deadline = now() + timeoutMs;
    this.#asked.set(id, { service, body, deadline, reply });
    this.decide((out) => onRequest(this.state, out, { id, service, pool, deadline, retry }));
    return id;
  }

  forget(id: RequestId): void {
    this.decide((out) => onForget(this.state, out, id));
    this.#asked.delete(id);
  }

  #passOn(kind: "call" | "uncall", worker: WorkerId, id: RequestId): void {
    const port = this.#ports.get(worker);
    const asked = this.#asked.get(id);
    if (port === undefined) return;
    if (kind === "uncall") port.uncall(id);
    else if (asked !== undefined) port.call(id, asked.service, asked.body, Math.max(1, asked.deadline - now()));
  }

  #answer(id: RequestId, body: Uint8Array, error: ErrorCode | undefined): void {
    const asked = this.#asked.get(id);
    this.#asked.delete(id);
    asked?.reply(body, error);
  }

  // Jobs

  /** A write of the operator's or a client's, with its answer. */
  ask(write: Write): Promise<Answer> {
    if (this.#stopping) return Promise.reject(new LaboroError("LABORO_BROKER_STOPPING", "this broker is stopping"));
    return this.#commits.ask(write);
  }

  jobStored(job: Job, parcel: Parcel | undefined, finished: ReadonlySet<JobId>): void {
    this.decide((out) => onJobAdded(this.state, out, job, parcel, finished, now()));
  }

  /** Called when the job has ended; at once where it has ended already. */
  whenEnded(job: JobId, told: (end: JobEnd) => void): () => void {
    const watchers = this.#watchers.get(job);
    if (watchers === undefined) this.#watchers.set(job, [told]);
    else watchers.push(told);
    return () => {
      const left = this.#watchers.get(job)?.filter((one) => one !== told) ?? [];
      if (left.length > 0) this.#watchers.set(job, left);
      else this.#watchers.delete(job);
    };
  }

  /** Why nothing new is taken, if so. */
  get refusing(): LaboroError | undefined {
    return this.#commits.refusing;
  }

  /** No more hand-outs; what is on its way to the disk arrives. The store stays open. */
  async stop(): Promise<void> {
    this.#stopping = true;
    onHalt(this.state);
    clearTimeout(this.#alarm);
    for (const port of this.#ports.values()) port.close("the broker is stopping");
    for (const id of [...this.#asked.keys()]) this.#answer(id, EMPTY, "LABORO_BROKER_STOPPING");
    if (this.#commits.refusing === undefined) await this.#commits.settled();
  }

  #committed(writes: readonly Write[], answers: readonly Answer[]): ReadonlySet<Parcel["id"]> {
    const lost = this.decide((out) => onCommitted(this.state, out, writes, answers, now()));
    answers.forEach((answer, i) => {
      const write = writes[i];
      if (write === undefined || !("job" in write) || typeof write.job !== "number") return;
      if (!("progress" in answer) || answer.progress?.ended === undefined) return;
      const watchers = this.#watchers.get(write.job) ?? [];
      this.#watchers.delete(write.job);
      for (const told of watchers) told(answer.progress.ended);
    });
    return lost;
  }

  #handOver(port: WorkerPort, tasks: TasksOf, answer: Answer | undefined): void {
    const job = this.state.jobs.get(tasks.job);
    if (job === undefined) return;
    port.tasks(job.job, tasks, answer?.op === "claim" ? answer.entries : undefined);
  }

  #setAlarm(): void {
    const at = nextAlarm(this.state);
    if (at === undefined || at >= this.#alarmAt || this.#stopping) return;
    clearTimeout(this.#alarm);
    this.#alarmAt = at;
    this.#alarm = setTimeout(
      () => {
        this.#alarmAt = Number.POSITIVE_INFINITY;
        this.decide((out) => onTime(this.state, out, now()));
      },
      Math.min(Math.max(1, Math.ceil(at - now())), 2 ** 31 - 1),
    );
  }
}
