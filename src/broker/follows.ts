/**
 * Clients that follow a job. Each gets every ended task once, with its small output, then the job's end. Tasks that end
 * are sent from memory, as this broker commits them. The store has those that ended before, at another broker, or
 * faster than the client reads. In the last case the queue in memory is dropped, so a slow client needs bounded memory.
 *
 *   reading   ended tasks that the client lacks are read from the store; new commits wait in the queue
 *   live      tasks are sent as their results are committed
 *   ended     the job has ended and all of its tasks were sent
 *
 * A client that reconnects names the tasks that it has. So the broker keeps no position, and another broker of the
 * group can continue.
 */
import { asLaboroError, LaboroError } from "../base/errors.js";
import { STARTED } from "../dispatch/state.js";
import type { Attempt, JobId, TaskIndex } from "../model/ids.js";
import { type Counters, finishedCount, type Job, type JobEnd } from "../model/job.js";
import { type EndedTask, type JobProgress, LISTED_VALUE, type RunningTask, type TaskResult } from "../model/outcome.js";
import { EndedTasks, type Ranges } from "../model/ranges.js";
import type { OutputChunk, Write, WriteResult } from "../model/store.js";
import { taskNumber } from "../model/task-numbers.js";
import type { Core } from "./core.js";
import type { EventBody } from "./events.js";

/** Tasks that may be sent to a client before it has read any. */
const FOLLOW_WINDOW = 1_000;
/** Ended tasks in the queue of one client, and the bytes of their output. */
const QUEUE_LIMIT = 1_000;
const QUEUE_BYTES = 512 * 1024;
const PAGE = 250;
const WITH_SMALL_BYTES = { withOutput: true, maxValue: LISTED_VALUE };
/** How often tasks at other brokers are looked up. No event tells that they have started. */
const PEERS_MS = 500;

interface FollowOptions {
  readonly job: JobId;
  /** Tasks that the client has. */
  readonly has: Ranges;
  /** If false, only the end of the job is reported. */
  readonly tasks: boolean;
  /** Also report running tasks that have output. */
  readonly live: boolean;
  readonly send: (progress: JobProgress) => void;
  /** Called when it ends: with an error, or because the job has ended. */
  readonly onEnd: (error?: LaboroError) => void;
}

/** What the session of its client controls. */
export type FollowControl = Pick<Follow, "credit" | "end">;

export class Follows {
  readonly #core: Core;
  readonly #byJob = new Map<JobId, Set<Follow>>();

  constructor(core: Core) {
    this.#core = core;
  }

  follow(options: FollowOptions): FollowControl {
    const { job, tasks, live } = options;
    if (!tasks && !live && this.#core.state.jobs.has(job)) return this.#followEnd(options);
    const followers = this.#byJob.get(job) ?? new Set();
    this.#byJob.set(job, followers);
    const follow = new Follow(this.#core, options, () => {
      followers.delete(follow);
      if (followers.size === 0 && this.#byJob.get(job) === followers) this.#byJob.delete(job);
    });
    followers.add(follow);
    void follow.begin();
    return follow;
  }

  /** Reports only the end of an open job, for clients with many small jobs. */
  #followEnd({ job, send, onEnd }: FollowOptions): FollowControl {
    const unwatch = this.#core.jobs.endWatchers.watch(job, (ended) => {
      send({ tasks: [], ended });
      end();
    });
    const end = (): void => {
      unwatch();
      onEnd();
    };
    return { credit: () => {}, end };
  }

  committed(writes: readonly Write[], results: readonly WriteResult[]): void {
    if (this.#byJob.size === 0) return;
    const cancels = new Set<JobId>();
    for (const write of writes) if (write.op === "cancel") cancels.add(write.job);
    for (const [i, write] of writes.entries()) {
      if (write.op !== "settle") continue;
      const followers = this.#byJob.get(write.job);
      const result = results[i];
      if (followers === undefined || (result?.op === "settle" && result.lost)) continue;
      // The store may have recorded some of them as cancelled.
      if (cancels.has(write.job)) for (const follow of followers) follow.readAgain();
      else for (const follow of followers) follow.add(write.results);
    }
  }

  onEvent(event: EventBody): void {
    if (!("job" in event)) return;
    for (const follow of this.#byJob.get(event.job) ?? []) follow.onEvent(event);
  }

  /** Output of a running task was stored. */
  outputStored(chunk: OutputChunk): void {
    for (const follow of this.#byJob.get(chunk.job) ?? []) follow.addRunning([chunk]);
  }
}

/** Without large values: clients read those when they need them. */
function listed(result: TaskResult): TaskResult {
  if (result.value === undefined || result.value.length <= LISTED_VALUE) return result;
  const { value, ...rest } = result;
  return { ...rest, valueBytes: value.length };
}

class Follow {
  readonly #core: Core;
  readonly #options: FollowOptions;
  readonly #remove: () => void;
  readonly #sent: EndedTasks;
  /** Tasks, with their attempts, that were announced as running. */
  readonly #announced = new Map<TaskIndex, Attempt>();
  #queue: TaskResult[] = [];
  /** Output bytes since the queue was last empty. */
  #queuedBytes = 0;
  #running: RunningTask[] = [];
  #credit = FOLLOW_WINDOW;
  /** The store has tasks that were neither sent nor queued. */
  #behind = true;
  #reading = true;
  #scheduled = false;
  #counters: Counters | undefined;
  #held: boolean | undefined;
  #ended: JobEnd | undefined;
  #job: Job | undefined;
  #over = false;
  #unwatch: () => void;
  #peerTimer: NodeJS.Timeout | undefined;

  constructor(core: Core, options: FollowOptions, remove: () => void) {
    this.#core = core;
    this.#options = options;
    this.#remove = remove;
    this.#sent = new EndedTasks(options.has);
    this.#unwatch = core.jobs.endWatchers.watch(options.job, (end) => this.#jobEnded(end));
  }

  async begin(): Promise<void> {
    const { job: id, tasks, live } = this.#options;
    const { state, store, jobs } = this.#core;
    const open = state.jobs.get(id);
    // Read before the first await: results committed from now on are queued, earlier ones are in the store.
    const endedBefore = open === undefined ? undefined : jobs.countersOf(id);
    try {
      const lately = open === undefined && !tasks ? state.recentEnds.get(id) : undefined;
      if (lately !== undefined) {
        // Not before the caller has this object.
        await Promise.resolve();
        if (!this.#over) this.#options.send({ tasks: [], ended: lately });
        this.end();
        return;
      }
      this.#job = open?.job ?? (await store.job(id)) ?? (await this.#core.submitted(id));
      if (this.#job === undefined) throw new LaboroError("LABORO_NO_SUCH_JOB", `there is no job ${id}`);
      this.#ended ??= open === undefined ? this.#job.ended?.state : undefined;
      if (this.#ended === undefined && open === undefined) await this.#core.loadJobs([id]);
    } catch (cause) {
      this.end(asLaboroError(cause));
      return;
    }
    if (this.#over) return;
    const counters = jobs.countersOf(id) ?? this.#job.counters;
    const held = state.jobs.get(id)?.held ?? false;
    if (tasks) {
      this.#counters ??= counters;
      if (held) this.#held ??= true;
    }
    this.#behind = tasks && (store.shared || endedBefore === undefined || finishedCount(endedBefore) > 0);
    this.#reading = false;
    if (live && this.#ended === undefined) {
      this.#announceRunning();
      if (this.#core.peers !== undefined) this.#watchPeers();
    }
    this.#flush();
  }

  /** The client has read this many tasks. */
  credit(tasks: number): void {
    this.#credit = Math.min(FOLLOW_WINDOW, this.#credit + tasks);
    this.#schedule();
  }

  add(results: readonly TaskResult[]): void {
    if (!this.#options.tasks) return;
    for (const result of results) {
      this.#queue.push(result);
      if (result.output !== undefined) this.#queuedBytes += result.outputBytes;
      this.#queuedBytes += result.value?.length ?? 0;
    }
    if (this.#queue.length > QUEUE_LIMIT || this.#queuedBytes > QUEUE_BYTES) this.readAgain();
    this.#schedule();
  }

  readAgain(): void {
    if (!this.#options.tasks) return;
    this.#queue = [];
    this.#queuedBytes = 0;
    this.#behind = true;
    this.#schedule();
  }

  onEvent(event: EventBody): void {
    if (event.kind === "job-removed") {
      this.end(new LaboroError("LABORO_NO_SUCH_JOB", `there is no job ${this.#options.job}`));
      return;
    }
    if (!this.#options.tasks) return;
    if (event.kind === "job-held" || event.kind === "job-released") this.#held = event.kind === "job-held";
    if (event.kind === "tasks-ended") {
      this.#counters = event.counters;
      // At another broker: only the counters are known.
      const listed = event.succeeded.length + event.failed.length + event.cancelled.length;
      if (event.truncated && listed === 0) this.readAgain();
    }
    this.#schedule();
  }

  addRunning(tasks: readonly Pick<RunningTask, "index" | "attempt">[]): void {
    if (!this.#options.live || this.#job === undefined) return;
    for (const { index, attempt } of tasks) {
      if (this.#announced.get(index) === attempt) continue;
      this.#announced.set(index, attempt);
      this.#running.push({ index, attempt, number: this.#numberOf(this.#job, index) });
    }
    if (this.#running.length > 0) this.#schedule();
  }

  end(error?: LaboroError): void {
    if (this.#over) return;
    this.#over = true;
    this.#unwatch();
    clearInterval(this.#peerTimer);
    this.#remove();
    this.#options.onEnd(error);
  }

  #jobEnded(end: JobEnd): void {
    this.#ended = end;
    // Ends at other brokers may not have been reported.
    if (this.#core.store.shared) this.readAgain();
    this.#schedule();
  }

  /** All changes of a turn of the event loop are sent together. */
  #schedule(): void {
    if (this.#scheduled || this.#reading || this.#over) return;
    this.#scheduled = true;
    queueMicrotask(() => {
      this.#scheduled = false;
      this.#flush();
    });
  }

  #flush(): void {
    if (this.#over || this.#reading) return;
    if (this.#behind && this.#credit > 0) {
      void this.#read();
      return;
    }
    // What was read from the store meanwhile is in the queue, too. It is not sent again and uses no credit.
    do {
      const now = this.#credit < this.#queue.length ? this.#queue.splice(0, this.#credit) : this.#queue;
      if (now === this.#queue) {
        this.#queue = [];
        this.#queuedBytes = 0;
      }
      const isLast = this.#ended !== undefined && this.#queue.length === 0 && !this.#behind;
      this.#send(now, isLast);
      if (isLast) this.end();
    } while (this.#queue.length > 0 && this.#credit > 0 && !this.#over);
  }

  async #read(): Promise<void> {
    this.#reading = true;
    this.#behind = false;
    try {
      let from: number | undefined = this.#sent.firstMissing(0);
      while (from !== undefined && !this.#over) {
        const page = await this.#core.store.results(this.#options.job, { from, limit: PAGE, ...WITH_SMALL_BYTES });
        const unsent = page.results.filter((one) => !this.#sent.has(one));
        this.#send(unsent.slice(0, this.#credit), false);
        if (this.#credit === 0 && (unsent.length > 0 || page.next !== undefined)) {
          this.#behind = true;
          break;
        }
        from = page.next === undefined ? undefined : this.#sent.firstMissing(page.next);
      }
    } catch (cause) {
      this.end(asLaboroError(cause));
    }
    this.#reading = false;
    this.#flush();
  }

  #send(results: readonly TaskResult[], isLast: boolean): void {
    const job = this.#job;
    if (this.#over || job === undefined) return;
    const tasks: EndedTask[] = [];
    for (const result of results) {
      if (this.#sent.has(result)) continue;
      this.#sent.add(result);
      this.#announced.delete(result.index);
      tasks.push({ number: this.#numberOf(job, result.index), ...listed(result) });
    }
    this.#credit -= tasks.length;
    const running = this.#running.length === 0 ? {} : { running: this.#running };
    const counters = this.#counters === undefined ? {} : { counters: this.#counters };
    const held = this.#held === undefined ? {} : { held: this.#held };
    const ended = isLast && this.#ended !== undefined ? { ended: this.#ended } : {};
    const progress: JobProgress = { tasks, ...running, ...counters, ...held, ...ended };
    this.#running = [];
    this.#counters = undefined;
    this.#held = undefined;
    if (tasks.length > 0 || Object.keys(progress).length > 1) this.#options.send(progress);
  }

  /** An open job may have got more tasks. */
  #numberOf(job: Job, index: TaskIndex): number {
    return taskNumber(this.#core.state.jobs.get(job.id)?.job ?? job, index);
  }

  #announceRunning(): void {
    for (const { first, attempt, tasks } of this.#core.state.jobs.get(this.#options.job)?.claims ?? [])
      this.addRunning(
        Array.from(tasks, (state, at) => ({ state, index: first + at, attempt })).filter(
          ({ state }) => state === STARTED,
        ),
      );
  }

  #watchPeers(): void {
    const ask = async (): Promise<void> => {
      const input = { job: this.#options.job, from: 0, limit: PAGE };
      const found = await this.#core.peers?.askAll<{ tasks: RunningTask[] }>("peer.running", input);
      for (const { answer } of found ?? []) this.addRunning(answer.tasks);
    };
    const askAgain = (): void => void ask().catch(() => {});
    this.#peerTimer = setInterval(askAgain, PEERS_MS);
    askAgain();
  }
}
