/**
 * The tasks and slots of a connected fuq worker, as reported by HELLO, OK, UPDATE and ERROR.
 *
 * A task of laboro as fuq sees it: its number, the description of its job, its log and its outcome.
 */
import { basename, dirname, isAbsolute, join } from "node:path";
import { now } from "../../../base/clock.js";
import type { Log } from "../../../base/log.js";
import type { Core, WorkerPort } from "../../../broker/core.js";
import { type AssignedTask, AssignedTasks, type TaskWorkerProfile } from "../../../broker/sessions/assigned-tasks.js";
import type { Done, WorkerProfile } from "../../../dispatch/index.js";
import { JobId, SessionId, type TaskIndex, type WorkerId } from "../../../model/ids.js";
import type { Job } from "../../../model/job.js";
import { kindOf } from "../../../model/recipe.js";
import { taskIndex, taskNumber } from "../../../model/task-numbers.js";
import {
  ALL_TASKS,
  COUNT_LIMIT,
  type Hello,
  type Message,
  type Ok,
  outcomeFromStatus,
  pairKey,
  pairOf,
  RUNNING,
  type Task,
  type TaskPair,
  type Update,
} from "../messages.js";
import type { FuqNode } from "./http/nodes.js";
import { SlotCapacity } from "./slot-capacity.js";

/** What all workers of fuq have in common. */
export const FUQ_WORKER = { canPrefetch: false, taskKinds: ["numbered"] } as const;

/** Undefined if a fuq worker cannot run it. */
export function toFuqTask(given: Job, index: TaskIndex): Task | undefined {
  const { id: jobId, count: numTasks, recipe } = given;
  if (recipe.kind !== "command" || kindOf(recipe) !== "numbered") return undefined;
  const { dir: workingDir = "", argv } = recipe;
  const [command = ""] = argv;
  const job = { jobId, ...logLocation(given), numTasks, workingDir, command, status: RUNNING };
  return { task: taskNumber(given, index), job };
}

/** Undefined if no open job has this task. */
function indexOfPair(core: Core, { jobId, task }: TaskPair): TaskIndex | undefined {
  const open = core.job(JobId(jobId));
  return open && taskIndex(open, task);
}

const NUMBERED_LOG = "_{#}.log";

/**
 * A worker writes LOGGING_DIR/NAME_TASK.log. A job without a log path logs into its directory. The name of a job may be
 * a path, such as that of its program, and must not lead to another directory.
 */
function logLocation({ name, recipe }: Job): { name: string; loggingDir: string } {
  const { dir, log } = recipe.kind === "command" ? recipe : {};
  const workingDir = typeof dir === "string" ? dir : "";
  const file = log === undefined ? "" : basename(log);
  return {
    name: file.endsWith(NUMBERED_LOG) ? file.slice(0, -NUMBERED_LOG.length) : name.replaceAll("/", "_"),
    loggingDir: log === undefined ? workingDir : logDirectory(workingDir, log),
  };
}

/** The path of a log is relative to the directory of the task, but a fuq worker would take it relative to its own. */
export const logDirectory = (dir: string, log: string): string =>
  dir === "" || isAbsolute(log) ? dirname(log) : join(dir, dirname(log));

type FuqOutcome = Omit<Done, "outputBytes">;

/** A task past its limit has timed out, unless it succeeded. By the specification, a cancelled one has no report. */
export function outcomeOf(task: AssignedTask<object>, reported?: Update): FuqOutcome {
  const { job, index, attempt, since: started } = task;
  const late = task.timedOut && reported?.success !== true;
  const end = reported === undefined ? {} : outcomeFromStatus(reported.success, reported.status);
  return { job, index, attempt, started, ended: now(), ...end, ...(late ? { timedOut: true } : {}) };
}

/** A fuq worker sends no output. The output of its task says where the log is. */
export function recordOutcome(core: Core, id: WorkerId, done: FuqOutcome, recorded: () => void): void {
  const { job, index, attempt } = done;
  const bytes = Buffer.from(logNotice(core, id, core.job(job), index));
  core.workerOutput(id, [{ job, index, attempt, stream: "stderr", offset: 0, bytes }], () => {});
  core.workerDone(id, [{ ...done, outputBytes: bytes.length }], recorded);
}

function logNotice(core: Core, id: WorkerId, job: Job | undefined, index: TaskIndex): string {
  if (job === undefined) return "";
  const { name, loggingDir } = logLocation(job);
  const path = join(loggingDir, `${name}_${taskNumber(job, index)}.log`);
  return `laboro: the log is ${path} on worker ${core.worker(id)?.profile.name ?? id}\n`;
}

/** Records an UPDATE of a worker that has not joined. Resolves when it is recorded, or without such a task. */
export async function recordBeforeJoin(core: Core, id: WorkerId, update: Update): Promise<void> {
  await core.claimedBy(id);
  const job = JobId(update.jobId);
  const index = indexOfPair(core, update) ?? -1;
  const claim = core.claimOf(id, job, index);
  if (claim === undefined) return;
  const { attempt, startedAt: started = now() } = claim;
  const end = { started, ended: now(), ...outcomeFromStatus(update.success, update.status) };
  await new Promise<void>((resolve) => recordOutcome(core, id, { job, index, attempt, ...end }, resolve));
}

/** The connection of a fuq worker, as its session sees it. `Out`: the messages of the session's version. */
export interface WorkerConnection<Out = Message> {
  readonly core: Core;
  readonly log: Log;
  readonly profile: Pick<WorkerProfile, "protocol" | "pool" | "address" | "graceMs">;
  /** Of the node, or `PREFIX:HOST:PORT` of a raw connection. */
  readonly id: WorkerId;
  /** The worker whose cookie came with a WebSocket. */
  readonly node?: FuqNode;
  send(message: Out): void;
  /** Nothing is sent afterwards. `code` is a WebSocket close code. */
  close(code?: number, reason?: string): void;
  onPeerError(why: string): void;
  onNamed(name: string): void;
}

/** How many tasks of a HELLO are looked up. */
const MAX_LOOKUPS = 64;

/**
 * The worker as the core sees it. A raw connection is known by its address, which changes with each connection. If its
 * HELLO lists a task that is kept for a disconnected worker of the same host, as after a restart of the broker, it is
 * that worker.
 */
export function profileOf({ core, id, node, profile }: WorkerConnection<never>, hello?: Hello): TaskWorkerProfile {
  const common = { ...profile, ...FUQ_WORKER };
  if (node !== undefined) {
    const { uniqueName: name, tags } = node.info;
    return { ...common, id, session: SessionId(name), name, tags, resumable: true };
  }
  const pairs = (hello?.running ?? []).slice(0, MAX_LOOKUPS).map(pairOf);
  const own = absentOwnerOf(core, id, pairs) ?? id;
  const name = own.slice(own.indexOf(":") + 1);
  return { ...common, id: own, session: SessionId(own), name, tags: [], resumable: false };
}

/** The disconnected worker of the same host for which one of these tasks is kept. */
export function absentOwnerOf(core: Core, id: WorkerId, pairs: readonly TaskPair[]): WorkerId | undefined {
  if (pairs.length === 0) return undefined;
  const host = id.slice(0, id.lastIndexOf(":") + 1);
  const isHeldBy = (owner: WorkerId, pair: TaskPair): boolean =>
    core.claimOf(owner, JobId(pair.jobId), indexOfPair(core, pair) ?? -1) !== undefined;
  return core
    .workers()
    .filter(({ connected, profile }) => !connected && profile.id.startsWith(host))
    .find(({ profile }) => pairs.some((pair) => isHeldBy(profile.id, pair)))?.profile.id;
}

interface FuqTaskFields {
  /** Its number in fuq. */
  readonly task: number;
  /** The content of its JOB. A foreign task has none. */
  readonly description?: Task;
  /** Version 1: its JOB left no slot free. */
  tookLastSlot?: boolean;
}

export type FuqTask = AssignedTask<FuqTaskFields>;

export class ForemanTasks extends AssignedTasks<FuqTaskFields> {
  readonly capacity = new SlotCapacity();
  readonly #onPending: () => void;
  readonly #missingMs: number;
  #pause: NodeJS.Timeout | undefined;
  #answerTimer: NodeJS.Timeout | undefined;

  /** `missingMs`: how long to wait for the UPDATE of a task that the worker no longer lists. */
  constructor(core: Core, port: WorkerPort, missingMs: number, onPending: () => void) {
    super(core, port);
    this.#missingMs = missingMs;
    this.#onPending = onPending;
  }

  get joined(): boolean {
    return this.id !== undefined;
  }

  get counts(): { readonly nproc: number; readonly nrun: number } {
    return { nproc: Math.max(0, this.capacity.slots - this.usedSlots), nrun: this.usedSlots };
  }

  override close(): void {
    super.close();
    clearTimeout(this.#pause);
    clearTimeout(this.#answerTimer);
  }

  protected describe(job: Job, index: TaskIndex) {
    const description = toFuqTask(job, index);
    return description && { name: pairKey(pairOf(description)), task: description.task, description };
  }

  /** At most COUNT_LIMIT: a client of version 1 may name more. */
  protected slots(): number {
    const usable = this.capacity.usable - this.count("foreign") + this.count("missing");
    return this.#waits ? this.claimedCount : Math.min(COUNT_LIMIT, Math.max(this.claimedCount, usable));
  }

  get #waits(): boolean {
    return this.capacity.paused || this.capacity.hung;
  }

  protected override mayTake(): boolean {
    return !this.#waits && this.usedSlots + this.count("unsent") <= this.capacity.usable;
  }

  protected pending(): void {
    this.#onPending();
  }

  protected override ended(task: FuqTask): void {
    this.#record(task, undefined, () => {});
  }

  /** The pairs of a CANCEL for these tasks. One pair stands for all of several tasks of a job. */
  cancelPairs(gone: readonly FuqTask[]): readonly TaskPair[] {
    const sent = this.all().filter(({ state }) => state !== "unsent");
    const countOf = (job: JobId, tasks: readonly FuqTask[]): number => tasks.filter((task) => task.job === job).length;
    const jobs = [...new Set(gone.map(({ job }) => job))];
    const whole = jobs.filter((job) => countOf(job, gone) > 1 && countOf(job, gone) === countOf(job, sent));
    const pairs = gone.filter(({ job }) => !whole.includes(job)).map(assignedPair);
    return [...pairs, ...whole.map((jobId) => ({ jobId, task: ALL_TASKS }))];
  }

  // Messages of the worker

  /** The task and the unsent ones return to the queue. The worker gets no task for a moment. */
  refused(task: FuqTask, free: number): void {
    if (!this.has(task)) return;
    const { withheld } = this.capacity;
    const pauseMs = this.capacity.refused(free);
    this.giveBack([task]);
    this.drain();
    if (this.capacity.withheld !== withheld) this.#publishRemark();
    clearTimeout(this.#pause);
    this.#pause = setTimeout(() => {
      this.capacity.paused = false;
      this.publishSlots();
    }, pauseMs);
  }

  /** The worker owes an answer. If none comes it hangs: unsent tasks return to the queue, and it gets no others. */
  awaitAnswer(ms: number): void {
    this.#answerTimer ??= setTimeout(() => {
      this.capacity.hung = true;
      this.drain();
    }, ms);
  }

  answered(): void {
    clearTimeout(this.#answerTimer);
    this.#answerTimer = undefined;
    if (!this.capacity.hung) return;
    this.capacity.hung = false;
    this.publishSlots();
  }

  /** For `explain`. */
  #publishRemark(): void {
    const profile = this.id && this.core.worker(this.id)?.profile;
    const { withheld } = this.capacity;
    const remark = `refuses tasks while it says that it has a slot free, so ${withheld} of its slots is left alone`;
    if (profile !== undefined) this.core.workerChanged({ ...profile, remark });
  }

  /** `recorded` is called when the result is durable, or does not count. */
  updated(update: Update, recorded: () => void): void {
    const known = this.get(pairKey(update));
    // Also a task that ended after its worker was lost. No other: anyone can send an UPDATE to a raw listener.
    const task = known === undefined || known.state === "unsent" ? this.#reclaimPair(update, true) : known;
    if (task === undefined) {
      recorded();
      return;
    }
    const { state } = task;
    // A JOB was sent again, so the UPDATE is about an earlier run. The worker may start the task again.
    if (state === "sent") this.setState(task, "foreign");
    else this.remove(task);
    this.publishSlots();
    if (state === "foreign") recorded();
    else this.#record(task, update, recorded);
  }

  /** Compares the tasks that the worker lists with those that it should have. Without a list, no task runs. */
  reconcileHello(hello: Hello | undefined): void {
    const running = (hello?.running ?? []).map(pairOf);
    if (hello?.numProcs !== undefined) this.capacity.slots = hello.numProcs + running.length;
    else if (this.capacity.slots <= running.length) this.capacity.guess(running.length);
    this.#compare(running);
  }

  /** The same with counts only. Returns true if they determine the tasks: all that it should have, or none. */
  reconcileCounts({ nproc, nrun }: Pick<Ok, "nproc" | "nrun">): boolean {
    const known = this.all().filter(({ state }) => state === "running" || state === "foreign");
    this.capacity.slots = nproc + nrun;
    this.#compare(nrun === 0 ? [] : known.map(assignedPair));
    return nrun === 0 || nrun >= known.length;
  }

  #compare(running: readonly TaskPair[]): void {
    const listed = new Set(running.map((pair) => this.#confirmListed(pair)));
    for (const task of this.all()) {
      if (listed.has(task)) continue;
      if (task.state === "foreign") this.remove(task);
      else if (task.state === "running") {
        this.setState(task, "missing");
        this.settleAfter(task, this.#missingMs);
      }
    }
    this.publishSlots();
  }

  #confirmListed(pair: TaskPair): FuqTask {
    const name = pairKey(pair);
    const known = this.get(name);
    if (known !== undefined) {
      if (known.state === "missing") clearTimeout(known.settleTimer);
      if (known.state === "missing" || known.state === "unsent") this.setState(known, "running");
      if (known.state === "running") this.watchLimit(known);
      return known;
    }
    // If no other worker has the task, it stays here. If one has, or the task has ended, it is cancelled here.
    const own = this.#reclaimPair(pair);
    if (own === undefined) return this.addForeign({ name, task: pair.task }, JobId(pair.jobId));
    this.watchLimit(own);
    return own;
  }

  #reclaimPair(pair: TaskPair, crashedOnly = false): FuqTask | undefined {
    const index = indexOfPair(this.core, pair);
    return index === undefined ? undefined : this.reclaim(JobId(pair.jobId), index, crashedOnly);
  }

  #record(task: FuqTask, update: Update | undefined, recorded: () => void): void {
    if (this.id !== undefined) recordOutcome(this.core, this.id, outcomeOf(task, update), recorded);
  }
}

export const assignedPair = ({ job, task }: FuqTask): TaskPair => ({ jobId: job, task });
