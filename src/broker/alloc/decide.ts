/**
 * The life of allocations. Pure: the state of an allocator, the answers of the batch system, the workers and the time
 * are arguments. The states of an allocation:
 *
 *   asking    recorded, before the batch system is asked. A broker that ends meanwhile finds the job again by its script
 *   queued    the batch system has it; again after a requeue
 *   running   its worker may join
 *   ended     for any reason
 *
 * Failures and troubles are distinguished. A failure is the allocator's own: sbatch refuses it, or an allocation ends
 * without use. Then one allocation at a time is requested, with growing pauses, until one has proven itself; after some
 * failures the allocator is paused, which is the longest wait. A trouble is the batch system's: it does not answer, its
 * queue is full, or it takes the nodes of an allocation away before a worker joins. It delays, and never pauses.
 */
import { shortDuration } from "../../base/format.js";
import { type Allocation, type Allocator, type AllocatorState, isLive, type LogKind } from "../../model/allocation.js";
import type { BatchError, QueueEntry } from "./batch-manager.js";

export interface AllocationRules {
  /** How often the batch system is queried while it has allocations. */
  readonly pollMs: number;
  /** Queued allocations that nothing waits for are cancelled after this time. */
  readonly unneededMs: number;
  /** A worker has this long to join, once its allocation runs. */
  readonly joinMs: number;
  /** An allocation whose worker lived this long is no failure. */
  readonly provenMs: number;
  /** How long the queue is searched for an allocation whose answer was lost. */
  readonly lostMs: number;
  /** The delays after failures, tripled with each one; from `pauseAfter` failures on, `pausedMs`. */
  readonly failureMs: number;
  readonly pauseAfter: number;
  readonly pausedMs: number;
  /** The delays after troubles, doubled with each one. */
  readonly troubleMs: number;
  readonly maxTroubleMs: number;
}

const SECOND = 1_000;
const MINUTE = 60 * SECOND;

export const ALLOCATION_RULES: AllocationRules = {
  pollMs: 10 * SECOND,
  unneededMs: 15 * SECOND,
  joinMs: 5 * MINUTE,
  provenMs: MINUTE,
  lostMs: MINUTE,
  failureMs: 10 * SECOND,
  pauseAfter: 5,
  pausedMs: 60 * MINUTE,
  troubleMs: 5 * SECOND,
  maxTroubleMs: 2 * MINUTE,
};

/** Ended allocations and lines of the log that are kept. */
const KEPT_ENDED = 20;
const KEPT_LINES = 100;

export function newState(now: number, next = 1): AllocatorState {
  return { created: now, changed: now, next, failures: 0, troubles: 0, allocations: [], log: [] };
}

export function addLine(state: AllocatorState, at: number, kind: LogKind, text: string, allocation?: number): void {
  state.log.push({ at, kind, text, ...(allocation === undefined ? {} : { allocation }) });
  if (state.log.length > KEPT_LINES) state.log.splice(0, state.log.length - KEPT_LINES);
}

function fail(state: AllocatorState, rules: AllocationRules, now: number, text: string): void {
  state.failures++;
  state.failedBefore = state.next;
  const paused = state.failures >= rules.pauseAfter;
  const wait = paused ? rules.pausedMs : rules.failureMs * 3 ** (state.failures - 1);
  state.notBefore = now + wait;
  state.problem = { kind: "failed", at: now, text };
  if (!paused || state.paused?.by === "user") return;
  if (state.paused === undefined)
    addLine(state, now, "paused", `after ${state.failures} failures: ${text}; one try every ${shortDuration(wait)}`);
  state.paused = { at: now, by: "failures", reason: text };
}

function recover(state: AllocatorState, now: number, number: number): void {
  state.troubles = 0;
  delete state.failedBefore;
  if (state.failures > 0 || state.paused?.by === "failures")
    addLine(state, now, "recovered", "its worker is useful: earlier failures no longer count", number);
  state.failures = 0;
  delete state.notBefore;
  delete state.problem;
  if (state.paused?.by === "failures") delete state.paused;
}

/** The batch system did not answer, or accepts no more jobs. `unseen`: its list of jobs is missing. */
export function recordTrouble(
  state: AllocatorState,
  rules: AllocationRules,
  now: number,
  { kind, message }: Pick<BatchError, "message"> & { readonly kind: LogKind },
  unseen = false,
): void {
  const wait = Math.min(rules.maxTroubleMs, rules.troubleMs * 2 ** Math.min(state.troubles, 20));
  state.troubles++;
  state.notBefore = Math.max(state.notBefore ?? 0, now + wait);
  if (state.problem?.kind !== kind)
    addLine(state, now, kind, `${message}; trying again at least every ${shortDuration(rules.maxTroubleMs)}`);
  state.problem = { kind, at: now, text: message, ...(unseen ? { unseen } : {}) };
}

/** Problems that an answer of the batch system does not end. */
const OWN_PROBLEMS = ["failed", "taken"];

/** The batch system has answered. */
export function recordAnswering(state: AllocatorState, now: number): void {
  if (state.problem === undefined || OWN_PROBLEMS.includes(state.problem.kind)) return;
  state.troubles = 0;
  addLine(state, now, "answering", "the batch system answers again");
  delete state.problem;
  if (state.failures === 0) delete state.notBefore;
}

/** The next allocation, before it is asked for. */
export function addAllocation(state: AllocatorState, now: number): Allocation {
  const allocation: Allocation = { number: state.next++, state: "asking", asked: now };
  state.allocations.push(allocation);
  return allocation;
}

/** The answer to its request: the id, or the error. */
export function onAnswer(
  state: AllocatorState,
  number: number,
  answer: string | BatchError,
  rules: AllocationRules,
  now: number,
): void {
  const one = state.allocations.find((each) => each.number === number);
  if (one?.state !== "asking") return;
  if (typeof answer === "string") {
    recordAnswering(state, now);
    one.id = answer;
    one.state = "queued";
    addLine(state, now, "asked", `job ${answer} is in the queue`, number);
    return;
  }
  if (answer.kind === "lost") {
    addLine(state, now, "lost", `${answer.message}; looking for it in the queue`, number);
    return;
  }
  state.allocations.splice(state.allocations.indexOf(one), 1);
  if (answer.kind !== "refused") {
    recordTrouble(state, rules, now, answer);
    return;
  }
  addLine(state, now, "refused", answer.message, number);
  fail(state, rules, now, answer.message);
}

interface Observed {
  /** Jobs of this allocator by allocation number. Undefined if the batch system was not asked, or did not answer. */
  readonly jobs: ReadonlyMap<number, QueueEntry> | undefined;
  /** How many workers of each allocation are connected, and whether they have ended a task; undefined if unknown. */
  readonly workers: ReadonlyMap<number, number>;
  readonly useful: (number: number) => boolean | undefined;
  /** The last line of the output of an allocation's job script. */
  readonly lastLine: (number: number) => string | undefined;
  /** How long the batch system, watched without a break, has shown this allocation in its state. */
  readonly watchedMs: number;
  readonly stateMs: (one: Allocation) => number;
}

/** Applies the observed state. Returns the ids of jobs without a live allocation, which are to be cancelled. */
export function observe(allocator: Allocator, seen: Observed, rules: AllocationRules, now: number): readonly string[] {
  const jobs = new Map(seen.jobs);
  const strays: QueueEntry[] = [];
  for (const one of allocator.state.allocations) {
    const entry = jobs.get(one.number);
    jobs.delete(one.number);
    if (isLive(one)) new AllocationUpdate(allocator, one, rules, now).observe(entry, seen);
    // A job that was given up as lost may exist nevertheless.
    else if (entry !== undefined && entry.state !== "ended" && entry.id !== one.id) strays.push(entry);
  }
  trim(allocator.state);
  // Running jobs may belong to a removed allocator of this name. They end by themselves.
  strays.push(...[...jobs.values()].filter(({ state }) => state === "queued"));
  return strays.map(({ id }) => id);
}

/** The changes of one allocation. */
class AllocationUpdate {
  readonly #state: AllocatorState;
  readonly #idleTimeoutMs: number;
  readonly #one: Allocation;
  readonly #rules: AllocationRules;
  readonly #now: number;

  constructor({ state, spec }: Allocator, one: Allocation, rules: AllocationRules, now: number) {
    this.#state = state;
    this.#idleTimeoutMs = spec.idleTimeoutMs;
    this.#one = one;
    this.#rules = rules;
    this.#now = now;
  }

  observe(entry: QueueEntry | undefined, seen: Observed): void {
    const one = this.#one;
    const { jobs, workers, useful, lastLine } = seen;
    this.#joined(workers.get(one.number) ?? 0);
    const wasUseful = useful(one.number);
    // The worker may have joined and left between two queries. After a requeue, the earlier run may have been useful.
    if (wasUseful && (one.joined !== undefined || entry?.state === "ended")) this.#useful();
    if (jobs === undefined) return;
    if (entry === undefined) this.#missing(seen);
    else {
      if (one.id === undefined) this.#found(entry);
      if (entry.state === "ended") this.#ended(entry, wasUseful === false, lastLine);
      else if (entry.state === "queued") this.#queued(entry);
      else if (entry.state === "running" && one.state === "queued") this.#started();
      this.#giveUp(entry, seen);
    }
  }

  #log(kind: LogKind, text: string): void {
    addLine(this.#state, this.#now, kind, text, this.#one.number);
  }

  #joined(workers: number): void {
    if (workers === 0) return;
    this.#one.workers = Math.max(workers, this.#one.workers ?? 0);
    if (this.#one.state !== "running") this.#started();
    if (this.#one.joined !== undefined) return;
    this.#one.joined = this.#now;
    this.#log("joined", "its worker has joined");
  }

  #useful(): void {
    const proves = !this.#one.useful || this.#one.number >= (this.#state.failedBefore ?? 0);
    this.#one.useful = true;
    if (proves && this.#state.failedBefore !== undefined) recover(this.#state, this.#now, this.#one.number);
  }

  /** The broker ended during the request, or the request was not answered. */
  #found({ id }: QueueEntry): void {
    this.#one.id = id;
    if (this.#one.state === "asking") this.#one.state = "queued";
    this.#log("queued", `job ${id} was found in the queue`);
  }

  #missing({ stateMs, watchedMs }: Observed): void {
    const { state, joined, cancelling } = this.#one;
    if (state === "asking") {
      if (stateMs(this.#one) > this.#rules.lostMs) this.#end("its request was lost: it is not in the queue", false);
      return;
    }
    // It may have ended normally while it was not watched.
    const unseen = watchedMs < this.#rules.pollMs;
    this.#end("the batch system no longer knows it", unseen || joined !== undefined || cancelling === true);
  }

  #queued({ reason }: QueueEntry): void {
    const one = this.#one;
    if (one.state === "running") {
      one.state = "queued";
      delete one.joined;
      delete one.workers;
      delete one.started;
      this.#log("requeued", `the batch system has put it back into the queue: ${reason ?? "it gives no reason"}`);
    }
    if (reason === undefined) delete one.reason;
    else one.reason = reason;
  }

  #started(): void {
    const one = this.#one;
    one.state = "running";
    one.started = this.#now;
    delete one.reason;
    delete one.unneeded;
    this.#log("started", one.id === undefined ? "it runs" : `job ${one.id} runs`);
  }

  #ended({ word, reason, good, taken }: QueueEntry, useless: boolean, lastLine: Observed["lastLine"]): void {
    const { joined, useful, cancelling } = this.#one;
    const how = reason === undefined || reason === word ? word : `${word}, ${reason}`;
    if (useful || cancelling) this.#end(how, true);
    else if (joined === undefined && taken) {
      const text = `${how}: no worker has joined`;
      this.#end(text, true);
      if (this.#isFirst()) recordTrouble(this.#state, this.#rules, this.#now, { kind: "taken", message: text });
    } else if (joined === undefined) {
      const said = lastLine(this.#one.number);
      this.#end(`${how}: no worker has joined${said === undefined ? "" : `; its output ends with: ${said}`}`, false);
    }
    // Its worker was idle for the whole idle timeout: it cannot do the work that it was requested for.
    else if (good && useless && this.#now - joined >= this.#idleTimeoutMs)
      this.#end(`${how}: its worker got no task`, false);
    else this.#end(how, good || this.#now - joined >= this.#rules.provenMs);
  }

  #end(how: string, good: boolean): void {
    const one = this.#one;
    one.state = "ended";
    one.ended = this.#now;
    one.reason = how;
    this.#log(good ? "ended" : "failed", how);
    if (!good) this.#fail(how);
  }

  /** Cancels an allocation that cannot become useful. */
  #giveUp({ never, reason }: QueueEntry, { stateMs }: Observed): void {
    const { state, joined, cancelling } = this.#one;
    if (state === "ended" || cancelling) return;
    const { joinMs } = this.#rules;
    if (!never && !(state === "running" && joined === undefined && stateMs(this.#one) > joinMs)) return;
    const why = never
      ? `it would wait for ever: ${reason}`
      : `its worker has not joined within ${shortDuration(joinMs)}`;
    this.#one.cancelling = true;
    this.#log("failed", `${why}; it is cancelled`);
    this.#fail(why);
  }

  #fail(why: string): void {
    this.#one.failed = true;
    if (this.#isFirst()) fail(this.#state, this.#rules, this.#now, why);
  }

  /** Several that were requested together and end together count as one failure. */
  #isFirst(): boolean {
    if (this.#one.number < (this.#state.failedBefore ?? 0)) return false;
    this.#state.failedBefore = this.#state.next;
    return true;
  }
}

function trim({ allocations }: AllocatorState): void {
  const ended = allocations.filter((one) => !isLive(one));
  for (const one of ended.slice(0, -KEPT_ENDED)) allocations.splice(allocations.indexOf(one), 1);
}
