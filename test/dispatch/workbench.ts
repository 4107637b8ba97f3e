/**
 * One broker on a table: the real dispatch, the model store, and workers that do as the test says. Every step is committed at
 * once, and every invariant of both is checked after it. Tasks are written "job.index".
 */

import { onRerun, reserveTaskRangeIds } from "../../src/dispatch/commit-results.js";
import {
  type AttemptRange,
  type Call,
  createState,
  DEFAULT_SETTINGS,
  Decisions,
  type Done,
  explain,
  newTaskRangeId,
  onCancel,
  onCommitted,
  onDone,
  onDrain,
  onEachEnded,
  onForgive,
  onHalt,
  onHold,
  onJobAdded,
  onJobEdited,
  onJobsDue,
  onOpened,
  onPoolPaused,
  onReclaim,
  onReply,
  onRequest,
  onRequestCancelled,
  onResume,
  onRetracted,
  onSlots,
  onStarted,
  onTimer,
  onUndrain,
  onWorkerAway,
  onWorkerJoined,
  onWorkerLeft,
  type Reconciled,
  type ReportedTasks,
  restoreClaim,
  type Send,
  type Settings,
  type State,
  type WorkerProfile,
  type WorkerState,
  waitsInDispatch,
} from "../../src/dispatch/index.js";
import { claimOf } from "../../src/dispatch/state.js";
import { JobId, RequestId, SessionId, WorkerId } from "../../src/model/ids.js";
import { DEFAULT_LIMITS, type Job, type JobChanges, type JobEnd, type Limits } from "../../src/model/job.js";
import type { TaskEnd, TaskResult } from "../../src/model/outcome.js";
import type { Ranges } from "../../src/model/ranges.js";
import type { Write } from "../../src/model/store.js";
import { ModelWorld } from "../store/model-store.js";
import { TRUE } from "../support/recipes.js";
import { checkInvariants } from "./invariants.js";

type EditWrite = Extract<Write, { op: "edit" }>;

export interface JobWish extends Partial<Limits> {
  readonly acceptedBy?: string;
  readonly count?: number;
  readonly slots?: number;
  readonly needs?: Readonly<Record<string, number>>;
  readonly priority?: number;
  readonly pool?: string;
  readonly tags?: readonly string[];
  readonly service?: string;
  readonly after?: readonly { readonly job: number; readonly any?: boolean; readonly each?: true }[];
  readonly held?: boolean;
  readonly open?: true;
  /** Of a delayed job: one of the two. */
  readonly delayMs?: number;
  readonly at?: number;
}

export type WorkerWish = Partial<Omit<WorkerProfile, "id" | "total">> & {
  readonly slots?: number;
  readonly room?: Readonly<Record<string, number>>;
};

export type Told = Partial<Omit<Done, "job" | "index" | "attempt">>;

export class Workbench {
  world: ModelWorld;
  state: State;
  now = 1_000_000;
  /** Everything that was sent and called, in order. */
  readonly sends: Send[] = [];
  readonly calls: Call[] = [];
  /** Whether the last step had to be committed at once. */
  urgent = false;
  /** What each worker has been given and has not reported or lost: task name to attempt. */
  readonly held = new Map<string, Map<string, number>>();
  /** How many tasks of a job a worker may run at once, as it was told: `worker job` to the number. */
  readonly atOnce = new Map<string, number>();
  /** Every use of a worker, in order. */
  readonly log: { readonly worker: string }[] = [];
  /** Where in the log a worker began to be known, and as which. */
  readonly joined = new Map<string, { readonly place: number; readonly order: number }>();
  /** By how much the clock was set since the broker started. */
  clockAhead = 0;
  /** Delayed jobs whose time has come once. */
  readonly #due = new Set<JobId>();
  /** Their limit was lowered, and they may run more until some have ended. */
  readonly #overLimit = new Set<JobId>();
  #requests = 0;
  #joins = 0;

  constructor(settings: Partial<Settings> = {}, world = new ModelWorld({ shared: false })) {
    this.world = world;
    const opened = world.begin();
    this.state = createState({ ...DEFAULT_SETTINGS, ...settings }, opened.epoch, world.shared);
    const ends = new Map<JobId, JobEnd>();
    for (const { job } of world.jobs.values()) if (job.ended !== undefined) ends.set(job.id, job.ended.state);
    this.step((out) => onOpened(this.state, out, opened, this.now, ends));
  }

  /** Decide, store, learn what the store said, and so on until nothing is left to store; then look whether all is right. */
  step<T>(decide: (out: Decisions) => T): T {
    let out = new Decisions();
    const result = decide(out);
    this.urgent = out.urgent;
    for (let rounds = 0; !out.empty; rounds++) {
      if (rounds === 1_000) throw new Error("one step leads to another without end");
      const answers = this.world.apply(out.writes, this.state.epoch, this.now);
      this.sends.push(...out.sends);
      this.calls.push(...out.calls);
      for (const call of out.calls) if (call.kind === "call") this.log.push(call);
      for (const send of out.sends) this.#receive(send);
      const next = new Decisions();
      const lost = onCommitted(this.state, next, out.writes, answers, this.now);
      if (lost.size > 0 && !this.world.shared)
        throw new Error(`the store knows nothing of task ranges ${[...lost].join(", ")}`);
      out = next;
    }
    checkInvariants(this.state);
    this.#checkMaxRunning();
    this.world.check();
    return result;
  }

  #receive(send: Send): void {
    if (send.kind !== "tasks") return;
    if (this.job(send.job).notBefore !== undefined && !this.#due.has(send.job))
      throw new Error(`job ${send.job} is handed out before its time`);
    this.log.push(send);
    const held = this.held.get(send.worker) ?? new Map<string, number>();
    this.held.set(send.worker, held);
    for (let index = send.first; index <= send.last; index++) held.set(`${send.job}.${index}`, send.attempt);
    if (send.atOnce !== undefined) this.atOnce.set(`${send.worker} ${send.job}`, send.atOnce);
  }

  /** However the workers choose among the tasks that they hold, no more than `maxRunning` of a job run. */
  #checkMaxRunning(): void {
    for (const { id, job } of this.state.jobs.values()) {
      const { maxRunning } = job.limits;
      if (maxRunning === undefined || this.world.shared) continue;
      let most = 0;
      for (const [name, held] of this.held) {
        const worker = this.state.workers.get(WorkerId(name));
        if (worker === undefined) continue;
        // A task that went back to the queue may still run at a worker that was away for too long.
        const tasks = [...held.keys()].map(parse).filter((one) => one.job === id);
        const claimed = tasks.filter(({ index }) => claimOf(worker, id, index) !== undefined).length;
        most += Math.min(claimed, this.atOnce.get(`${name} ${id}`) ?? claimed);
      }
      if (most <= maxRunning) this.#overLimit.delete(id);
      else if (!this.#overLimit.has(id))
        throw new Error(`job ${id}: ${most} tasks may run at once, ${maxRunning} are allowed`);
    }
  }

  // Workers

  join(name: string, wish: WorkerWish = {}, held: readonly ReportedTasks[] = []): Reconciled {
    const { slots = 1, room = {}, ...rest } = wish;
    const profile: WorkerProfile = {
      id: WorkerId(name),
      session: SessionId(`${name} 1`),
      name,
      protocol: "laboro",
      pool: "default",
      tags: [],
      services: [],
      total: { ...room, slots },
      reserveRequests: 0,
      resumable: true,
      canPrefetch: false,
      ...rest,
    };
    if (!this.state.workers.has(profile.id)) this.joined.set(name, { place: this.log.length, order: ++this.#joins });
    if (this.world.shared) this.#adopt(profile.id);
    return this.step((out) => onWorkerJoined(this.state, out, profile, held, this.now));
  }

  #adopt(worker: WorkerId): void {
    const [answer] = this.world.apply([{ op: "adopt", worker }], this.state.epoch, this.now);
    if (answer?.op === "adopt") for (const held of answer.taskRanges) restoreClaim(this.state, held, this.now);
  }

  away(name: string, closed = false): void {
    this.step((out) => onWorkerAway(this.state, out, WorkerId(name), this.now, closed));
  }

  leave(name: string): void {
    this.held.delete(name);
    this.step((out) => onWorkerLeft(this.state, out, WorkerId(name), this.now));
  }

  drain(name: string, leaving = false): void {
    this.step((out) => onDrain(this.state, out, WorkerId(name), leaving));
  }

  /** The worker takes so many at once from now on. */
  slots(name: string, slots: number): void {
    this.step((out) => onSlots(this.state, out, WorkerId(name), slots, this.now));
  }

  forgive(name: string): boolean {
    return this.step((out) => onForgive(this.state, out, name, this.now));
  }

  /** The worker says that it has this task; gives the attempt, where it may keep it. */
  reclaim(name: string, task: string): number | undefined {
    const { job, index } = parse(task);
    const attempt = this.step((out) => onReclaim(this.state, out, WorkerId(name), job, index, this.now));
    if (attempt === undefined) return undefined;
    const held = this.held.get(name) ?? new Map<string, number>();
    this.held.set(name, held.set(task, attempt));
    return attempt;
  }

  worker(name: string): WorkerState {
    const worker = this.state.workers.get(WorkerId(name));
    if (worker === undefined) throw new Error(`there is no worker ${name}`);
    return worker;
  }

  // Jobs

  submit(wish: JobWish = {}): JobId {
    const {
      count = 1,
      slots = 1,
      needs,
      priority = 0,
      pool = "default",
      tags = [],
      service,
      after,
      held,
      open,
      acceptedBy,
      delayMs,
      at,
      ...limits
    } = wish;
    const notBefore = delayMs === undefined ? at : this.now + delayMs;
    const taskRange = newTaskRangeId(this.state);
    const request = {
      name: "job",
      recipe: TRUE,
      requirement: { pool, tags, needs: { ...needs, slots }, ...(service === undefined ? {} : { service }) },
      count,
      priority,
      limits: { ...DEFAULT_LIMITS, ...limits },
      after: (after ?? []).map(({ job, any, each }) => ({
        ...{ job: JobId(job), any: any ?? false },
        ...(each === undefined ? {} : { each }),
      })),
      held: held ?? false,
      ...(open === undefined ? {} : { open }),
      ...(acceptedBy === undefined ? {} : { acceptedBy }),
      ...(notBefore === undefined ? {} : { notBefore }),
      ...(delayMs === undefined ? {} : { delayMs }),
    };
    const limited = this.world.shared && (limits.named !== undefined || limits.maxRunning !== undefined);
    const lease = notBefore === undefined && !limited ? this.state.settings.maxLeaseTasks : 0;
    const [answer] = this.world.apply(
      [{ op: "submit", job: request, lease, rangeId: taskRange }],
      this.state.epoch,
      this.now,
    );
    if (answer?.op !== "submit") throw new Error("the submission was not answered");
    if (answer.job.delayed !== true)
      this.step((out) => onJobAdded(this.state, out, answer.job, answer.taskRange, new Set(), this.now));
    this.#startDue();
    return answer.job.id;
  }

  edit(job: number, changes: JobChanges, more: Partial<Omit<EditWrite, "op" | "job" | "changes">> = {}): void {
    const write = { op: "edit", job: JobId(job), changes, ...more } as const;
    const [answer] = this.world.apply([write], this.state.epoch, this.now);
    if (answer?.op !== "edit" || answer.job === undefined) throw new Error(`job ${job} was not edited`);
    const { job: edited } = answer;
    if (changes.maxRunning !== undefined) this.#overLimit.add(edited.id);
    this.step((out) => {
      onCommitted(this.state, out, [write], [answer], this.now);
      if (answer.refused === undefined) onJobEdited(this.state, out, edited, this.now);
    });
  }

  /** As the broker reads or hears it of the other job. */
  eachEnded(other: number, ended: Parameters<typeof onEachEnded>[3]): void {
    this.step((out) => onEachEnded(this.state, out, JobId(other), ended, this.now));
  }

  pausePool(pool: string, reason: string): void {
    this.step((out) => onPoolPaused(this.state, out, pool, { reason }, this.now));
  }

  resumePool(pool: string): void {
    this.step((out) => onPoolPaused(this.state, out, pool, undefined, this.now));
  }

  undrain(name: string): boolean {
    return this.step((out) => onUndrain(this.state, out, WorkerId(name), this.now));
  }

  append(job: number, count: number): void {
    this.edit(job, {}, { append: { at: this.job(job).count, count } });
  }

  hold(job: number, held = true): void {
    this.step((out) => {
      if (this.state.jobs.has(JobId(job))) out.writes.push({ op: "hold", job: JobId(job), held });
      onHold(this.state, out, JobId(job), held, this.now);
    });
  }

  cancel(job: number, first = 0, last = this.job(job).count - 1): void {
    this.step((out) => onCancel(this.state, out, JobId(job), [{ first, last }]));
  }

  rerun(job: number, ends: readonly TaskEnd[], ranges: Ranges): void {
    const idCount = 100;
    const rangeId = reserveTaskRangeIds(this.state, idCount);
    const write = { op: "rerun", job: JobId(job), ends, ranges, rangeId, idCount } as const;
    const [answer] = this.world.apply([write], this.state.epoch, this.now);
    if (answer?.op !== "rerun" || answer.job === undefined) throw new Error(`job ${job} was not run again`);
    const { job: again, taskRanges } = answer;
    this.step((out) => onRerun(this.state, out, again, taskRanges, new Set(), this.now));
  }

  job(id: number): Job {
    const known = this.world.jobs.get(JobId(id));
    if (known === undefined) throw new Error(`there is no job ${id}`);
    return known.job;
  }

  result(task: string): TaskResult | undefined {
    const { job, index } = parse(task);
    return this.world.jobs.get(job)?.results.get(index);
  }

  why(task: string): string {
    const { job, index } = parse(task);
    return explain(this.state, job, index, this.now);
  }

  // What workers report

  /** The tasks that a worker has, in the order it got them. */
  at(name: string): string[] {
    return [...(this.held.get(name)?.keys() ?? [])];
  }

  start(name: string, ...tasks: string[]): void {
    onStarted(
      this.state,
      WorkerId(name),
      tasks.map((task) => ({ ...parse(task), attempt: this.attempt(name, task) })),
      this.now,
    );
    checkInvariants(this.state);
  }

  /** Ends of tasks in one message; of all that the worker has if none is named. Returns how many no longer counted. */
  finish(name: string, tasks: readonly string[] = this.at(name), told: Told = {}): number {
    const done = tasks.map(
      (task): Done => ({
        ...parse(task),
        attempt: this.attempt(name, task),
        code: 0,
        started: this.now - 5,
        ended: this.now,
        outputBytes: 0,
        ...told,
      }),
    );
    for (const task of tasks) this.held.get(name)?.delete(task);
    return this.report(name, done);
  }

  fail(name: string, ...tasks: string[]): void {
    this.finish(name, tasks, { code: 1 });
  }

  report(name: string, done: readonly Done[]): number {
    return this.step((out) => onDone(this.state, out, WorkerId(name), done, this.now));
  }

  /** Give tasks back unstarted. */
  giveBack(name: string, ...tasks: string[]): void {
    const back = tasks.map((task): AttemptRange => {
      const { job, index } = parse(task);
      return { job, first: index, last: index, attempt: this.attempt(name, task) };
    });
    for (const task of tasks) this.held.get(name)?.delete(task);
    this.step((out) => onRetracted(this.state, out, WorkerId(name), back, this.now));
  }

  attempt(name: string, task: string): number {
    return this.held.get(name)?.get(task) ?? 1;
  }

  /** The tasks that workers were asked for back, newest message last. */
  asked(kind: "retract" | "cancel"): string[][] {
    return this.sends.flatMap((send) => (send.kind === kind ? [send.tasks.flatMap(namesOf)] : []));
  }

  // Requests

  request(service: string, wish: { deadline?: number; retry?: boolean } = {}): number {
    const id = RequestId(++this.#requests);
    const deadline = wish.deadline ?? this.now + 60_000;
    this.step((out) => onRequest(this.state, out, { id, service, deadline, retry: wish.retry ?? false }));
    return id;
  }

  reply(name: string, request: number): boolean {
    return this.step((out) => onReply(this.state, out, WorkerId(name), RequestId(request), this.now));
  }

  forget(request: number): void {
    this.step((out) => onRequestCancelled(this.state, out, RequestId(request)));
  }

  /** To whom requests went, or why they did not, in order: "a 1", "2 LABORO_DEADLINE". */
  get called(): string[] {
    return this.calls.flatMap((call) => {
      if (call.kind === "call") return [`${call.worker} ${call.request}`];
      return call.kind === "refuse" ? [`${call.request} ${call.code}`] : [];
    });
  }

  // Time and trouble

  pass(ms: number): void {
    this.now += ms;
    this.step((out) => onTimer(this.state, out, this.now));
    this.#startDue();
  }

  /** Somebody sets the clock. */
  setClock(ahead: number): void {
    this.clockAhead = ahead;
    this.#startDue();
  }

  /** As the broker does it when its timer has fired or a clock was set. */
  #startDue(): void {
    const clock = this.now + this.clockAhead;
    const isDue = ({ notBefore = 0, delayMs }: Job): boolean => notBefore <= (delayMs === undefined ? clock : this.now);
    for (;;) {
      const write = { op: "promote", clock, steady: this.now, max: 3 } as const;
      const [answer] = this.world.apply([write], this.state.epoch, this.now);
      if (answer?.op !== "promote" || answer.jobs.length === 0) break;
      for (const job of answer.jobs) {
        if (!isDue(job)) throw new Error(`job ${job.id} was promoted before its time`);
        this.#due.add(job.id);
        if (this.state.jobs.has(job.id)) this.step((out) => onJobsDue(this.state, out, [job.id], this.now));
        else this.step((out) => onJobAdded(this.state, out, job, undefined, new Set(), this.now));
      }
    }
    if (this.world.delayed().some(isDue)) throw new Error("a delayed job waits longer than it should");
    const known = [...this.state.jobs.values()].filter(({ job }) => waitsInDispatch(job) && isDue(job));
    for (const { id } of known) this.#due.add(id);
    if (known.length > 0)
      this.step((out) =>
        onJobsDue(
          this.state,
          out,
          known.map(({ id }) => id),
          this.now,
        ),
      );
  }

  halt(): void {
    onHalt(this.state, "it is drained");
  }

  resume(): void {
    this.step((out) => onResume(this.state, out, this.now));
  }

  /** The broker dies; another opens on what it left. */
  reopened(): Workbench {
    return new Workbench(this.state.settings, this.world);
  }
}

export const namesOf = ({ job, first, last }: AttemptRange): string[] =>
  Array.from({ length: last - first + 1 }, (_, i) => `${job}.${first + i}`);

function parse(task: string): { job: JobId; index: number } {
  const [job, index] = task.split(".");
  return { job: JobId(Number(job)), index: Number(index) };
}
