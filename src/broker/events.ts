/**
 * Recent events, for clients that follow. A ring buffer in memory: a follower names its last event and gets the later
 * ones. If the ring no longer has them, the follower gets `missed` and must read the state again.
 * The number of an event always rises: the broker's epoch, then a counter.
 */
import { now } from "../base/clock.js";
import { type Attempt, type JobId, type TaskIndex, taskKey, type WorkerId } from "../model/ids.js";
import type { Counters, JobEnd } from "../model/job.js";
import type { TaskEnd } from "../model/outcome.js";
import { ALL_TASKS, NO_RANGES, type Ranges, rangesOf } from "../model/ranges.js";
import type { OutputChunk, Write, WriteResult } from "../model/store.js";

/** The pause as a multiple of the round's time: at most a fifth of the time is spent on followers. */
const PAUSE_FACTOR = 4;
/** The cost of a woken follower, which then answers its client. */
const ANSWER_MS = 0.025;
const MAX_PAUSE_MS = 1_000;

/**
 * Wakes followers after a change: once for all changes of a turn of the event loop, and with a pause after each round
 * in proportion to its cost. So followers take a bounded part of the broker's time: if there are many, they hear of
 * changes later.
 *   idle       the next change schedules a round
 *   scheduled  a round follows at the end of this turn
 *   pausing    a round was made; changes meanwhile schedule the next one after the pause
 */
class Followers {
  readonly #wakes = new Set<() => void>();
  #state: "idle" | "scheduled" | "pausing" = "idle";
  #changed = false;

  get count(): number {
    return this.#wakes.size;
  }

  /** Returns the function that removes it. */
  add(wake: () => void): () => void {
    this.#wakes.add(wake);
    return () => this.#wakes.delete(wake);
  }

  notify(): void {
    this.#changed = true;
    if (this.#state !== "idle" || this.#wakes.size === 0) return;
    this.#state = "scheduled";
    setImmediate(() => this.#round());
  }

  #round(): void {
    this.#changed = false;
    const began = performance.now();
    const woken = [...this.#wakes];
    for (const wake of woken) wake();
    const costMs = performance.now() - began + woken.length * ANSWER_MS;
    const pauseMs = Math.min(MAX_PAUSE_MS, costMs * PAUSE_FACTOR);
    this.#state = "pausing";
    const resume = (): void => {
      this.#state = "idle";
      if (this.#changed) this.notify();
    };
    // A timer would let a single follower wait for a millisecond.
    if (pauseMs < 1) setImmediate(resume);
    else setTimeout(resume, pauseMs).unref();
  }
}

export type EventBody =
  | { readonly kind: "job-added"; readonly job: JobId; readonly name: string; readonly count: number }
  | { readonly kind: "job-edited"; readonly job: JobId; readonly name: string; readonly count: number }
  | { readonly kind: "job-held" | "job-released" | "job-due" | "job-removed"; readonly job: JobId }
  | { readonly kind: "job-cancelled"; readonly job: JobId; readonly tasks: Ranges; readonly reason?: string }
  | { readonly kind: "job-rerun"; readonly job: JobId; readonly count: number }
  | { readonly kind: "job-ended"; readonly job: JobId; readonly state: JobEnd; readonly counters: Counters }
  /** `truncated`: there are too many ranges to list. The counters are complete. */
  | {
      readonly kind: "tasks-ended";
      readonly job: JobId;
      readonly succeeded: Ranges;
      readonly failed: Ranges;
      readonly cancelled: Ranges;
      readonly truncated: boolean;
      readonly counters: Counters;
    }
  /** `progress` is JSON. */
  | {
      readonly kind: "task-progress";
      readonly job: JobId;
      readonly index: TaskIndex;
      readonly number: number;
      readonly attempt: Attempt;
      readonly progress: string;
    }
  | {
      readonly kind: "worker-joined" | "worker-disconnected" | "worker-left" | "worker-draining" | "worker-undrained";
      readonly worker: WorkerId;
      readonly name: string;
    }
  | { readonly kind: "pool-paused" | "pool-resumed"; readonly pool: string }
  | {
      readonly kind: "schedule-set" | "schedule-removed" | "schedule-paused" | "schedule-resumed";
      readonly schedule: string;
    }
  /** `due`: the scheduled time. */
  | { readonly kind: "schedule-run"; readonly schedule: string; readonly due: number; readonly job?: JobId }
  | { readonly kind: "schedule-skipped"; readonly schedule: string; readonly due: number; readonly reason: string }
  | { readonly kind: "allocator-log"; readonly allocator: string; readonly message: string }
  | { readonly kind: "broker-halted"; readonly code: string; readonly message: string }
  | { readonly kind: "broker-resumed" };

export type BrokerEvent = EventBody & { readonly id: number; readonly at: number };

interface EventPage {
  readonly events: readonly BrokerEvent[];
  /** The `after` of the next page. */
  readonly last: number;
  /** Events from `after` up to this one are lost. */
  readonly missedUntil?: number;
}

export const EVENTS_KEPT = 10_000;
/** Ranges of tasks, in all events together. */
const MAX_RANGES = 200_000;
const PER_EPOCH = 2 ** 32;

export class Events {
  readonly #events: BrokerEvent[] = [];
  readonly #most: number;
  readonly #listeners = new Set<(event: BrokerEvent) => void>();
  /** Woken a moment after an event. */
  readonly followers = new Followers();
  /** The event before the first one in the ring. */
  #lastDropped: number;
  #last: number;
  #rangeCount = 0;
  /** Where the ring begins in the array, which is not cut at each event. */
  #start = 0;

  constructor(epoch: number, most = EVENTS_KEPT) {
    this.#most = most;
    this.#last = epoch * PER_EPOCH;
    this.#lastDropped = this.#last;
  }

  get last(): number {
    return this.#last;
  }

  add(body: EventBody): void {
    const event: BrokerEvent = { id: ++this.#last, at: now(), ...body };
    this.#events.push(event);
    this.#rangeCount += rangeCountOf(event);
    while (this.#events.length - this.#start > this.#most || this.#rangeCount > MAX_RANGES) this.#dropFirst();
    for (const listener of this.#listeners) listener(event);
    this.followers.notify();
  }

  onAdded(listener: (event: BrokerEvent) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** The later events that the ring still has; 0 for all. */
  after(after: number, limit: number, job?: number): EventPage {
    const known = after === 0 || (after >= this.#lastDropped && after <= this.#last);
    let at = this.#start + (known && after !== 0 ? after - this.#lastDropped : 0);
    const events: BrokerEvent[] = [];
    let last = after === 0 || !known ? this.#lastDropped : after;
    for (; at < this.#events.length && events.length < limit; at++) {
      const event = this.#events[at];
      if (event === undefined) break;
      last = event.id;
      if (job === undefined || ("job" in event && event.job === job)) events.push(event);
    }
    return known ? { events, last } : { events, last, missedUntil: this.#lastDropped };
  }

  #dropFirst(): void {
    const first = this.#events[this.#start];
    if (first === undefined) return;
    this.#lastDropped = first.id;
    this.#rangeCount -= rangeCountOf(first);
    this.#start++;
    if (this.#start < this.#most) return;
    this.#events.splice(0, this.#start);
    this.#start = 0;
  }
}

function rangeCountOf(event: EventBody): number {
  if (event.kind === "job-cancelled") return event.tasks.length;
  if (event.kind !== "tasks-ended") return 0;
  return event.succeeded.length + event.failed.length + event.cancelled.length;
}

// The events of a commit. They are published when it is durable.

/** Ranges listed in one event. Beyond that only the counters are complete. */
const MAX_LISTED_RANGES = 256;

/** The tasks of one job that ended in one commit: a single event. */
interface JobProgress {
  readonly indices: Readonly<Record<TaskEnd, number[]>>;
  counters: Counters | undefined;
  ended: JobEnd | undefined;
  /** False for writes that only move tasks. */
  countersChanged: boolean;
}

export function eventsOf(writes: readonly Write[], results: readonly WriteResult[]): EventBody[] {
  const events: EventBody[] = [];
  const ends = new Map<JobId, JobProgress>();
  results.forEach((result, i) => {
    const write = writes[i];
    if (write === undefined) return;
    const event = plainEvent(write, result);
    if (event !== undefined) events.push(event);
    const replaced = result.op === "submit" ? result.replaced : undefined;
    if (replaced === undefined) {
      collectEnds(ends, write, result);
      return;
    }
    // As if it had been cancelled by a write of its own.
    const cancel = { op: "cancel", job: replaced.job, ranges: [ALL_TASKS] } as const;
    events.push({
      kind: "job-cancelled",
      job: replaced.job,
      tasks: [],
      reason: `replaced by job ${result.op === "submit" ? result.job.id : ""}`,
    });
    collectEnds(ends, cancel, { op: "cancel", ...(replaced.progress && { progress: replaced.progress }) });
  });
  for (const [job, progress] of ends) events.push(...endEvents(job, progress));
  return events;
}

function plainEvent(write: Write, result: WriteResult): EventBody | undefined {
  if (result.op === "submit") {
    const { id, name, count } = result.job;
    return { kind: "job-added", job: id, name, count };
  }
  if (write.op === "edit" && result.op === "edit" && result.job !== undefined && result.refused === undefined) {
    const { id, name, count } = result.job;
    return { kind: "job-edited", job: id, name, count };
  }
  if (write.op === "hold") return { kind: write.held ? "job-held" : "job-released", job: write.job };
  if (write.op === "cancel") {
    const tasks = write.ranges.slice(0, MAX_LISTED_RANGES);
    return {
      kind: "job-cancelled",
      job: write.job,
      tasks,
      ...(write.reason === undefined ? {} : { reason: write.reason }),
    };
  }
  if (write.op === "remove" && result.op === "remove" && result.removed) return { kind: "job-removed", job: write.job };
  if (write.op === "rerun" && result.op === "rerun" && result.count > 0) {
    return { kind: "job-rerun", job: write.job, count: result.count };
  }
  return undefined;
}

function collectEnds(ends: Map<JobId, JobProgress>, write: Write, result: WriteResult): void {
  const job =
    result.op === "release" ? result.job : "job" in write && typeof write.job === "number" ? write.job : undefined;
  if (job === undefined || !("progress" in result) || result.progress === undefined) return;
  let progress = ends.get(job);
  if (progress === undefined) {
    progress = {
      indices: { succeeded: [], failed: [], cancelled: [] },
      counters: undefined,
      ended: undefined,
      countersChanged: false,
    };
    ends.set(job, progress);
  }
  progress.counters = result.progress.counters;
  progress.ended = result.progress.ended ?? progress.ended;
  progress.countersChanged ||= write.op !== "replace" || write.cancelled > 0;
  if (write.op !== "settle" || (result.op === "settle" && result.lost)) return;
  for (const { index, state } of write.results) progress.indices[state].push(index);
}

function endEvents(job: JobId, { indices, counters, ended, countersChanged }: JobProgress): EventBody[] {
  if (counters === undefined || !(countersChanged || ended !== undefined)) return [];
  const events: EventBody[] = [];
  let left = MAX_LISTED_RANGES;
  let truncated = false;
  const listed = (state: TaskEnd): Ranges => {
    if (indices[state].length === 0) return NO_RANGES;
    const all = rangesOf(indices[state].sort((a, b) => a - b));
    const some = all.slice(0, left);
    left -= some.length;
    truncated ||= some.length < all.length;
    return some;
  };
  const [failed, cancelled, succeeded] = [listed("failed"), listed("cancelled"), listed("succeeded")];
  events.push({ kind: "tasks-ended", job, succeeded, failed, cancelled, truncated, counters });
  if (ended !== undefined) events.push({ kind: "job-ended", job, state: ended, counters });
  return events;
}

/** Callbacks for updates: the end of a job, the output of a task. */
export class Watchers<Key, Value> {
  readonly #listeners = new Map<Key, Set<(update: Value) => void>>();

  get size(): number {
    return this.#listeners.size;
  }

  keys(): Key[] {
    return [...this.#listeners.keys()];
  }

  /** Calls `listener` at every update. Returns the function that removes it. */
  watch(key: Key, listener: (update: Value) => void): () => void {
    const watchers = this.#listeners.get(key) ?? new Set();
    this.#listeners.set(key, watchers);
    watchers.add(listener);
    return () => {
      watchers.delete(listener);
      if (watchers.size === 0 && this.#listeners.get(key) === watchers) this.#listeners.delete(key);
    };
  }

  notify(key: Key, update: Value): void {
    const listeners = this.#listeners.get(key);
    if (listeners !== undefined) for (const listener of [...listeners]) listener(update);
  }
}

/** By `taskKey`: output was stored, or the task's attempt has ended. */
export class TaskUpdates extends Watchers<string, undefined> {
  outputStored(chunks: readonly OutputChunk[]): void {
    if (this.size > 0) for (const { job, index } of chunks) this.notify(taskKey(job, index), undefined);
  }

  committed(writes: readonly Write[]): void {
    if (this.size === 0) return;
    for (const write of writes) {
      const ended = write.op === "settle" ? write.results : write.op === "replace" ? write.earlierAttempts : [];
      for (const { index } of ended) if ("job" in write) this.notify(taskKey(write.job as JobId, index), undefined);
    }
  }
}

/** Resolves with the first update, or with undefined after the timeout or when `signal` aborts. */
export function waitForNext<Value>(
  subscribe: (listener: (update: Value) => void) => () => void,
  timeoutMs: number | undefined,
  signal: AbortSignal,
): Promise<Value | undefined> {
  return new Promise((resolve) => {
    const end = (update?: Value): void => {
      unsubscribe();
      clearTimeout(timer);
      signal.removeEventListener("abort", stop);
      resolve(update);
    };
    const stop = (): void => end();
    const timer = timeoutMs === undefined ? undefined : setTimeout(stop, timeoutMs);
    const unsubscribe = subscribe(end);
    signal.addEventListener("abort", stop, { once: true });
    if (signal.aborted) stop();
  });
}
