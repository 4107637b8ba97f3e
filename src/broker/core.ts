/**
 * The broker without its listeners: it connects dispatch, store and sessions. Sessions report what their peers sent,
 * and are called back through their port. A session never sees the store, dispatch, or another session.
 */
import { randomBytes } from "node:crypto";
import { Alarm, now } from "../base/clock.js";
import { LaboroError } from "../base/errors.js";
import type { Log } from "../base/log.js";
import {
  type AssignedRange,
  type AttemptRange,
  createState,
  Decisions,
  isUrgent,
  loadRecords,
  nextTimerAt,
  onCommitted,
  onDrain,
  onOpened,
  onOrphans,
  onTimer,
  onWorkerAway,
  onWorkerJoined,
  onWorkerLeft,
  type ReportedTasks,
  restoreClaim,
  type Settings,
  STANDING_BUCKET,
  type State,
  WORKER_BUCKET,
  type WorkerProfile,
} from "../dispatch/index.js";
import type { JobId, WorkerId } from "../model/ids.js";
import type { Job } from "../model/job.js";
import type { ClaimedRange, OutputChunk, Store, TaskRange, Write, WriteResult } from "../model/store.js";
import { returnedIndex } from "../model/task-files.js";
import { AllocatorDriver } from "./alloc/allocators.js";
import { CommitLoop } from "./commit-loop.js";
import type { JoinResult, WorkerPort } from "./core-view.js";
import { DelayedJobs, StoreClock } from "./delayed-jobs.js";
import { EachDependencies, storedDependencies } from "./dependencies.js";
import { type EventBody, Events, eventsOf, TaskUpdates } from "./events.js";
import { Follows } from "./follows.js";
import type { WorkerMoves } from "./group/index.js";
import type { BrokerGroup, Membership } from "./group/membership.js";
import type { Peers } from "./group/peers.js";
import { HandlerRequests, TaskFileBytes } from "./handler-messages.js";
import { Halts, Maintenance, NamedLimits, PausedPools } from "./limits.js";
import { JobNumbers, OpenJobs } from "./open-jobs.js";
import { OutputRelays, type ReportTaken } from "./output-relays.js";
import { type Decide, PendingRequests, type RequestForwarder } from "./pending-requests.js";
import { Scheduler, withRunWrites } from "./schedules.js";
import { BrokerCounters } from "./stats/counters.js";
import { History } from "./stats/history.js";
import { StoreAge } from "./store-age.js";
import { WorkerConfig } from "./worker-config.js";
import { WorkerReports } from "./worker-reports.js";

export type { JoinResult, KnownWorker, WorkerPort } from "./core-view.js";

type Failed = (cause: LaboroError) => void;
type PutResult = Extract<WriteResult, { op: "put" }>;
type GroupParts = Pick<Core, "group" | "membership" | "peers" | "moves" | "loadJobs" | "submitted">;

export class Core extends WorkerReports {
  readonly events: Events;
  readonly requests: PendingRequests;
  readonly jobs: OpenJobs;
  /** Set if brokers share the store. */
  readonly jobNumbers: JobNumbers | undefined;
  readonly taskUpdates = new TaskUpdates();
  readonly relays = new OutputRelays();
  readonly follows = new Follows(this);
  readonly handlerMessages = new HandlerRequests(this);
  readonly files = new TaskFileBytes(this);
  readonly started = now();
  readonly counters = new BrokerCounters();
  readonly config: WorkerConfig;
  readonly limits = new NamedLimits(this);
  readonly pools = new PausedPools(this);
  readonly #each: EachDependencies;
  readonly maintenance = new Maintenance();
  readonly storeAge: StoreAge;
  /** Together with its number, it identifies a job across stores. */
  readonly processId = randomBytes(9).toString("base64url");
  /** The brokers that share the store, if there are several. */
  readonly group: BrokerGroup | undefined;
  readonly membership: Membership | undefined;
  /** The other brokers, to send them operations. */
  readonly peers: Peers | undefined;
  readonly moves: WorkerMoves | undefined;
  /** Adds these jobs to dispatch if they are open: delayed ones, and in a group those of other brokers. */
  readonly loadJobs: (jobs: readonly JobId[]) => Promise<void> = (jobs) => this.delays.load(jobs);
  /** A job that is not stored but may have been submitted by a transaction in the database. */
  readonly submitted: (job: JobId) => Promise<Job | undefined> = async () => undefined;
  readonly delays: DelayedJobs;
  readonly history: History;
  readonly schedules: Scheduler;
  readonly allocators: AllocatorDriver;
  readonly halts: Halts;
  readonly #commits: CommitLoop;
  readonly #ports = new Map<WorkerId, WorkerPort>();
  readonly #knownWorkers = new Map<WorkerId, string>();
  readonly #alarm = new Alarm(() => this.decide((out) => onTimer(this.state, out, now())));
  /** Ports of sessions that have ended: one may end while it joins. */
  readonly #endedPorts = new WeakSet<WorkerPort>();
  #takingOver: Promise<void> = Promise.resolve();
  #stopping = false;

  private constructor(store: Store, clock: StoreClock, identity: string, state: State, log: Log, failed: Failed) {
    super(store, state, log);
    this.storeAge = new StoreAge(this, identity, log);
    this.config = new WorkerConfig(this, log);
    this.events = new Events(state.epoch);
    this.events.onAdded((event) => this.counters.onEvent(event));
    const decide: Decide = (step) => this.decide(step);
    this.history = new History(this, log);
    this.schedules = new Scheduler(this, log);
    this.allocators = new AllocatorDriver(this, log);
    this.halts = new Halts(state, decide);
    this.#each = new EachDependencies(this, log);
    this.jobs = new OpenJobs(state, decide, (job) => {
      this.delays.inDispatch(job);
      this.#each.added(job);
    });
    this.delays = new DelayedJobs(this, clock, log);
    if (store.shared && store.group !== undefined) this.jobNumbers = new JobNumbers(store.group);
    this.requests = new PendingRequests(state, decide, (worker) => this.#ports.get(worker), this.counters);
    this.#commits = new CommitLoop(store, {
      committed: (writes, results) => this.#committed(writes, results),
      deliver: (send, result) => {
        const port = this.#ports.get(send.worker);
        if (port === undefined) {
          // It was lost during the commit: it does not have these tasks.
          if (send.kind === "tasks" && !this.#stopping) this.workerRetracted(send.worker, [send]);
        } else if (send.kind === "retract") port.retract(send.tasks);
        else if (send.kind === "cancel") port.cancel(send.tasks);
        else this.#sendTasks(port, send, result);
      },
      halted: (cause) => {
        log.error({ code: cause.code }, `no work is assigned or accepted for now: ${cause.message}`);
        this.events.add({ kind: "broker-halted", code: cause.code, message: cause.message });
        this.halts.add("commits", cause);
      },
      resumed: (written) => {
        this.events.add({ kind: "broker-resumed" });
        if (written) log.info({}, "the store can be written again: dispatch resumes");
        this.halts.remove("commits");
      },
      failed,
    });
    this.maintenance.onChanged((draining) => {
      if (draining) this.halts.add("maintenance");
      else this.halts.remove("maintenance");
    });
  }

  static async open(store: Store, settings: Settings, log: Log, failed: Failed): Promise<Core> {
    const recovered = await store.open(now());
    const { ends, delayed } = await storedDependencies(store, recovered.jobs);
    const held = { ...recovered, jobs: [...recovered.jobs, ...delayed] };
    const clock = await StoreClock.of(store);
    const core = new Core(store, clock, held.identity, createState(settings, held.epoch, store.shared), log, failed);
    for (const { key, value } of await store.keyValues(STANDING_BUCKET))
      core.state.standings.set(key, JSON.parse(value));
    loadRecords(core.state, await store.keyValues(WORKER_BUCKET));
    await core.config.open();
    await core.limits.open(held.limitStarts);
    await core.pools.open();
    core.jobs.load(held);
    core.decide((out) => onOpened(core.state, out, held, now(), ends));
    core.history.start();
    core.delays.start();
    return core;
  }

  /** Connects this broker with those that share its store. */
  joinGroup({ forwarder, ...parts }: Partial<GroupParts> & { readonly forwarder?: RequestForwarder }): void {
    this.requests.forwarder = forwarder;
    Object.assign(this, parts);
  }

  get stopping(): boolean {
    return this.#stopping;
  }

  decide<T>(step: (out: Decisions) => T, after?: () => void): T {
    const out = new Decisions();
    const result = step(out);
    if (out.writes.length > 0 || out.sends.length > 0 || after !== undefined) this.#commits.add(out, after);
    for (const call of out.calls) this.requests.execute(call);
    if (this.state.workers.size !== this.#knownWorkers.size) this.#updateKnownWorkers();
    const at = nextTimerAt(this.state);
    if (at !== undefined && !this.#stopping) this.#alarm.set(at);
    return result;
  }

  // Workers

  async workerJoins(profile: WorkerProfile, held: readonly ReportedTasks[], port: WorkerPort): Promise<JoinResult> {
    if (this.#stopping) throw new LaboroError("LABORO_BROKER_STOPPING", "this broker is stopping");
    this.#endedPorts.delete(port);
    if (this.store.shared) await this.#adopt(profile.id);
    if (this.#endedPorts.has(port)) throw new LaboroError("LABORO_BROKER_GONE", "the worker's connection has ended");
    this.#ports.get(profile.id)?.close("another connection of this worker took over");
    this.#ports.set(profile.id, port);
    const { keep, drop } = this.decide((out) => {
      const joined = onWorkerJoined(this.state, out, profile, held, now());
      // Within the step. If the number differed after it, `decide` would look through all workers.
      this.#knownWorkers.set(profile.id, profile.name);
      return joined;
    });
    this.moves?.joined(profile.id);
    this.events.add({ kind: "worker-joined", worker: profile.id, name: profile.name });
    const ends = await this.store.storedOutputBytes(keep);
    return { keep: keep.map((task, i) => ({ ...task, outputStored: ends[i] ?? 0 })), drop };
  }

  async #adopt(worker: WorkerId): Promise<void> {
    // Claims that are being taken over belong to this broker in the store, but dispatch does not know them yet.
    await this.#takingOver;
    const result = await this.#commits.commit({ op: "adopt", worker });
    if (result.op !== "adopt") return;
    await this.loadJobs(result.taskRanges.map(({ taskRange }) => taskRange.job));
    for (const held of result.taskRanges) restoreClaim(this.state, held, now());
  }

  /** Takes over the claims of a dead broker. */
  takeOver(take: () => Promise<readonly ClaimedRange[]>): Promise<void> {
    const taking = this.#takingOver.then(async () => {
      const orphans = await take();
      await this.loadJobs(orphans.map(({ taskRange }) => taskRange.job));
      if (orphans.length > 0) loadRecords(this.state, await this.store.keyValues(WORKER_BUCKET));
      this.decide((out) => onOrphans(this.state, out, orphans, now()));
    });
    this.#takingOver = taking.catch(() => {});
    return taking;
  }

  /** The tasks that this worker has claimed, for a protocol without attempt numbers. Called before it joins. */
  async claimedBy(id: WorkerId): Promise<readonly AttemptRange[]> {
    if (this.store.shared) await this.#adopt(id);
    return this.claimsOf(id);
  }

  /** Output for the clients that follow the job. `report` is called when they have taken it, or if there are none. */
  workerRelay(id: WorkerId, chunk: OutputChunk, report: ReportTaken): void {
    if (this.#holds(id, chunk)) this.relays.relay(chunk, report);
    else report(chunk.offset + chunk.bytes.length);
  }

  #holds(id: WorkerId, { job, index, attempt }: OutputChunk): boolean {
    return this.claimOf(id, job, index)?.attempt === attempt;
  }

  /** Stores output of tasks that this worker has. `handled` is called when it is stored, in the order of the calls. */
  workerOutput(id: WorkerId, given: readonly OutputChunk[], handled: () => void): void {
    const chunks = given.filter((chunk) => this.#holds(id, chunk));
    this.#commits.addOutput(chunks, isUrgent(this.state.workers.get(id)), () => {
      handled();
      for (const chunk of chunks) this.follows.outputStored(chunk);
      this.taskUpdates.outputStored(chunks);
    });
  }

  /** Stores a part of a returned file. Returns false, without calling `handled`, if the task is not this worker's. */
  workerFile(id: WorkerId, part: OutputChunk, handled: () => void): boolean {
    if (!this.#holds(id, part)) return false;
    this.#commits.addOutput([{ ...part, index: returnedIndex(part.index) }], true, handled);
    return true;
  }

  /** `leaving`: the worker will end, which cannot be undone. */
  workerDrains(id: WorkerId, leaving = true): void {
    const worker = this.state.workers.get(id);
    if (worker?.draining === false) this.events.add({ kind: "worker-draining", worker: id, name: worker.profile.name });
    this.decide((out) => onDrain(this.state, out, id, leaving));
  }

  /** The session of `port` has ended. `orderly`: the worker announced it. `closed`: its side closed the connection. */
  workerDisconnected(id: WorkerId, port: WorkerPort, orderly: boolean, closed = false): void {
    this.#endedPorts.add(port);
    if (this.#ports.get(id) !== port) return;
    this.#ports.delete(id);
    if (this.#stopping) return;
    if (!orderly) this.counters.workerLost(id, this.state.workers.get(id)?.profile.name ?? id, now());
    this.decide((out) =>
      orderly ? onWorkerLeft(this.state, out, id, now()) : onWorkerAway(this.state, out, id, now(), closed),
    );
    const missing = this.state.workers.get(id);
    if (missing === undefined) return;
    this.moves?.disconnected(id);
    this.events.add({ kind: "worker-disconnected", worker: id, name: missing.profile.name });
  }

  /** A disconnected worker has joined another broker, which took over its tasks. */
  workerMoved(id: WorkerId): void {
    if (!this.#ports.has(id)) this.decide((out) => onWorkerLeft(this.state, out, id, now()));
  }

  /** Dispatch has dropped workers, or has added one with claims from before this broker's start. */
  #updateKnownWorkers(): void {
    for (const [worker, name] of [...this.#knownWorkers]) {
      if (this.state.workers.has(worker)) continue;
      this.#knownWorkers.delete(worker);
      this.events.add({ kind: "worker-left", worker, name });
    }
    for (const [worker, { profile }] of this.state.workers) {
      if (!this.#knownWorkers.has(worker)) this.#knownWorkers.set(worker, profile.name);
    }
  }

  portOf(id: WorkerId): WorkerPort | undefined {
    return this.#ports.get(id);
  }

  // Jobs

  /** Commits a write for an operator or a client. */
  commit(write: Write): Promise<WriteResult> {
    if (this.#stopping) return Promise.reject(new LaboroError("LABORO_BROKER_STOPPING", "this broker is stopping"));
    return this.#commits.commit(write);
  }

  /** Stores a small text; see `put` in model/store.ts. */
  async put(bucket: string, key: string, value: string | null, version?: number): Promise<Omit<PutResult, "op">> {
    const result = await this.commit({ op: "put", bucket, key, value, ...(version === undefined ? {} : { version }) });
    if (result.op !== "put") throw new LaboroError("LABORO_INTERNAL", `the store answered ${result.op} to put`);
    return { stored: result.stored, version: result.version };
  }

  /** Why nothing new is accepted; undefined if it is. */
  get refusing(): LaboroError | undefined {
    return this.#commits.refusing ?? this.halts.causeOf("lease");
  }

  get commitMs(): number {
    return this.#commits.averageMs;
  }

  /** Events of jobs, here or at another broker. */
  publish(events: readonly EventBody[]): void {
    for (const event of events) {
      this.events.add(event);
      this.follows.onEvent(event);
      this.jobs.onEvent(event);
      this.#each.onEvent(event);
      if (event.kind === "job-ended") this.relays.jobEnded(event.job);
    }
  }

  /** Assigns nothing more and waits for pending commits. The store stays open. */
  async stop(): Promise<void> {
    this.#stopping = true;
    this.halts.add("stop");
    this.#alarm.clear();
    this.delays.stop();
    this.config.close();
    this.history.stop();
    this.schedules.stop();
    this.allocators.stop();
    for (const port of this.#ports.values()) port.close("the broker is stopping");
    this.requests.stop();
    this.relays.stop();
    await this.#commits.stop();
  }

  #committed(given: readonly Write[], answers: readonly WriteResult[]): ReadonlySet<TaskRange["id"]> {
    const [writes, results] = withRunWrites(given, answers);
    const lost = this.decide((out) => onCommitted(this.state, out, writes, results, now()));
    this.counters.committed(writes, results);
    this.follows.committed(writes, results);
    this.publish(eventsOf(writes, results));
    this.taskUpdates.committed(writes);
    return lost;
  }

  #sendTasks(port: WorkerPort, tasks: AssignedRange & { worker: WorkerId }, claimed: WriteResult | undefined): void {
    const job = this.state.jobs.get(tasks.job);
    const claims = this.state.workers.get(tasks.worker)?.claims.get(tasks.job) ?? [];
    // The worker joined again during the commit, without these tasks: they returned to the queue.
    const wanted = claims.some(
      ({ attempt, first, last }) => attempt === tasks.attempt && first <= tasks.last && last >= tasks.first,
    );
    if (job === undefined || !wanted) return;
    this.counters.tasksAssigned(job.job, tasks.last - tasks.first + 1, now());
    try {
      port.assign(job.job, tasks, claimed?.op === "claim" ? claimed.entries : undefined);
    } catch (cause) {
      this.workerCannotTake(tasks.worker, tasks, cause);
    }
  }
}
