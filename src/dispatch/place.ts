/**
 * Who gets what. Two questions meet here: work has come, which worker takes it (`placeWork`), and room has come, which work
 * takes it (`fillWorker`). Both ask for the best job by priority, share and age, and for the least recently used worker.
 * After either, no worker has room for work that waits, unless it is kept for a wider task.
 */

import { enterClaim, placeFromStock, promote } from "./claims.js";
import type { Decisions } from "./decisions.js";
import { forage } from "./forage.js";
import { refill, requeue, takeWaiting } from "./queue.js";
import { giveRequests, placeRequests } from "./requests.js";
import { mayUse, reserveRoom, unreserve } from "./reservation.js";
import { charge } from "./share.js";
import { fitCount, goesBefore, reindex } from "./signature.js";
import { type JobState, newParcelId, type Signature, type State, type WorkerState } from "./state.js";
import { beginWindow, retractFor, retractForIdle, stockRoom } from "./stock.js";

/** Work has begun to wait, or workers have changed: hand it to whoever has room. */
export function placeWork(state: State, out: Decisions, now: number): void {
  state.now = now;
  placeRequests(state, out);
  if (state.halted) return;
  state.unsettled = false;
  const blocked = new Set<Signature>();
  for (;;) {
    const job = bestPlaceable(state, blocked);
    if (job === undefined) break;
    const worker = leastRecentlyUsed(state, job);
    if (worker === undefined) {
      blocked.add(job.signature);
      reserveRoom(state, job);
      retractFor(state, out, job);
      continue;
    }
    hand(state, out, job, worker, shareOf(state, job, worker), now);
    // A worker that was kept for a wide task may be what the blocked ones waited for.
    if (state.unsettled) blocked.clear();
    state.unsettled = false;
  }
  if (state.hungry.size > 0) forage(state, out);
}

/** The job that goes next, among the signatures not yet found without a worker. */
function bestPlaceable(state: State, blocked: ReadonlySet<Signature>): JobState | undefined {
  let best: JobState | undefined;
  for (const signature of state.active) {
    if (blocked.has(signature)) continue;
    const job = signature.jobs.peek();
    if (job !== undefined && (best === undefined || goesBefore(job, best))) best = job;
  }
  return best;
}

/** The worker used longest ago that has room for a task of this job and is not kept for a wider one. */
function leastRecentlyUsed(state: State, job: JobState): WorkerState | undefined {
  const { fitting } = job.signature;
  const avoid = job.waiting.front?.avoid;
  const passed: WorkerState[] = [];
  let found: WorkerState | undefined;
  let avoided: WorkerState | undefined;
  for (let worker = fitting.peek(); worker !== undefined; worker = fitting.peek()) {
    if (!mayUse(state, worker, job)) {
      passed.push(worker);
    } else if (worker.profile.id === avoid) {
      avoided = worker;
      passed.push(worker);
    } else {
      found = worker;
      break;
    }
    fitting.remove(worker);
  }
  for (const worker of passed) fitting.place(worker);
  // Where it failed before is better than nowhere.
  return found ?? avoided;
}

/** Room may have come free at a worker: waiting requests first, then its stock, then waiting tasks, then new stock. */
export function fillWorker(state: State, out: Decisions, worker: WorkerState, now: number): void {
  state.now = now;
  useRoom(state, out, worker);
  if (worker.connected && !worker.draining && !state.halted) {
    for (let job = bestFor(state, worker); job !== undefined; job = bestFor(state, worker)) {
      hand(state, out, job, worker, shareOf(state, job, worker), now);
    }
    fillStock(state, out, worker, now);
    retractForIdle(state, out, worker);
  }
  if (worker.out === 0) worker.windowStart = -1;
  if (state.unsettled) placeWork(state, out, now);
  else if (state.hungry.size > 0) forage(state, out);
}

/** What the worker's room goes to before any new task: waiting requests, then the stock that it has. */
export function useRoom(state: State, out: Decisions, worker: WorkerState): void {
  reindex(worker);
  giveRequests(state, out, worker);
  promote(state, worker);
  reindex(worker);
}

/** The job that goes next among those with a task for which this worker has room now. */
function bestFor(state: State, worker: WorkerState): JobState | undefined {
  let best: JobState | undefined;
  for (const signature of state.active) {
    const job = signature.jobs.peek();
    if (job === undefined || !worker.capableOf.has(signature)) continue;
    if (fitCount(worker, signature) === 0) {
      reserveRoom(state, job);
      continue;
    }
    if (mayUse(state, worker, job) && (best === undefined || goesBefore(job, best))) best = job;
  }
  // A reservation made on the way may concern this very worker.
  return best !== undefined && mayUse(state, worker, best) ? best : undefined;
}

/** Another job that this worker could serve is no less urgent: then tasks go out one by one, in turn. */
function hasRival(state: State, job: JobState, worker: WorkerState): boolean {
  const { priority } = job.job;
  const next = job.signature.jobs.runnerUp();
  if (next !== undefined && next.job.priority === priority) return true;
  for (const signature of state.active) {
    const other = signature.jobs.peek();
    if (other === undefined || other === job || other.job.priority < priority) continue;
    if (worker.capableOf.has(signature)) return true;
  }
  return false;
}

/** How many tasks to hand over in one piece: this worker's even share, so that the next one gets as many. */
function shareOf(state: State, job: JobState, worker: WorkerState): number {
  if (worker.standing === "suspended" || hasRival(state, job, worker)) return 1;
  const { maxRunning } = job.job.limits;
  const ready = maxRunning === undefined ? job.ready : Math.min(job.ready, maxRunning - job.out);
  const even = Math.ceil(ready / Math.max(1, job.signature.fitting.size));
  return Math.min(fitCount(worker, job.signature), even);
}

function fillStock(state: State, out: Decisions, worker: WorkerState, now: number): void {
  if (!worker.profile.stocks || worker.reservedFor !== undefined || worker.standing !== "good") return;
  for (;;) {
    let best: JobState | undefined;
    for (const signature of state.active) {
      const job = signature.jobs.peek();
      if (job === undefined || !worker.capableOf.has(signature) || stockRoom(state, worker, job) === 0) continue;
      if (best === undefined || goesBefore(job, best)) best = job;
    }
    if (best === undefined) return;
    const room = stockRoom(state, worker, best);
    hand(state, out, best, worker, hasRival(state, best, worker) ? Math.ceil(room / 8) : room, now);
  }
}

/** Hand up to `most` tasks of a job to a worker: a claim, durable before it leaves. */
function hand(state: State, out: Decisions, job: JobState, worker: WorkerState, most: number, now: number): void {
  const { maxRunning } = job.job.limits;
  let left = Math.min(most, maxRunning === undefined ? most : maxRunning - job.out);
  if (worker.windowStart < 0) beginWindow(worker, now);
  for (let any = true; left > 0; any = false) {
    const taken = takeWaiting(job, worker, left, any);
    if (taken === undefined) break;
    const { first, last, waiting } = taken;
    const attempt = waiting.attempt + 1;
    const parcel = newParcelId(state);
    const { failures, crashes } = waiting;
    const claim = enterClaim(state, worker, job, { parcel, first, last, attempt, failures, crashes });
    placeFromStock(state, claim);
    const id = worker.profile.id;
    out.writes.push({ op: "claim", from: waiting.parcel, parcel, first, last, attempt, worker: id });
    out.sends.push({ kind: "tasks", worker: id, parcel, job: job.id, first, last, attempt });
    left -= last - first + 1;
    charge(job, worker, last - first + 1);
  }
  worker.lastUse = ++state.uses;
  if (job.signature.reservation === worker) unreserve(state, job.signature);
  reindex(worker);
  requeue(state, job);
  refill(state, out, job);
}
