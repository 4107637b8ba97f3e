/**
 * The broker without its doors: dispatch, store and the sessions' side of both. Sessions call in with what their peers said and
 * are called back through their port; none of them sees the store, dispatch, or another session.
 */

import { now } from "../base/clock.js";
import { type ErrorCode, LaboroError } from "../base/errors.js";
import type { Log } from "../base/log.js";
import {
  createState,
  Decisions,
  type Done,
  type Holding,
  nextAlarm,
  onCommitted,
  onDone,
  onDrain,
  onForgive,
  onHalt,
  onOpened,
  onOrphans,
  onProfile,
  onReclaim,
  onResume,
  onRetracted,
  onStarted,
  onTime,
  onWorkerAway,
  onWorkerJoined,
  onWorkerLeft,
  restoreClaim,
  type Settings,
  STANDING_AREA,
  type State,
  type TasksOf,
  type WorkerProfile,
} from "../dispatch/index.js";
import { claimOf, claimsOf, GONE } from "../dispatch/state.js";
import { type Attempt, type JobId, type RequestId, type TaskIndex, taskKey, type WorkerId } from "../model/ids.js";
import { rangesOf } from "../model/ranges.js";
import type { WriteResult, ClaimedRange, OutputChunk, TaskRange, Store, Write } from "../model/store.js";
import { Alarm } from "./alarm.js";
import { eventsOf } from "./commit-events.js";
import { CommitLoop } from "./commit-loop.js";
import type { BrokerGroup } from "./config/group.js";
import { WorkerConfig } from "./config/worker-config.js";
import { storedDependencyEnds } from "./dependencies.js";
import { type EventBody, Events } from "./events.js";
import type { Membership } from "./group/membership.js";
import type { WorkerMoves } from "./group/worker-moves.js";
import type { Peers } from "./group/peers.js";
import { OpenJobs } from "./open-jobs.js";
import { Maintenance } from "./maintenance.js";
import { type ServiceRequest, type Decide, type Reply, PendingRequests } from "./pending-requests.js";
import type { JoinResult, WorkerPort } from "./sessions/worker-port.js";
import { History } from "./stats/history.js";
import { BrokerCounters } from "./stats/counters.js";
import { Watchers } from "./watchers.js";

export type { JoinResult as Welcomed, WorkerPort } from "./sessions/worker-port.js";

/** The disk is full or the store out of reach; the lease on it is about to end; the broker is drained; it stops. */
export type HaltReason = "commits" | "lease" | "maintenance" | "stop";

type Keeping = Extract<WriteResult, { op: "keep" }>;

export class Core {
  readonly store: Store;
  readonly state: State;
  readonly events: Events;
  readonly requests: PendingRequests;
  readonly jobs: OpenJobs;
  /** By `taskKey`: output was stored, or the task's attempt has ended. */
  readonly taskUpdates = new Watchers<string, undefined>();
  readonly started = now();
  stopping = false;
  readonly counters = new BrokerCounters();
  /** What workers are told. */
  readonly config: WorkerConfig;
  readonly maintenance = new Maintenance();
  /** The brokers that share the store, where there are others. */
  group: BrokerGroup | undefined;
  membership: Membership | undefined;
  /** Those others, to ask them something. */
  peers: Peers | undefined;
  moves: WorkerMoves | undefined;
  /** Makes dispatch know these jobs, where another broker has taken them in and they are open. */
  loadJobs: (jobs: readonly JobId[]) => Promise<void> = async () => {};
  readonly history: History;
  readonly #log: Log;
  readonly #commits: CommitLoop;
  readonly #ports = new Map<WorkerId, WorkerPort>();
  readonly #knownWorkers = new Map<WorkerId, string>();
  readonly #alarm = new Alarm(() => this.decide((out) => onTime(this.state, out, now())));
  /** Why nothing is handed out, where that is so. */
  readonly #halts = new Map<HaltReason, LaboroError | undefined>();
  #takingOver: Promise<void> = Promise.resolve();

  private constructor(store: Store, state: State, log: Log, failed: (cause: LaboroError) => void) {
    this.store = store;
    this.state = state;
    this.#log = log;
    this.config = new WorkerConfig(this, log);
    this.events = new Events(state.epoch);
    this.events.onAdded((event) => this.counters.onEvent(event));
    const decide: Decide = (step) => this.decide(step);
    this.history = new History(this, log);
    this.jobs = new OpenJobs(state, decide);
    this.requests = new PendingRequests(state, decide, (worker) => this.#ports.get(worker), this.counters);
    this.#commits = new CommitLoop(store, {
      committed: (writes, answers) => this.#committed(writes, answers),
      deliver: (send, answer) => {
        const port = this.#ports.get(send.worker);
        if (port === undefined) return;
        if (send.kind === "retract") port.retract(send.tasks);
        else if (send.kind === "cancel") port.cancel(send.tasks);
        else this.#sendTasks(port, send, answer);
      },
      halted: (cause) => {
        log.error({ code: cause.code }, `nothing is handed out or taken until it passes: ${cause.message}`);
        this.events.add({ kind: "broker-halted", code: cause.code, message: cause.message });
        this.halt("commits");
      },
      resumed: (written) => {
        this.events.add({ kind: "broker-resumed" });
        if (written) log.info({}, "it can be written again: work goes on");
        this.resume("commits");
      },
      failed,
    });
    this.maintenance.onChanged((draining) => {
      if (draining) this.halt("maintenance");
      else this.resume("maintenance");
    });
  }

  static async open(store: Store, settings: Settings, log: Log, failed: (cause: LaboroError) => void): Promise<Core> {
    const held = await store.open(now());
    const core = new Core(store, createState(settings, held.epoch, store.shared), log, failed);
    const ends = await storedDependencyEnds(store, held.jobs);
    for (const { key, value } of await store.keyValues(STANDING_AREA)) core.state.standings.set(key, JSON.parse(value));
    await core.config.open();
    core.jobs.load(held);
    core.decide((out) => onOpened(core.state, out, held, now(), ends));
    core.history.start();
    return core;
  }

  /** Let dispatch decide, and see to what it wants. `after` runs when its writes are durable. */
  decide<T>(step: (out: Decisions) => T, after?: () => void): T {
    const out = new Decisions();
    const result = step(out);
    if (out.writes.length > 0 || out.sends.length > 0 || after !== undefined) this.#commits.add(out, after);
    for (const call of out.calls) this.requests.execute(call);
    if (this.state.workers.size !== this.#knownWorkers.size) this.#updateKnownWorkers();
    this.#setAlarm();
    return result;
  }

  // Workers

  async workerJoins(profile: WorkerProfile, held: readonly Holding[], port: WorkerPort): Promise<JoinResult> {
    if (this.stopping) throw new LaboroError("LABORO_BROKER_STOPPING", "this broker is stopping");
    if (this.store.shared) await this.#adopt(profile.id);
    this.#ports.get(profile.id)?.close("another connection of this worker took over");
    this.#ports.set(profile.id, port);
    const { keep, drop } = this.decide((out) => onWorkerJoined(this.state, out, profile, held, now()));
    this.#knownWorkers.set(profile.id, profile.name);
    this.moves?.joined(profile.id);
    this.events.add({ kind: "worker-joined", worker: profile.id, name: profile.name });
    const ends = await this.store.storedOutputBytes(keep);
    return { keep: keep.map((task, i) => ({ ...task, outputStored: ends[i] ?? 0 })), drop };
  }

  async #adopt(worker: WorkerId): Promise<void> {
    // What is being taken over is this broker's in the store already, and not known here yet.
    await this.#takingOver;
    const answer = await this.#commits.commit({ op: "adopt", worker });
    if (answer.op !== "adopt") return;
    await this.loadJobs(answer.taskRanges.map(({ taskRange: parcel }) => parcel.job));
    for (const held of answer.taskRanges) restoreClaim(this.state, held, now());
  }

  /** Claims of a broker that is dead become this one's. */
  takeOver(take: () => Promise<readonly ClaimedRange[]>): Promise<void> {
    const taking = this.#takingOver.then(async () => {
      const orphans = await take();
      await this.loadJobs(orphans.map(({ taskRange: parcel }) => parcel.job));
      this.decide((out) => onOrphans(this.state, out, orphans, now()));
    });
    this.#takingOver = taking.catch(() => {});
    return taking;
  }

  /** What is down as this worker's, for a protocol whose messages carry no attempt: asked before it joins. */
  async claimedBy(id: WorkerId): Promise<readonly TasksOf[]> {
    if (this.store.shared) await this.#adopt(id);
    const worker = this.state.workers.get(id);
    if (worker === undefined) return [];
    return claimsOf(worker).flatMap(({ job, attempt, first, tasks }) =>
      rangesOf(Array.from(tasks.keys(), (at) => first + at).filter((index) => tasks[index - first] !== GONE)).map(
        (range) => ({ job: job.id, attempt, ...range }),
      ),
    );
  }

  /** The worker says that it has this task: its attempt, where it is this worker's now; undefined where it is not to be. */
  reclaim(id: WorkerId, job: JobId, index: TaskIndex): Attempt | undefined {
    return this.decide((out) => onReclaim(this.state, out, id, job, index, now()));
  }

  workerChanged(profile: WorkerProfile): void {
    this.decide((out) => onProfile(this.state, out, profile, now()));
  }

  workerStarted(id: WorkerId, tasks: readonly { job: JobId; index: number; attempt: number }[]): void {
    onStarted(this.state, id, tasks, now());
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
    this.#commits.write({ op: "output", chunks: [chunk] }, () => {
      stored();
      if (this.taskUpdates.size > 0) this.taskUpdates.notify(taskKey(chunk.job, chunk.index), undefined);
    });
    return true;
  }

  workerReplied(
    id: WorkerId,
    request: RequestId,
    body: Uint8Array,
    error: ErrorCode | undefined,
    attachment?: unknown,
  ): void {
    this.requests.replied(id, request, body, error, attachment);
  }

  workerDrains(id: WorkerId): void {
    const worker = this.state.workers.get(id);
    if (worker?.draining === false) this.events.add({ kind: "worker-draining", worker: id, name: worker.profile.name });
    this.decide((out) => onDrain(this.state, out, id));
  }

  /** The session behind `port` is over; `orderly` where the worker has said that it stops. */
  workerDisconnected(id: WorkerId, port: WorkerPort, orderly: boolean): void {
    if (this.#ports.get(id) !== port) return;
    this.#ports.delete(id);
    if (this.stopping) return;
    if (!orderly) this.counters.workerLost(id, this.state.workers.get(id)?.profile.name ?? id, now());
    this.decide((out) =>
      orderly ? onWorkerLeft(this.state, out, id, now()) : onWorkerAway(this.state, out, id, now()),
    );
    const away = this.state.workers.get(id);
    if (away !== undefined) this.moves?.disconnected(id);
    if (away !== undefined) this.events.add({ kind: "worker-away", worker: id, name: away.profile.name });
  }

  /** A worker that is away works for another broker, which has taken over what it has. */
  workerMoved(id: WorkerId): void {
    if (!this.#ports.has(id)) this.decide((out) => onWorkerLeft(this.state, out, id, now()));
  }

  /** Dispatch has given workers up, or has taken up what one held before this broker was started. */
  #updateKnownWorkers(): void {
    for (const [worker, name] of [...this.#knownWorkers]) {
      if (this.state.workers.has(worker)) continue;
      this.#knownWorkers.delete(worker);
      this.events.add({ kind: "worker-gone", worker, name });
    }
    for (const [worker, { profile }] of this.state.workers) {
      if (!this.#knownWorkers.has(worker)) this.#knownWorkers.set(worker, profile.name);
    }
  }

  portOf(id: WorkerId): WorkerPort | undefined {
    return this.#ports.get(id);
  }

  // Requests

  request(asking: ServiceRequest, reply: Reply): RequestId {
    return this.requests.add(asking, reply);
  }

  cancelRequest(id: RequestId): void {
    this.requests.cancel(id);
  }

  // Jobs

  /** A write of the operator's or a client's, with its answer. */
  commit(write: Write): Promise<WriteResult> {
    if (this.stopping) return Promise.reject(new LaboroError("LABORO_BROKER_STOPPING", "this broker is stopping"));
    return this.#commits.commit(write);
  }

  /** Keeps a small text; see the store's contract. */
  async keep(area: string, key: string, value: string | null, version?: number): Promise<Omit<Keeping, "op">> {
    const answer = await this.commit({ op: "keep", bucket: area, key, value, ...(version === undefined ? {} : { version }) });
    if (answer.op !== "keep") throw new LaboroError("LABORO_INTERNAL", `the store answered ${answer.op} to keep`);
    return { stored: answer.stored, version: answer.version };
  }

  /** Nothing of what workers of this name did counts any more. */
  async forgive(name: string): Promise<boolean> {
    return new Promise((resolve) => {
      const known: boolean = this.decide(
        (out) => onForgive(this.state, out, name, now()),
        () => resolve(known),
      );
    });
  }

  /** Why nothing new is taken, if so. */
  get refusing(): LaboroError | undefined {
    return this.#commits.refusing ?? this.#halts.get("lease");
  }

  /** How long a commit takes, of late. */
  get commitMs(): number {
    return this.#commits.averageMs;
  }

  /** Nothing is handed out from now on; requests go on. */
  halt(why: HaltReason, cause?: LaboroError): void {
    this.#halts.set(why, cause);
    onHalt(this.state);
  }

  /** One reason less; with the last of them, work goes on. */
  resume(why: HaltReason): void {
    if (this.#halts.delete(why) && this.#halts.size === 0) this.decide((out) => onResume(this.state, out, now()));
  }

  /** What has happened to jobs, here or at another broker. */
  publish(events: readonly EventBody[]): void {
    for (const event of events) {
      this.events.add(event);
      this.jobs.onEvent(event);
    }
  }

  /** No more hand-outs; what is on its way to the disk arrives. The store stays open. */
  async stop(): Promise<void> {
    this.stopping = true;
    this.halt("stop");
    this.#alarm.clear();
    this.config.close();
    this.history.stop();
    for (const port of this.#ports.values()) port.close("the broker is stopping");
    this.requests.stop();
    if (this.#commits.refusing === undefined) await this.#commits.flush();
  }

  #committed(writes: readonly Write[], answers: readonly WriteResult[]): ReadonlySet<TaskRange["id"]> {
    const lost = this.decide((out) => onCommitted(this.state, out, writes, answers, now()));
    this.counters.committed(writes, answers);
    this.publish(eventsOf(writes, answers));
    if (this.taskUpdates.size > 0) this.#notifyTaskWatchers(writes);
    return lost;
  }

  #notifyTaskWatchers(writes: readonly Write[]): void {
    for (const write of writes) {
      const ended = write.op === "settle" ? write.results : write.op === "replace" ? write.earlierAttempts : [];
      for (const { index } of ended)
        if ("job" in write) this.taskUpdates.notify(taskKey(write.job as JobId, index), undefined);
    }
  }

  #sendTasks(port: WorkerPort, tasks: TasksOf & { worker: WorkerId }, answer: WriteResult | undefined): void {
    const job = this.state.jobs.get(tasks.job);
    const claims = this.state.workers.get(tasks.worker)?.claims.get(tasks.job) ?? [];
    // A worker that joined again during the commit has said that it does not have them: they went back to the line.
    const wanted = claims.some(
      ({ attempt, first, last }) => attempt === tasks.attempt && first <= tasks.last && last >= tasks.first,
    );
    if (job === undefined || !wanted) return;
    this.counters.tasksAssigned(job.job, tasks.last - tasks.first + 1, now());
    port.assign(job.job, tasks, answer?.op === "claim" ? answer.entries : undefined);
  }

  #setAlarm(): void {
    const at = nextAlarm(this.state);
    if (at !== undefined && !this.stopping) this.#alarm.set(at);
  }
}
