/**
 * Brokers, workers and the links between them without a socket: the real dispatch, the real ledger, the model store. Everything
 * that can happen between two machines can happen here, one small step at a time: messages are delivered late or never, a
 * connection ends for one side before the other, brokers and workers die between any two steps. After each step every
 * invariant of every part is checked, and a plain book of what really ran is held against what was recorded.
 */
import { onRerun, reserveTaskRangeIds } from "../../src/dispatch/commit-results.js";
import {
  createState,
  DEFAULT_SETTINGS,
  Decisions,
  loadLimits,
  newTaskRangeId,
  onCancel,
  onCommitted,
  onDone,
  onDrain,
  onEachEnded,
  onHold,
  onJobAdded,
  onJobEdited,
  onJobsDue,
  onLimitsFreed,
  onMayLease,
  onOpened,
  onOrphans,
  onProgress,
  onRemoteCancel,
  onRetracted,
  onSlots,
  onStarted,
  onTimer,
  onWorkerAway,
  onWorkerJoined,
  onWorkerLeft,
  restoreClaim,
  type Send,
  type Settings,
  type State,
  type WorkerProfile,
  waitsInDispatch,
} from "../../src/dispatch/index.js";
import { type JobId, SessionId, taskKey, WorkerId } from "../../src/model/ids.js";
import type { Job, JobChanges, JobSpec } from "../../src/model/job.js";
import { LIMIT_BUCKET, type LimitRule } from "../../src/model/limit.js";
import type { TaskEnd } from "../../src/model/outcome.js";
import { type Range, rangesOf } from "../../src/model/ranges.js";
import type { Epoch, TaskRange, Write } from "../../src/model/store.js";
import type { AttemptRange, DoneTask, FromWorker, HeldTasks, TaskRef } from "../../src/protocols/laboro/messages.js";
import { TaskTracker } from "../../src/worker/task-tracker.js";
import { ModelWorld } from "../store/model-store.js";
import { checkInvariants } from "./invariants.js";

type ToBroker = { type: "JOIN"; held: readonly HeldTasks[]; session: string } | Exclude<FromWorker, { type: "JOIN" }>;
type ToWorker =
  | { type: "WELCOME"; drop: readonly AttemptRange[] }
  | ({ type: "TASKS" } & AttemptRange)
  | { type: "ACK"; seq: number }
  | { type: "RETRACT" | "CANCEL"; tasks: readonly AttemptRange[] };

/** A connection. Either side may still hold what the other has let go. */
interface Link {
  readonly broker: SimBroker;
  readonly worker: SimWorker;
  readonly toBroker: ToBroker[];
  readonly toWorker: ToWorker[];
  leaving: boolean;
}

interface Pending {
  readonly writes: Write[];
  readonly sends: Send[];
  readonly after: (() => void)[];
}

export class SimBroker {
  readonly epoch: Epoch;
  readonly state: State;
  readonly links = new Map<SimWorker, Link>();
  pending: Pending = { writes: [], sends: [], after: [] };

  constructor(epoch: Epoch, settings: Settings) {
    this.epoch = epoch;
    this.state = createState(settings, epoch, true);
  }
}

export class SimWorker {
  readonly id: WorkerId;
  readonly slots: number;
  session = 0;
  ledger = new TaskTracker();
  running: TaskRef[] = [];
  /** Survives the death of the process. */
  spool = new Map<string, DoneTask>();
  link: Link | undefined;
  welcomed = false;

  constructor(name: string, slots: number) {
    this.id = WorkerId(name);
    this.slots = slots;
  }
}

export interface SimOptions {
  readonly brokers: number;
  readonly workers: readonly number[];
  readonly settings?: Partial<Settings>;
  readonly limits?: Readonly<Record<string, LimitRule>>;
}

/** One start of one attempt, as it really happened. */
interface RealRun {
  readonly task: TaskRef;
  readonly worker: string;
  end?: "succeeded" | "failed";
}

export class Simulation {
  readonly world = new ModelWorld();
  readonly workers: SimWorker[];
  brokers: (SimBroker | undefined)[];
  now = 1_000_000;
  readonly runs: RealRun[] = [];
  readonly #settings: Settings;
  readonly #limits: ReadonlyMap<string, LimitRule>;
  /** Hand-outs of tasks that count against limits. */
  readonly #starts: { readonly limit: string; readonly at: number; readonly count: number }[] = [];
  readonly #orphans: Epoch[] = [];
  readonly #recorded = new Map<string, string>();
  /** By how much the clock of the database was set. */
  clockAhead = 0;
  /** Delayed jobs whose time has come once. */
  readonly #due = new Set<JobId>();
  /** Tasks that count against the `maxRunning` of a job that was edited, while they are more than it allows. */
  readonly #overLimit = new Map<JobId, number>();
  /** Tasks whose cancel was acknowledged. */
  readonly #cancelled = new Set<string>();

  constructor(options: SimOptions) {
    this.#settings = { ...DEFAULT_SETTINGS, ...options.settings };
    this.#limits = new Map(Object.entries(options.limits ?? {}));
    for (const [key, rule] of this.#limits)
      this.world.apply([{ op: "put", bucket: LIMIT_BUCKET, key, value: JSON.stringify(rule) }], 0, this.now);
    this.workers = options.workers.map((slots, i) => new SimWorker(`w${i}`, slots));
    this.brokers = Array.from({ length: options.brokers }, () => this.#open());
  }

  #open(): SimBroker {
    const held = this.world.begin();
    const broker = new SimBroker(held.epoch, this.#settings);
    loadLimits(broker.state, this.#limits, [], this.now);
    this.decide(broker, (out) => onOpened(broker.state, out, held, this.now));
    return broker;
  }

  decide<T>(broker: SimBroker, step: (out: Decisions) => T, after?: () => void): T {
    const out = new Decisions();
    const result = step(out);
    broker.pending.writes.push(...out.writes);
    broker.pending.sends.push(...out.sends);
    if (after !== undefined) broker.pending.after.push(after);
    return result;
  }

  // Steps. Each does nothing where it cannot happen now.

  submit(broker: SimBroker, request: JobSpec): void {
    this.commit(broker);
    const taskRange = newTaskRangeId(broker.state);
    const { named, maxRunning } = request.limits;
    const atOnce = named === undefined && maxRunning === undefined && request.notBefore === undefined;
    const lease = atOnce ? this.#settings.maxLeaseTasks : 0;
    const [answer] = this.world.apply(
      [{ op: "submit", job: request, lease, rangeId: taskRange }],
      broker.epoch,
      this.now,
    );
    if (answer?.op !== "submit") throw new Error("a submission was not answered");
    if (answer.job.delayed !== true) this.#add(broker, answer.job, answer.taskRange);
  }

  #add(broker: SimBroker, job: Job, taskRange?: TaskRange): void {
    this.decide(broker, (out) => onJobAdded(broker.state, out, job, taskRange, new Set(), this.now));
    // The other brokers hear of it; that is a hint only, so it may as well come at once.
    this.#tell(broker, (other, out) => onJobAdded(other.state, out, job, undefined, new Set(), this.now));
  }

  /** Other brokers hear of it with their next commit. */
  edit(broker: SimBroker, id: JobId, changes: JobChanges): void {
    this.commit(broker);
    const write = { op: "edit", job: id, changes } as const;
    const [answer] = this.world.apply([write], broker.epoch, this.now);
    if (answer?.op !== "edit" || answer.job === undefined || answer.refused !== undefined) return;
    if (changes.maxRunning !== undefined) this.#overLimit.set(id, this.#countedOf(id));
    const hear = (at: SimBroker, job: Job): void => {
      this.decide(at, (out) => onJobEdited(at.state, out, job, this.now));
    };
    hear(broker, answer.job);
    this.#hearLater(broker, id, hear);
  }

  /** Ended tasks run again. Other brokers hear of it with their next commit. */
  rerun(broker: SimBroker, id: JobId, ends: readonly TaskEnd[]): void {
    this.commit(broker);
    const idCount = 100;
    const rangeId = reserveTaskRangeIds(broker.state, idCount);
    const [answer] = this.world.apply([{ op: "rerun", job: id, ends, rangeId, idCount }], broker.epoch, this.now);
    if (answer?.op !== "rerun" || answer.job === undefined || answer.count === 0) return;
    const { job, taskRanges } = answer;
    for (const { first, last } of taskRanges) {
      for (let index = first; index <= last; index++) {
        this.#recorded.delete(taskKey(id, index));
        this.#cancelled.delete(taskKey(id, index));
      }
    }
    this.decide(broker, (out) => onRerun(broker.state, out, job, taskRanges, new Set(), this.now));
    this.#hearLater(broker, id, (other, now) => {
      const known = other.state.jobs.get(id);
      if (known === undefined)
        this.decide(other, (out) => onJobAdded(other.state, out, now, undefined, new Set(), this.now));
      else {
        known.cancels = now.cancels;
        const { counters } = now;
        this.decide(other, (out) => onProgress(other.state, out, id, { counters }, this.now));
      }
      this.decide(other, (out) => onMayLease(other.state, out, id));
    });
  }

  /** The other brokers read the job as it is then, if it is open. */
  #hearLater(from: SimBroker, id: JobId, hear: (other: SimBroker, job: Job) => void): void {
    for (const other of this.brokers) {
      if (other === undefined || other === from) continue;
      other.pending.after.push(() => {
        const job = this.world.jobs.get(id)?.job;
        if (job !== undefined && job.ended === undefined) hear(other, job);
      });
    }
  }

  /** Tasks that brokers or workers have of the job. */
  #countedOf(id: JobId): number {
    const [use] = this.world.limits.uses([`#${id}`], this.now);
    return use === undefined ? 0 : use.running + use.leased;
  }

  setClock(ahead: number): void {
    this.clockAhead = ahead;
    this.#startDue();
  }

  /** Delayed jobs whose time has come, as a broker starts them. */
  #startDue(): void {
    const broker = this.brokers.find((one) => one !== undefined);
    if (broker === undefined) return;
    const clock = this.now + this.clockAhead;
    for (;;) {
      this.commit(broker);
      const [answer] = this.world.apply([{ op: "promote", clock, steady: this.now, max: 2 }], broker.epoch, this.now);
      if (answer?.op !== "promote" || answer.jobs.length === 0) break;
      for (const job of answer.jobs) {
        this.#due.add(job.id);
        this.#add(broker, job);
      }
    }
    const isDue = ({ notBefore = 0, delayMs }: Job): boolean => notBefore <= (delayMs === undefined ? clock : this.now);
    const due = [...this.world.jobs.values()].filter(({ job }) => waitsInDispatch(job) && isDue(job));
    const ids = due.map(({ job }) => job.id);
    for (const id of ids) this.#due.add(id);
    for (const one of this.brokers)
      if (one !== undefined) this.decide(one, (out) => onJobsDue(one.state, out, ids, this.now));
  }

  /** What a broker reads of the tasks that others wait for one by one. */
  #readEach(broker: SimBroker): void {
    for (const other of [...broker.state.eachWaiting.keys()]) {
      const known = this.world.jobs.get(other);
      if (known === undefined) continue;
      const all = [...known.results.values()].sort((a, b) => a.index - b.index);
      const of = (good: boolean) =>
        rangesOf(all.flatMap(({ index, state }) => ((state === "succeeded") === good ? [index] : [])));
      const ended = { succeeded: of(true), failed: of(false), final: known.job.ended !== undefined };
      this.decide(broker, (out) => onEachEnded(broker.state, out, other, ended, this.now));
    }
  }

  /** The batch that has gathered becomes durable, and what rests on it goes out. */
  commit(broker: SimBroker): void {
    this.#readEach(broker);
    const { writes, sends, after } = broker.pending;
    broker.pending = { writes: [], sends: [], after: [] };
    if (writes.length + sends.length + after.length === 0) return;
    const answers = this.world.apply(writes, broker.epoch, this.now);
    writes.forEach((write, i) => {
      const answer = answers[i];
      if (answer === undefined || !("progress" in answer) || answer.progress?.ended === undefined) return;
      if (!("job" in write) || typeof write.job !== "number") return;
      const { progress } = answer;
      const { job } = write;
      this.#tell(broker, (other, out) => onProgress(other.state, out, job, progress, this.now));
    });
    for (const write of writes) {
      // What the store has of it: a halt leaves out the tasks that any broker's workers have.
      const { cancels = [] } = (write.op === "cancel" ? this.world.jobs.get(write.job)?.job : undefined) ?? {};
      if (write.op === "cancel")
        this.#tell(broker, (other, out) => onRemoteCancel(other.state, out, write.job, cancels));
      if (write.op === "hold")
        this.#tell(broker, (other, out) => onHold(other.state, out, write.job, write.held, this.now));
    }
    if (writes.some((write) => write.op === "release")) {
      this.#tell(broker, (other) => this.hint(other));
    }
    if (writes.some((write) => write.op === "release" || ("limited" in write && write.limited)))
      this.#tell(broker, (other, out) => onLimitsFreed(other.state, out, this.now));
    writes.forEach((write, i) => {
      const answer = answers[i];
      if (write.op !== "claim" || answer?.op !== "claim" || answer.lost) return;
      for (const limit of write.limits ?? [])
        this.#starts.push({ limit, at: this.now, count: write.last - write.first + 1 });
    });
    const lost = this.decide(broker, (out) => onCommitted(broker.state, out, writes, answers, this.now));
    for (const send of sends) {
      const link = [...broker.links.values()].find((one) => one.worker.id === send.worker);
      if (link === undefined) continue;
      if (send.kind !== "tasks")
        link.toWorker.push({ type: send.kind === "cancel" ? "CANCEL" : "RETRACT", tasks: send.tasks });
      else if (!lost.has(send.rangeId)) {
        const { job, first, last, attempt } = send;
        link.toWorker.push({ type: "TASKS", job, first, last, attempt });
      }
    }
    for (const act of after) act();
  }

  /** What brokers of a group tell each other; here it arrives at once. */
  #tell(from: SimBroker, heard: (other: SimBroker, out: Decisions) => void): void {
    for (const other of this.brokers) {
      if (other !== undefined && other !== from) this.decide(other, (out) => heard(other, out));
    }
  }

  connect(worker: SimWorker, broker: SimBroker): void {
    if (worker.link !== undefined) return;
    const link: Link = { broker, worker, toBroker: [], toWorker: [], leaving: false };
    worker.link = link;
    worker.welcomed = false;
    link.toBroker.push({ type: "JOIN", held: worker.ledger.held(), session: String(worker.session) });
  }

  /** The worker's side of its connection is gone; the broker may notice much later, and may still read what was sent. */
  cutWorkerSide(worker: SimWorker): void {
    if (worker.link === undefined) return;
    worker.link.toWorker.length = 0;
    worker.link = undefined;
    worker.welcomed = false;
  }

  /** The broker notices that a connection is gone. */
  notice(broker: SimBroker, worker: SimWorker): void {
    const link = broker.links.get(worker);
    if (link === undefined || worker.link === link) return;
    broker.links.delete(worker);
    this.decide(broker, (out) =>
      link.leaving
        ? onWorkerLeft(broker.state, out, worker.id, this.now)
        : onWorkerAway(broker.state, out, worker.id, this.now),
    );
  }

  cut(worker: SimWorker): void {
    const link = worker.link;
    if (link === undefined) return;
    link.toBroker.length = 0;
    this.cutWorkerSide(worker);
    this.notice(link.broker, worker);
  }

  /** One message arrives at a broker, on any connection it still has or is being offered. */
  deliverToBroker(broker: SimBroker, link: Link): void {
    const message = link.toBroker.shift();
    if (message === undefined) return;
    if (message.type === "JOIN") {
      this.#join(broker, link, message);
      return;
    }
    if (broker.links.get(link.worker) !== link) return;
    const { id } = link.worker;
    const { state } = broker;
    if (message.type === "STARTED") onStarted(state, id, message.tasks, this.now);
    else if (message.type === "DONE") {
      this.decide(
        broker,
        (out) => onDone(state, out, id, message.tasks, this.now),
        () => {
          link.toWorker.push({ type: "ACK", seq: message.seq });
        },
      );
    } else if (message.type === "RETRACTED" || message.type === "CANCELLED") {
      this.decide(broker, (out) => onRetracted(state, out, id, message.tasks, this.now));
    } else if (message.type === "LEAVING") {
      link.leaving = true;
      this.decide(broker, (out) => onDrain(state, out, id));
    }
  }

  #join(broker: SimBroker, link: Link, join: { held: readonly HeldTasks[]; session: string }): void {
    const { worker } = link;
    this.commit(broker);
    const [answer] = this.world.apply([{ op: "adopt", worker: worker.id }], broker.epoch, this.now);
    if (answer?.op === "adopt") for (const held of answer.taskRanges) restoreClaim(broker.state, held, this.now);
    broker.links.set(worker, link);
    const profile: WorkerProfile = {
      id: worker.id,
      session: SessionId(join.session),
      name: worker.id,
      protocol: "laboro",
      pool: "default",
      tags: [],
      services: [],
      total: { slots: worker.slots },
      reserveRequests: 0,
      resumable: true,
      canPrefetch: true,
    };
    const { drop } = this.decide(broker, (out) => onWorkerJoined(broker.state, out, profile, join.held, this.now));
    link.toWorker.push({ type: "WELCOME", drop });
  }

  deliverToWorker(worker: SimWorker): void {
    const link = worker.link;
    const message = link?.toWorker.shift();
    if (link === undefined || message === undefined) return;
    const { ledger } = worker;
    if (message.type === "WELCOME") {
      worker.welcomed = true;
      ledger.drop(message.drop);
      worker.running = worker.running.filter((task) => ledger.isRunning(task));
      for (const { job, first, last, attempt } of message.drop) {
        for (let index = first; index <= last; index++) worker.spool.delete(`${taskKey(job, index)}.${attempt}`);
      }
      for (const done of ledger.reopen()) ledger.finish(done);
      const batch = ledger.nextBatch();
      if (batch !== undefined) link.toBroker.push({ type: "DONE", ...batch });
    } else if (message.type === "TASKS") {
      ledger.receive(message);
    } else if (message.type === "ACK") {
      for (const { tasks } of ledger.acknowledge(message.seq)) {
        for (const { job, index, attempt } of tasks) worker.spool.delete(`${taskKey(job, index)}.${attempt}`);
      }
    } else if (message.type === "RETRACT") {
      link.toBroker.push({ type: "RETRACTED", tasks: ledger.removePrefetched(message.tasks) });
    } else {
      const unstarted = ledger.removePrefetched(message.tasks);
      if (unstarted.length > 0) link.toBroker.push({ type: "CANCELLED", tasks: unstarted });
    }
  }

  start(worker: SimWorker): void {
    if (worker.running.length >= worker.slots) return;
    const task = worker.ledger.startNext(() => true);
    if (task === undefined) return;
    const before = this.runs.find((run) => taskName(run.task) === taskName(task));
    if (before !== undefined)
      throw new Error(`attempt ${taskName(task)} was started at ${before.worker} and at ${worker.id}`);
    if (this.world.jobs.get(task.job)?.job.notBefore !== undefined && !this.#due.has(task.job))
      throw new Error(`job ${task.job} runs before its time`);
    worker.running.push(task);
    this.runs.push({ task, worker: worker.id });
    if (worker.welcomed) worker.link?.toBroker.push({ type: "STARTED", tasks: [task] });
  }

  finish(worker: SimWorker, which: number, good: boolean): void {
    const task = worker.running[which % Math.max(1, worker.running.length)];
    if (task === undefined) return;
    worker.running = worker.running.filter((one) => one !== task);
    const { job, index, attempt } = task;
    const done: DoneTask = {
      job,
      index,
      attempt,
      code: good ? 0 : 1,
      started: this.now - 5,
      ended: this.now,
      outputBytes: 0,
    };
    const run = this.runs.find((one) => taskName(one.task) === taskName(task));
    if (run !== undefined) run.end = good ? "succeeded" : "failed";
    worker.spool.set(`${taskKey(job, index)}.${attempt}`, done);
    worker.ledger.finish(done);
  }

  /** The worker tells of what has ended. */
  report(worker: SimWorker): void {
    if (!worker.welcomed) return;
    const batch = worker.ledger.nextBatch();
    if (batch !== undefined) worker.link?.toBroker.push({ type: "DONE", ...batch });
  }

  /** Orderly stop, and a new start. What ran is stopped and given back. */
  leave(worker: SimWorker): void {
    const { link, ledger } = worker;
    if (link === undefined || !worker.welcomed) return;
    link.toBroker.push({ type: "LEAVING" });
    const running = worker.running.map(({ job, index, attempt }) => ({ job, attempt, first: index, last: index }));
    ledger.drop(running);
    worker.running = [];
    this.report(worker);
    link.toBroker.push({ type: "RETRACTED", tasks: [...ledger.removeAllPrefetched(), ...running] });
    link.toWorker.length = 0;
    this.crashWorker(worker);
  }

  /** kill -9: prefetched and running tasks die, what was spooled lives. */
  crashWorker(worker: SimWorker): void {
    this.cutWorkerSide(worker);
    worker.session++;
    worker.running = [];
    worker.ledger = new TaskTracker();
    for (const done of worker.spool.values()) {
      worker.ledger.resume(done);
      worker.ledger.finish(done);
    }
  }

  crashBroker(at: number): void {
    const broker = this.brokers[at];
    if (broker === undefined) return;
    this.brokers[at] = undefined;
    for (const worker of this.workers) if (worker.link?.broker === broker) this.cutWorkerSide(worker);
    // What waited there is anyone's at once; what its workers have stays theirs until they, or the grace, decide.
    this.world.reap(broker.epoch, this.now);
    for (const other of this.brokers) {
      if (other === undefined) continue;
      for (const { job } of this.world.jobs.values()) {
        if (job.ended === undefined) continue;
        const progress = { counters: job.counters, ended: job.ended.state };
        this.decide(other, (out) => onProgress(other.state, out, job.id, progress, this.now));
      }
      this.hint(other);
    }
    this.#orphans.push(broker.epoch);
  }

  /** Brokers are told that there may be something to lease. */
  hint(broker: SimBroker): void {
    for (const job of [...broker.state.jobs.keys()]) this.decide(broker, (out) => onMayLease(broker.state, out, job));
  }

  restartBroker(at: number): void {
    if (this.brokers[at] !== undefined) return;
    const broker = this.#open();
    this.brokers[at] = broker;
    this.hint(broker);
  }

  pass(ms: number): void {
    this.now += ms;
    this.#startDue();
    for (const broker of this.brokers) {
      if (broker !== undefined) this.decide(broker, (out) => onTimer(broker.state, out, this.now));
    }
    // The grace of a dead broker's workers is over: a living one takes what they had, with a grace of its own.
    const living = this.brokers.find((one) => one !== undefined);
    if (living === undefined) return;
    for (const epoch of this.#orphans.splice(0)) {
      const orphans = this.world.orphans(epoch, living.epoch);
      this.decide(living, (out) => onOrphans(living.state, out, orphans, this.now));
    }
  }

  /** A broker hears that a worker takes so many at once from now on. */
  slots(broker: SimBroker, worker: SimWorker, slots: number): void {
    this.decide(broker, (out) => onSlots(broker.state, out, worker.id, slots, this.now));
  }

  hold(broker: SimBroker, job: JobId, held: boolean): void {
    this.decide(broker, (out) => {
      if (broker.state.jobs.has(job)) out.writes.push({ op: "hold", job, held });
      onHold(broker.state, out, job, held, this.now);
    });
  }

  cancel(broker: SimBroker, job: JobId, range: Range): void {
    const count = broker.state.jobs.get(job)?.job.count;
    if (count === undefined) return;
    const kept = {
      first: range.first % count,
      last: Math.min(count - 1, (range.first % count) + (range.last - range.first)),
    };
    this.decide(
      broker,
      (out) => onCancel(broker.state, out, job, [kept]),
      () => {
        const known = this.world.jobs.get(job);
        for (let index = kept.first; index <= kept.last; index++) {
          if (known?.results.has(index) !== true) this.#cancelled.add(taskKey(job, index));
        }
      },
    );
  }

  /**
   * No more tasks run at once, and were handed out within the interval that ends now, than limits and `maxRunning` allow. A task that a worker
   * still runs although its broker has given it up is not counted.
   */
  #checkLimits(): void {
    const running = new Map<string, number>();
    for (const { id, running: tasks } of this.workers) {
      for (const { job, index, attempt } of tasks) {
        const held = [...this.world.taskRanges.values()].some(
          ({ taskRange: range }) =>
            range.worker === id &&
            range.job === job &&
            range.attempt === attempt &&
            range.first <= index &&
            index <= range.last,
        );
        if (!held) continue;
        const { named = [] } = this.world.jobs.get(job)?.job.limits ?? {};
        for (const name of [...named, `#${job}`]) running.set(name, (running.get(name) ?? 0) + 1);
      }
    }
    for (const { job } of this.world.jobs.values()) {
      const { maxRunning = Number.POSITIVE_INFINITY } = job.limits;
      const runs = running.get(`#${job.id}`) ?? 0;
      // A broker may still hand out what it had leased before the limit was lowered.
      const before = this.#overLimit.get(job.id);
      if (before !== undefined) {
        const counted = this.#countedOf(job.id);
        if (counted > Math.max(maxRunning, before))
          throw new Error(`${counted} tasks of job ${job.id} count, ${before} did`);
        if (counted <= maxRunning) this.#overLimit.delete(job.id);
        else this.#overLimit.set(job.id, counted);
        if (runs > counted) throw new Error(`${runs} tasks of job ${job.id} run, ${counted} count`);
        continue;
      }
      if (runs > maxRunning) throw new Error(`${runs} tasks of job ${job.id} run, ${maxRunning} may`);
    }
    for (const [name, { running: most = Number.POSITIVE_INFINITY, rate }] of this.#limits) {
      if ((running.get(name) ?? 0) > most) throw new Error(`${running.get(name)} tasks of ${name} run, ${most} may`);
      const { starts = Number.POSITIVE_INFINITY, intervalMs = 0 } = rate ?? {};
      const recent = this.#starts.filter((start) => start.limit === name && start.at > this.now - intervalMs);
      const started = recent.reduce((sum, { count }) => sum + count, 0);
      if (started > starts)
        throw new Error(`${started} tasks of ${name} were started within ${intervalMs} ms, ${starts} may`);
    }
  }

  /** Everything that must hold, whatever happened. */
  verify(): void {
    this.#checkLimits();
    this.world.check();
    for (const broker of this.brokers) if (broker !== undefined) checkInvariants(broker.state);
    for (const [id, { results }] of this.world.jobs) {
      for (const result of results.values()) {
        const key = taskKey(id, result.index);
        const text = JSON.stringify(result);
        const before = this.#recorded.get(key);
        if (before !== undefined && before !== text)
          throw new Error(`the result of ${key} changed: ${before} to ${text}`);
        this.#recorded.set(key, text);
        if (result.state === "cancelled" || result.error !== undefined) continue;
        if (this.#cancelled.has(key)) throw new Error(`${key} was cancelled, acknowledged, and ended ${result.state}`);
        const name = `${key}.${result.attempt}`;
        const run = this.runs.find((one) => taskName(one.task) === name);
        if (run?.end !== result.state || run.worker !== result.worker) {
          throw new Error(`${name} is recorded as ${text}, but what happened is ${JSON.stringify(run)}`);
        }
      }
    }
  }

  /** Let everything recover, and run until nothing is left to do. Throws if that does not come. */
  settle(): void {
    for (let i = 0; i < this.brokers.length; i++) this.restartBroker(i);
    for (const broker of this.brokers) if (broker !== undefined) this.commit(broker);
    for (const id of this.world.jobs.keys()) {
      const broker = this.brokers[0];
      if (broker?.state.jobs.has(id) === true) this.hold(broker, id, false);
    }
    for (let round = 0; round < 10_000; round++) {
      const open = [...this.world.jobs.values()].filter(({ job }) => job.ended === undefined);
      if (open.length === 0) return;
      this.pass(round % 20 === 19 ? 100_000 : 1);
      for (const broker of this.brokers) {
        if (broker === undefined) continue;
        for (const worker of this.workers) this.notice(broker, worker);
        for (const link of [...broker.links.values()])
          while (link.toBroker.length > 0) this.deliverToBroker(broker, link);
        this.commit(broker);
        this.decide(broker, (out) => onLimitsFreed(broker.state, out, this.now));
        this.commit(broker);
      }
      this.workers.forEach((worker, i) => {
        const broker = this.brokers[i % this.brokers.length];
        if (broker !== undefined) this.connect(worker, broker);
        if (worker.link !== undefined) this.slots(worker.link.broker, worker, worker.slots);
        if (worker.link !== undefined)
          while (worker.link.toBroker.length > 0) this.deliverToBroker(worker.link.broker, worker.link);
        while ((worker.link?.toWorker.length ?? 0) > 0) this.deliverToWorker(worker);
        for (let slot = 0; slot < worker.slots; slot++) this.start(worker);
        while (worker.running.length > 0) this.finish(worker, 0, true);
        this.report(worker);
      });
      this.verify();
    }
    const left = [...this.world.jobs.values()].filter(({ job }) => job.ended === undefined).map(({ job }) => job);
    throw new Error(`work is left that nobody does: ${JSON.stringify(left)}`);
  }
}

const taskName = ({ job, index, attempt }: TaskRef): string => `${job}.${index}.${attempt}`;
