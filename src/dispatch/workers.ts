/**
 * The states of a worker:
 *   connected   takes work; from joining until its connection ends
 *   away        disconnected. If its protocol can resume, its tasks are kept: for a moment if the worker closed the
 *               connection, for the grace period if it went silent or the broker has just started
 *   gone        forgotten; its tasks wait for others
 * A worker that joins lists its tasks. Assigned tasks that are missing from the list return to the queue.
 */
import { WorkerId } from "../model/ids.js";
import { contains, sizeOf } from "../model/ranges.js";
import { ONE_SLOT } from "../model/recipe.js";
import type { ClaimedRange } from "../model/store.js";
import type { KeyValue } from "../model/store-reads.js";
import { cancelAt } from "./cancel.js";
import { addClaim, dropClaim, openTasks, placePrefetched, unplaceAll } from "./claims.js";
import type { Decisions } from "./decisions.js";
import { leaseMore, reindexJob, releaseIfNoWorker } from "./job-queue.js";
import { fillWorker, placeWork } from "./placement.js";
import { retractClaims } from "./prefetch.js";
import { type Reconciled, type ReportedTasks, reconcile } from "./reconcile.js";
import { loseRequests } from "./requests.js";
import { loseClaim, loseClaims } from "./results.js";
import { leaveSignatures, occupy, reindexWorker, updateSignatures } from "./signature.js";
import { standingOf } from "./standing.js";
import { claimsOf, claimsWithin, GONE, STARTED, type State, type WorkerProfile, type WorkerState } from "./state.js";

export function onWorkerJoined(
  state: State,
  out: Decisions,
  profile: WorkerProfile,
  reported: readonly ReportedTasks[],
  now: number,
): Reconciled {
  const known = state.workers.get(profile.id);
  const sameSession = known === undefined || known.profile.session === profile.session;
  const worker = known ?? addWorker(state, profile);
  endGrace(state, worker);
  worker.connected = false;
  leaveSignatures(state, worker);
  loseRequests(state, out, worker);
  worker.profile = profile;
  worker.record = recordOf(profile);
  state.workerRecords.delete(profile.id);
  worker.standing = standingOf(state, profile.name).standing;
  // A drain outlives a broken connection, but not the worker process.
  if (!sameSession) {
    worker.draining = false;
    worker.leaving = false;
  }
  const reconciled = reconcile(state, out, worker, reported, sameSession, now);
  worker.connected = true;
  for (const claim of claimsOf(worker)) claim.retracting = false;
  worker.mostSlots = profile.total.slots;
  recomputeFree(state, worker);
  worker.rateWindowStart = worker.assigned > 0 ? now : -1;
  updateSignatures(state, worker);
  for (const job of worker.claims.keys()) cancelAt(state, out, worker, job);
  fillWorker(state, out, worker, now);
  placeWork(state, out, now);
  rebalanceLeases(state, out);
  return reconciled;
}

/** The workers have changed: leases what they can run, releases what no worker here can run. */
function rebalanceLeases(state: State, out: Decisions): void {
  if (!state.shared) return;
  for (const job of state.jobs.values()) {
    leaseMore(state, out, job);
    releaseIfNoWorker(state, out, job);
  }
}

/** Recomputes the worker's free resources. Running tasks occupy them first, then prefetched ones in order. */
function recomputeFree(state: State, worker: WorkerState): void {
  for (const claim of claimsOf(worker)) unplaceAll(state, claim);
  for (const name of Object.keys(worker.free)) delete worker.free[name];
  Object.assign(worker.free, worker.profile.total);
  // Requests keep the reservation that they passed.
  occupy(worker, ONE_SLOT, worker.requests.size, undefined);
  for (const claim of [...worker.prefetchedClaims]) placePrefetched(state, claim, openTasks(claim, STARTED).length);
  for (const claim of [...worker.prefetchedClaims]) placePrefetched(state, claim);
}

/** The worker is disconnected. `closed`: its side closed or reset the connection. */
export function onWorkerAway(state: State, out: Decisions, id: WorkerId, now: number, closed = false): void {
  const worker = state.workers.get(id);
  if (worker?.connected !== true) return;
  if (!worker.profile.resumable) {
    removeWorker(state, out, worker, true, now);
    return;
  }
  if (worker.assigned === 0 && !worker.draining) {
    removeWorker(state, out, worker, true, now);
    return;
  }
  worker.connected = false;
  leaveSignatures(state, worker);
  loseRequests(state, out, worker);
  beginGrace(state, worker, now, closed && worker.assigned > 0);
  placeWork(state, out, now);
  rebalanceLeases(state, out);
}

/** The worker stops and has returned its tasks. A task that is still assigned to it does not count as a crash. */
export function onWorkerLeft(state: State, out: Decisions, id: WorkerId, now: number): void {
  const worker = state.workers.get(id);
  if (worker !== undefined) removeWorker(state, out, worker, false, now);
}

/** The grace period is over. A drain is kept for another one: it is meant for the machine, not the process. */
export function onGraceExpired(state: State, out: Decisions, worker: WorkerState, now: number): void {
  if (worker.connected) return;
  if (!worker.draining || worker.assigned === 0) {
    removeWorker(state, out, worker, true, now);
    return;
  }
  loseClaims(state, out, worker, true, now);
  beginGrace(state, worker, now);
  placeWork(state, out, now);
  rebalanceLeases(state, out);
}

function removeWorker(state: State, out: Decisions, worker: WorkerState, crashed: boolean, now: number): void {
  worker.connected = false;
  leaveSignatures(state, worker);
  endGrace(state, worker);
  loseRequests(state, out, worker);
  loseClaims(state, out, worker, crashed, now);
  deleteRecord(out, worker);
  state.workers.delete(worker.profile.id);
  placeWork(state, out, now);
  rebalanceLeases(state, out);
}

/** The worker gets nothing new, and its prefetched tasks are retracted. `leaving`: because it ends. */
export function onDrain(state: State, out: Decisions, id: WorkerId, leaving = false): void {
  const worker = state.workers.get(id);
  if (worker !== undefined && leaving) worker.leaving = true;
  if (worker === undefined || worker.draining) return;
  worker.draining = true;
  leaveSignatures(state, worker);
  retractClaims(out, worker, worker.prefetchedClaims);
  // A wide task may have waited for this worker and needs another one.
  placeWork(state, out, state.now);
  rebalanceLeases(state, out);
}

/** A drained worker gets tasks again. False if it was not drained, or is ending. */
export function onUndrain(state: State, out: Decisions, id: WorkerId, now: number): boolean {
  const worker = state.workers.get(id);
  if (worker === undefined || !worker.draining || worker.leaving) return false;
  worker.draining = false;
  if (!worker.connected) return true;
  updateSignatures(state, worker);
  fillWorker(state, out, worker, now);
  placeWork(state, out, now);
  rebalanceLeases(state, out);
  return true;
}

/** What the worker offers has changed. */
export function onProfile(state: State, out: Decisions, profile: WorkerProfile, now: number): void {
  const worker = state.workers.get(profile.id);
  if (worker?.connected !== true) return;
  worker.profile = profile;
  worker.mostSlots = profile.total.slots;
  recomputeFree(state, worker);
  updateSignatures(state, worker);
  fillWorker(state, out, worker, now);
  placeWork(state, out, now);
  rebalanceLeases(state, out);
}

/**
 * Sets how many tasks and requests the worker takes at once. Costs as much as the end of a task: other signatures are
 * checked only when it offers more slots than ever before.
 */
export function onSlots(state: State, out: Decisions, id: WorkerId, slots: number, now: number): void {
  const worker = state.workers.get(id);
  if (worker?.connected !== true || worker.profile.total.slots === slots) return;
  const { free, profile } = worker;
  const more = slots - profile.total.slots;
  worker.profile = { ...profile, total: { ...profile.total, slots } };
  if ((free.slots ?? 0) + more < 0) recomputeFree(state, worker);
  else occupy(worker, ONE_SLOT, -more, undefined);
  if (slots > worker.mostSlots) {
    worker.mostSlots = slots;
    updateSignatures(state, worker);
  }
  reindexWorker(worker);
  // Also with fewer slots: a wide task that no longer fits leaves slots to others.
  if ((free.slots ?? 0) > 0) fillWorker(state, out, worker, now);
}

/** After a start of the broker: a claim whose worker has not come back yet. */
export function restoreClaim(state: State, claimed: ClaimedRange, now: number): void {
  const { taskRange, settled } = claimed;
  const job = state.jobs.get(taskRange.job);
  if (job === undefined || taskRange.worker === undefined) return;
  const worker = state.workers.get(taskRange.worker) ?? restoreWorker(state, taskRange.worker);
  // A task is in one task range only: an older claim here is from before another broker adopted the worker.
  for (const stale of claimsWithin(worker, taskRange.job, taskRange)) dropClaim(state, stale);
  reindexWorker(worker);
  const tasks = new Uint8Array(sizeOf(taskRange));
  for (let i = 0; i < tasks.length; i++) if (contains(settled, taskRange.first + i)) tasks[i] = GONE;
  const claim = addClaim(state, worker, job, { ...taskRange, rangeId: taskRange.id }, tasks);
  if (!worker.connected) placePrefetched(state, claim);
  // The job may have reached its maxRunning.
  reindexJob(state, job);
  if (!worker.connected && worker.grace === undefined) beginGrace(state, worker, now);
}

function restoreWorker(state: State, id: WorkerId): WorkerState {
  const worker = addWorker(state, absentProfile(state, id));
  worker.storedRecord = state.workerRecords.get(id);
  return worker;
}

/**
 * Claims taken over from a dead broker. A worker that is connected here has none of these tasks: its tasks were adopted
 * when it joined, and later assignments of the dead broker never arrived. So the tasks wait again at once. Tasks of a
 * disconnected worker are kept for it during the grace period.
 */
export function onOrphans(state: State, out: Decisions, orphans: readonly ClaimedRange[], now: number): void {
  for (const claimed of orphans) {
    restoreClaim(state, claimed, now);
    const worker = claimed.taskRange.worker === undefined ? undefined : state.workers.get(claimed.taskRange.worker);
    if (worker?.connected !== true) continue;
    for (const claim of [...claimsWithin(worker, claimed.taskRange.job, claimed.taskRange)])
      loseClaim(state, out, claim, () => false, now);
    fillWorker(state, out, worker, now);
  }
  placeWork(state, out, now);
}

/** Below every use, so that the order of joining decides among workers that were never used. */
const NEVER_USED = -(2 ** 52);

function addWorker(state: State, profile: WorkerProfile): WorkerState {
  const worker: WorkerState = {
    profile,
    connected: false,
    draining: false,
    leaving: false,
    standing: "good",
    mostSlots: profile.total.slots,
    record: recordOf(profile),
    storedRecord: undefined,
    free: { ...profile.total },
    lastUse: NEVER_USED + state.joins++,
    shareLevels: new Map(),
    claims: new Map(),
    prefetchedClaims: new Set(),
    prefetched: 0,
    assigned: 0,
    runShares: new Map(),
    started: 0,
    requests: new Set(),
    capableOf: new Set(),
    indexedIn: new Set(),
    rate: 0,
    rateWindowStart: -1,
    rateWindowCount: 0,
    roundTripMs: 0,
  };
  state.workers.set(profile.id, worker);
  return worker;
}

function beginGrace(state: State, worker: WorkerState, now: number, closed = false): void {
  const { graceMs, closedGraceMs } = state.settings;
  const usual = worker.profile.graceMs ?? graceMs;
  worker.grace = { at: now + (closed ? Math.min(usual, closedGraceMs) : usual), kind: "grace", worker };
  state.timers.upsert(worker.grace);
}

function endGrace(state: State, worker: WorkerState): void {
  if (worker.grace === undefined) return;
  state.timers.remove(worker.grace);
  delete worker.grace;
}

// The record of a worker for people, and how long it may be disconnected. Stored with its first task, so that a
// restarted broker knows the workers that have tasks and are disconnected. Workers that cannot resume have no record.

export const WORKER_BUCKET = "worker";

function recordOf(profile: WorkerProfile): string | undefined {
  if (!profile.resumable) return undefined;
  const { name, protocol, pool, tags, services, total, reserveRequests, graceMs } = profile;
  return JSON.stringify({ name, protocol, pool, tags, services, total, reserveRequests, graceMs });
}

/** Called before the worker gets a task. */
export function storeRecord(out: Decisions, worker: WorkerState): void {
  const { record, storedRecord, profile } = worker;
  if (record === undefined || record === storedRecord) return;
  worker.storedRecord = record;
  out.writes.push({ op: "put", bucket: WORKER_BUCKET, key: profile.id, value: record });
}

function deleteRecord(out: Decisions, { storedRecord, profile }: WorkerState): void {
  if (storedRecord !== undefined) out.writes.push({ op: "put", bucket: WORKER_BUCKET, key: profile.id, value: null });
}

/** Called before claims are restored. */
export function loadRecords(state: State, stored: readonly KeyValue[]): void {
  for (const { key, value } of stored) state.workerRecords.set(WorkerId(key), value);
}

/** The profile of a worker that has tasks and has not come back yet. */
function absentProfile(state: State, id: WorkerId): WorkerProfile {
  const record = state.workerRecords.get(id);
  return {
    id,
    session: "" as WorkerProfile["session"],
    name: id,
    protocol: "unknown",
    pool: "",
    tags: [],
    services: [],
    total: { slots: 0 },
    reserveRequests: 0,
    resumable: true,
    canPrefetch: false,
    ...(record === undefined ? {} : (JSON.parse(record) as Partial<WorkerProfile>)),
  };
}
