/**
 * Recent events, for clients that follow. A ring buffer in memory: a follower gives the last event that it has seen and gets those after
 * it. If the ring no longer has them, the follower gets `missed` and must read the state again.
 *
 * An event's number always rises: the broker's epoch, then a counter.
 */

import { now } from "../base/clock.js";
import type { Attempt, JobId, TaskIndex, WorkerId } from "../model/ids.js";
import type { Counters, JobEnd } from "../model/job.js";
import type { Ranges } from "../model/ranges.js";
import { Followers } from "./followers.js";

export type EventBody =
  | { readonly kind: "job-added"; readonly job: JobId; readonly name: string; readonly count: number }
  | { readonly kind: "job-held" | "job-released" | "job-due" | "job-removed"; readonly job: JobId }
  | { readonly kind: "job-cancelled"; readonly job: JobId; readonly tasks: Ranges; readonly reason?: string }
  | { readonly kind: "job-rerun"; readonly job: JobId; readonly count: number }
  | { readonly kind: "job-ended"; readonly job: JobId; readonly state: JobEnd; readonly counters: Counters }
  /** `truncated`: too many ranges to list all; the counters are complete. */
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
      readonly kind: "worker-joined" | "worker-disconnected" | "worker-left" | "worker-draining";
      readonly worker: WorkerId;
      readonly name: string;
    }
  | {
      readonly kind: "schedule-set" | "schedule-removed" | "schedule-paused" | "schedule-resumed";
      readonly schedule: string;
    }
  /** `due`: the point in time that it is for. */
  | { readonly kind: "schedule-run"; readonly schedule: string; readonly due: number; readonly job?: JobId }
  | { readonly kind: "schedule-skipped"; readonly schedule: string; readonly due: number; readonly reason: string }
  | { readonly kind: "broker-halted"; readonly code: string; readonly message: string }
  | { readonly kind: "broker-resumed" };

export type BrokerEvent = EventBody & { readonly id: number; readonly at: number };

export interface EventPage {
  readonly events: readonly BrokerEvent[];
  /** Give this as `after` for the next page. */
  readonly last: number;
  /** Events after `after`, up to this one, are lost. */
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
  /** Clients; they are woken a moment after an event. */
  readonly followers = new Followers();
  /** The event before the first that is kept. */
  #lastDropped: number;
  #last: number;
  #rangeCount = 0;
  /** Where the ring begins in the array, which is cut now and then, not at each event. */
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
    for (const listener of [...this.#listeners]) listener(event);
    this.followers.notify();
  }

  onAdded(listener: (event: BrokerEvent) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** The events after this one, as far as they are kept; 0 for all. */
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
