/**
 * Assigns work to workers. `placeWork`: which worker takes new work? `fillWorker`: which work does a worker with free
 * slots take? Both choose the best job by priority, share and age, and the least recently used worker. Afterwards no
 * worker has free slots for waiting work, except slots that are kept for a wider task.
 */
import { addClaim, placeAllPrefetched, placePrefetched } from "./claims.js";
import type { Decisions } from "./decisions.js";
import { charge, isOpen, leaseMore, reindexJob, takeWaiting } from "./job-queue.js";
import { leaseForFreeSlots } from "./leasing.js";
import { recordStarts, runsAtMost, setAtOnce, spareRuns, spareStarts } from "./limits.js";
import { prefetchAllowance, retractForIdle, retractForJob, retractForSelf, startRateWindow } from "./prefetch.js";
import { assignRequestsTo, placeRequests } from "./requests.js";
import { mayUse, reserveWorker, unreserve } from "./reservation.js";
import { availableOf, fitCount, goesBefore, reindexWorker } from "./signature.js";
import {
  type JobState,
  newTaskRangeId,
  nextJobOf,
  type Signature,
  type State,
  signaturesFor,
  type WorkerState,
} from "./state.js";
import { storeRecord } from "./workers.js";

/** New work waits, or workers have changed: assigns work to workers with free slots. */
export function placeWork(state: State, out: Decisions, now: number): void {
  state.now = now;
  placeRequests(state, out);
  if (state.halted !== undefined) return;
  state.needsPlacement = false;
  let candidates = signaturesToPlace(state);
  for (;;) {
    const job = nextJob(candidates);
    if (job === undefined) break;
    const worker = leastRecentlyUsed(state, job);
    if (worker === undefined) {
      candidates.delete(job.signature);
      reserveWorker(state, job);
      retractForJob(state, out, job);
      continue;
    }
    const count = evenShare(state, job, worker);
    assignTasks(state, out, job, worker, count + prefetchedWith(state, job, worker, count), count, now);
    // A worker whose reservation ended may be the one that other signatures wait for.
    if (state.needsPlacement) candidates = signaturesToPlace(state);
    state.needsPlacement = false;
  }
  if (state.needsLease.size > 0) leaseForFreeSlots(state, out);
}

/** The signatures with waiting jobs that could use or reserve a worker, or get prefetched tasks retracted. */
function signaturesToPlace(state: State): Set<Signature> {
  const mayRetract = state.workersWithPrefetched.size > 0;
  const found = new Set<Signature>();
  for (const signature of state.active) {
    const mayReserve = signature.wide && signature.reservation === undefined;
    if (mayRetract || mayReserve || availableOf(signature).size > 0) found.add(signature);
  }
  return found;
}

function nextJob(candidates: ReadonlySet<Signature>): JobState | undefined {
  let best: JobState | undefined;
  for (const signature of candidates) {
    const job = nextJobOf(signature);
    if (job !== undefined && (best === undefined || goesBefore(job, best))) best = job;
  }
  return best;
}

/** The least recently used worker with free slots for a task of this job that are not kept for a wider one. */
function leastRecentlyUsed(state: State, job: JobState): WorkerState | undefined {
  const available = availableOf(job.signature);
  const avoid = job.waiting.front?.avoid;
  const passed: WorkerState[] = [];
  let found: WorkerState | undefined;
  let avoided: WorkerState | undefined;
  for (let worker = available.peek(); worker !== undefined; worker = available.peek()) {
    if (!mayUse(state, worker, job)) {
      passed.push(worker);
    } else if (worker.profile.id === avoid) {
      avoided = worker;
      passed.push(worker);
    } else {
      found = worker;
      break;
    }
    available.remove(worker);
  }
  for (const worker of passed) available.upsert(worker);
  // The worker where it failed before is better than none.
  return found ?? avoided;
}

/** Gives a worker's free slots to requests, then to prefetched tasks, then to waiting ones. Then it prefetches. */
export function fillWorker(state: State, out: Decisions, worker: WorkerState, now: number): void {
  state.now = now;
  useFreeSlots(state, out, worker);
  // Skips workers that only answer requests.
  const mayHaveTasks = state.active.size > 0 || state.workersWithPrefetched.size > 0 || worker.runShares.size > 0;
  if (mayHaveTasks && worker.connected && !worker.draining && state.halted === undefined) {
    for (let job = nextJobFor(state, worker); job !== undefined; job = nextJobFor(state, worker)) {
      const count = evenShare(state, job, worker);
      assignTasks(state, out, job, worker, count + prefetchedWith(state, job, worker, count), count, now);
    }
    prefetchTasks(state, out, worker, now);
    retractForSelf(state, out, worker);
    retractForIdle(state, out, worker);
  }
  if (worker.assigned === 0) worker.rateWindowStart = -1;
  if (state.needsPlacement) placeWork(state, out, now);
  else if (state.needsLease.size > 0) leaseForFreeSlots(state, out);
}

/** Uses the worker's free slots before new tasks are assigned: for waiting requests, then for its prefetched tasks. */
export function useFreeSlots(state: State, out: Decisions, worker: WorkerState): void {
  assignRequestsTo(state, out, worker);
  placeAllPrefetched(state, worker);
  reindexWorker(worker);
}

/** The next job with a task that fits into this worker's free slots. */
function nextJobFor(state: State, worker: WorkerState): JobState | undefined {
  let best: JobState | undefined;
  for (const signature of signaturesFor(state, worker)) {
    const job = nextJobOf(signature);
    if (job === undefined || !worker.capableOf.has(signature)) continue;
    if (fitCount(worker, signature) === 0) {
      reserveWorker(state, job);
      continue;
    }
    if (mayUse(state, worker, job) && (best === undefined || goesBefore(job, best))) best = job;
  }
  // A reservation made in `mayUse` may concern this worker. Then the choice is repeated.
  return best === undefined || mayUse(state, worker, best) ? best : nextJobFor(state, worker);
}

/** Another job for this worker is equally urgent: then tasks are assigned one by one, in turn. */
function hasCompetingJob(state: State, job: JobState, worker: WorkerState): boolean {
  const { priority } = job.job;
  const next = job.signature.jobs.peekSecond();
  if (next !== undefined && next.job.priority === priority) return true;
  for (const signature of signaturesFor(state, worker)) {
    const other = nextJobOf(signature);
    if (other === undefined || other === job || other.job.priority < priority) continue;
    if (worker.capableOf.has(signature)) return true;
  }
  return false;
}

/** How many tasks to assign at once: this worker's even share, so that the next worker gets as many. */
function evenShare(state: State, job: JobState, worker: WorkerState): number {
  if (worker.standing === "suspended" || hasCompetingJob(state, job, worker)) return 1;
  const { signature } = job;
  const spare =
    signature.limits === undefined || state.shared ? job.ready : Math.min(job.ready, spareStarts(signature));
  const even = Math.ceil(Math.min(spare, spareRuns(job)) / Math.max(1, availableOf(signature).size));
  return Math.min(fitCount(worker, signature), even);
}

/**
 * How many tasks the worker gets beyond its free slots, in the same claim. At most its even share: an idle worker that
 * got only its first task would have to request the others, and with a thousand workers each task would be a message.
 */
function prefetchedWith(state: State, job: JobState, worker: WorkerState, count: number): number {
  if (!mayPrefetch(worker) || hasCompetingJob(state, job, worker)) return 0;
  const share = Math.floor(job.ready / Math.max(1, availableOf(job.signature).size));
  return Math.max(0, Math.min(prefetchAllowance(state, worker, job), share - count));
}

const mayPrefetch = (worker: WorkerState): boolean =>
  worker.profile.canPrefetch && worker.reservedFor === undefined && worker.standing === "good";

function prefetchTasks(state: State, out: Decisions, worker: WorkerState, now: number): void {
  if (!mayPrefetch(worker)) return;
  for (;;) {
    let best: JobState | undefined;
    for (const job of prefetchCandidates(state, worker)) {
      if (!worker.capableOf.has(job.signature) || prefetchAllowance(state, worker, job) === 0) continue;
      if (best === undefined || goesBefore(job, best)) best = job;
    }
    if (best === undefined) return;
    const allowed = prefetchAllowance(state, worker, best);
    const count = hasCompetingJob(state, best, worker) ? Math.ceil(allowed / 8) : allowed;
    assignTasks(state, out, best, worker, count, 0, now);
  }
}

/** The next job of each signature, and jobs at their `maxRunning`, which no queue contains. */
function* prefetchCandidates(state: State, worker: WorkerState): Iterable<JobState> {
  for (const signature of signaturesFor(state, worker)) {
    const job = nextJobOf(signature);
    if (job !== undefined) yield job;
  }
  // Below 0, more tasks run than a lowered limit permits: their slots stay free.
  for (const job of worker.runShares.keys()) if (job.ready > 0 && isOpen(job) && spareRuns(job) === 0) yield job;
}

/** Assigns up to `max` tasks to a worker: a claim, durable before it is sent. `slots`: how many may run now. */
function assignTasks(
  state: State,
  out: Decisions,
  job: JobState,
  worker: WorkerState,
  max: number,
  slots: number,
  now: number,
): void {
  let left = max;
  const idle = worker.assigned === 0;
  const { maxRunning, named } = job.job.limits;
  const limit = maxRunning !== undefined ? { atOnce: runsAtMost(worker, job) + slots } : undefined;
  if (worker.rateWindowStart < 0) startRateWindow(worker, now);
  storeRecord(out, worker);
  for (let includeAvoided = true; left > 0; includeAvoided = false) {
    const taken = takeWaiting(job, worker, left, includeAvoided);
    if (taken === undefined) break;
    const { first, last, waiting } = taken;
    const attempt = waiting.attempt + 1;
    const rangeId = newTaskRangeId(state);
    const { failures, crashes } = waiting;
    const claim = addClaim(state, worker, job, { rangeId, first, last, attempt, failures, crashes });
    if (limit !== undefined) setAtOnce(worker, job, limit.atOnce);
    placePrefetched(state, claim);
    if (idle && left === max) worker.roundTripProbe = { claim, at: now };
    if (claim.placed > 0) out.urgent = true;
    const id = worker.profile.id;
    if (named === undefined) {
      out.writes.push({ op: "claim", from: waiting.rangeId, rangeId, first, last, attempt, worker: id });
    } else {
      out.writes.push({ op: "claim", from: waiting.rangeId, rangeId, first, last, attempt, worker: id, limits: named });
      recordStarts(state, job.signature, last - first + 1, now);
    }
    out.sends.push({ kind: "tasks", worker: id, rangeId, job: job.id, first, last, attempt, ...limit });
    left -= last - first + 1;
    charge(state, job, worker, last - first + 1);
  }
  worker.lastUse = ++state.uses;
  if (job.signature.reservation?.worker === worker) unreserve(state, job.signature);
  reindexWorker(worker);
  reindexJob(state, job);
  leaseMore(state, out, job);
}
