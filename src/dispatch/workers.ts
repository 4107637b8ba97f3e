/**
 * The life of a worker, as the heart sees it:
 *   connected   takes work; from joining until its connection ends
 *   away        its connection is gone, its tasks are kept for the grace period, if its protocol can resume
 *   gone        forgotten; its tasks wait for others
 * A worker that joins says what it holds. What it should have and does not have went nowhere, and returns to the line.
 */
import type { WorkerId } from "../model/ids.js";
import { contains, sizeOf } from "../model/ranges.js";
import { ONE_SLOT } from "../model/recipe.js";
import type { HeldParcel } from "../model/store.js";
import { cancelAt } from "./cancel.js";
import { dropClaim, enterClaim, openTasks, placeFromStock, unplace } from "./claims.js";
import type { Decisions } from "./decisions.js";
import { fillWorker, placeWork } from "./place.js";
import { refill, relinquish, requeue } from "./queue.js";
import { type Holding, type Reconciled, reconcile } from "./reconcile.js";
import { loseRequests } from "./requests.js";
import { loseClaim, loseClaims } from "./results.js";
import { delist, occupy, reenlist, reindex } from "./signature.js";
import { figuresOf } from "./standing.js";
import { claimsOf, claimsWithin, GONE, STARTED, type State, type WorkerProfile, type WorkerState } from "./state.js";
import { retractClaims } from "./stock.js";

export function onWorkerJoined(
  state: State,
  out: Decisions,
  profile: WorkerProfile,
  held: readonly Holding[],
  now: number,
): Reconciled {
  const known = state.workers.get(profile.id);
  const sameLife = known === undefined || known.profile.session === profile.session;
  const worker = known ?? enterWorker(state, profile);
  endGrace(state, worker);
  worker.connected = false;
  delist(state, worker);
  loseRequests(state, out, worker);
  worker.profile = profile;
  worker.standing = state.settings.standing ? figuresOf(state, profile.name).standing : "good";
  // The operator's wish outlives a cut of the line, not the process that it was about.
  if (!sameLife) worker.draining = false;
  const reconciled = reconcile(state, out, worker, held, sameLife, now);
  worker.connected = true;
  resetRoom(state, worker);
  worker.windowStart = worker.out > 0 ? now : -1;
  reenlist(state, worker);
  for (const job of worker.claims.keys()) cancelAt(state, out, worker, job);
  fillWorker(state, out, worker, now);
  placeWork(state, out, now);
  enlistWork(state, out);
  return reconciled;
}

/** The workers have changed: lease what can be done now, leave to others what cannot. */
function enlistWork(state: State, out: Decisions): void {
  if (!state.shared) return;
  for (const job of state.jobs.values()) {
    refill(state, out, job);
    relinquish(state, out, job);
  }
}

/** What the worker has may have changed: reckon its room anew. What runs takes it first, then stock in the order it was given. */
function resetRoom(state: State, worker: WorkerState): void {
  for (const name of Object.keys(worker.free)) delete worker.free[name];
  Object.assign(worker.free, worker.profile.total);
  occupy(worker, ONE_SLOT, worker.requests.size);
  for (const claim of claimsOf(worker)) {
    claim.retracting = false;
    unplace(state, claim);
  }
  for (const claim of [...worker.stocked]) placeFromStock(state, claim, openTasks(claim, STARTED).length);
  for (const claim of [...worker.stocked]) placeFromStock(state, claim);
}

/** The connection is gone. */
export function onWorkerAway(state: State, out: Decisions, id: WorkerId, now: number): void {
  const worker = state.workers.get(id);
  if (worker?.connected !== true) return;
  if (!worker.profile.resumable) {
    removeWorker(state, out, worker, true, now);
    return;
  }
  // A wish to drain it is kept for as long as its tasks would be.
  if (worker.out === 0 && !worker.draining) {
    removeWorker(state, out, worker, true, now);
    return;
  }
  worker.connected = false;
  delist(state, worker);
  loseRequests(state, out, worker);
  beginGrace(state, worker, now);
  placeWork(state, out, now);
  enlistWork(state, out);
}

/** The worker has said that it stops and has handed everything back: what is left of it has cost nothing. */
export function onWorkerLeft(state: State, out: Decisions, id: WorkerId, now: number): void {
  const worker = state.workers.get(id);
  if (worker !== undefined) removeWorker(state, out, worker, false, now);
}

/** The grace period is over. */
export function giveUp(state: State, out: Decisions, worker: WorkerState, now: number): void {
  if (!worker.connected) removeWorker(state, out, worker, true, now);
}

function removeWorker(state: State, out: Decisions, worker: WorkerState, crashed: boolean, now: number): void {
  worker.connected = false;
  delist(state, worker);
  endGrace(state, worker);
  loseRequests(state, out, worker);
  loseClaims(state, out, worker, crashed, now);
  state.workers.delete(worker.profile.id);
  placeWork(state, out, now);
  enlistWork(state, out);
}

/** Nothing new for this worker; its stock comes back. */
export function onDrain(state: State, out: Decisions, id: WorkerId): void {
  const worker = state.workers.get(id);
  if (worker === undefined || worker.draining) return;
  worker.draining = true;
  delist(state, worker);
  retractClaims(out, worker, worker.stocked);
  // A wide task may have waited for this worker and must look for another.
  placeWork(state, out, state.now);
  enlistWork(state, out);
}

/** What the worker offers has changed. */
export function onProfile(state: State, out: Decisions, profile: WorkerProfile, now: number): void {
  const worker = state.workers.get(profile.id);
  if (worker?.connected !== true) return;
  worker.profile = profile;
  resetRoom(state, worker);
  reenlist(state, worker);
  fillWorker(state, out, worker, now);
  placeWork(state, out, now);
  enlistWork(state, out);
}

/** After a start of the broker: a claim whose worker has yet to come back. */
export function restoreClaim(state: State, held: HeldParcel, now: number): void {
  const { parcel, settled } = held;
  const job = state.jobs.get(parcel.job);
  if (job === undefined || parcel.worker === undefined) return;
  const worker = state.workers.get(parcel.worker) ?? enterWorker(state, absentProfile(parcel.worker));
  // A task is in one parcel: what was known of it here is what this broker had before another adopted the worker.
  for (const stale of claimsWithin(worker, parcel.job, parcel)) dropClaim(state, stale);
  reindex(worker);
  const tasks = new Uint8Array(sizeOf(parcel));
  for (let i = 0; i < tasks.length; i++) if (contains(settled, parcel.first + i)) tasks[i] = GONE;
  enterClaim(state, worker, job, { ...parcel, parcel: parcel.id }, tasks);
  // It may have as many tasks out now as it may have.
  requeue(state, job);
  if (!worker.connected && worker.grace === undefined) beginGrace(state, worker, now);
}

/**
 * Claims of a broker that died, taken over. A worker that is connected here holds none of them: what it had when it came was
 * adopted then, and what the dead broker handed it later never arrived. So those tasks wait again at once; those of a worker that is
 * away are kept for it during the grace period.
 */
export function onOrphans(state: State, out: Decisions, orphans: readonly HeldParcel[], now: number): void {
  for (const held of orphans) {
    restoreClaim(state, held, now);
    const worker = held.parcel.worker === undefined ? undefined : state.workers.get(held.parcel.worker);
    if (worker?.connected !== true) continue;
    for (const claim of [...claimsWithin(worker, held.parcel.job, held.parcel)])
      loseClaim(state, out, claim, () => false, now);
    fillWorker(state, out, worker, now);
  }
  placeWork(state, out, now);
}

function absentProfile(id: WorkerId): WorkerProfile {
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
    stocks: false,
  };
}

/** Below every use, so that the order of joining decides among workers that were never used. */
const NEVER_USED = -(2 ** 52);

function enterWorker(state: State, profile: WorkerProfile): WorkerState {
  const worker: WorkerState = {
    profile,
    connected: false,
    draining: false,
    standing: "good",
    free: { ...profile.total },
    lastUse: NEVER_USED + state.joins++,
    levels: new Map(),
    claims: new Map(),
    stocked: new Set(),
    stock: 0,
    out: 0,
    requests: new Set(),
    capableOf: new Set(),
    rate: 0,
    windowStart: -1,
    windowCount: 0,
  };
  state.workers.set(profile.id, worker);
  return worker;
}

function beginGrace(state: State, worker: WorkerState, now: number): void {
  worker.grace = { at: now + (worker.profile.graceMs ?? state.settings.graceMs), kind: "grace", worker };
  state.timers.place(worker.grace);
}

function endGrace(state: State, worker: WorkerState): void {
  if (worker.grace === undefined) return;
  state.timers.remove(worker.grace);
  delete worker.grace;
}
