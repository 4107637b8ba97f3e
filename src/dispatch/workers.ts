/**
 * The life of a worker, as the heart sees it:
 *   connected   takes work; from joining until its connection ends
 *   away        its connection is gone, its tasks are kept for the grace period, if its protocol can resume
 *   gone        forgotten; its tasks wait for others
 * A worker that joins says what it holds. What it should have and does not have went nowhere, and returns to the line.
 */
import type { Attempt, JobId, WorkerId } from "../model/ids.js";
import { contains, type Range, rangesOf } from "../model/ranges.js";
import type { HeldParcel } from "../store/contract.js";
import { enterClaim, openTasks, promote } from "./claims.js";
import type { Decisions, TasksOf } from "./decisions.js";
import { placeWork } from "./place.js";
import { refill, relinquish } from "./queue.js";
import { loseRequests } from "./requests.js";
import { loseClaim, loseClaims, refillAfter } from "./results.js";
import { delist, reenlist } from "./signature.js";
import {
  type Claim,
  claimOf,
  GONE,
  STARTED,
  type State,
  UNSTARTED,
  type WorkerProfile,
  type WorkerState,
} from "./state.js";
import { retractClaims } from "./stock.js";

export interface Holding extends Range {
  readonly job: JobId;
  readonly attempt: Attempt;
  readonly state: "stock" | "running" | "finished";
}

export interface Reconciled {
  /** Running or finished tasks that the worker goes on with. */
  readonly keep: readonly { readonly job: JobId; readonly index: number; readonly attempt: Attempt }[];
  /** Tasks that are no longer its own. */
  readonly drop: readonly TasksOf[];
}

export function onWorkerJoined(
  state: State,
  out: Decisions,
  profile: WorkerProfile,
  held: readonly Holding[],
  now: number,
): Reconciled {
  const known = state.workers.get(profile.id);
  const sameLife = known === undefined || known.profile.session === profile.session;
  if (known?.connected === true) loseRequests(state, out, known);
  const worker = known ?? enterWorker(state, profile);
  endGrace(state, worker);
  worker.connected = false;
  delist(worker);
  worker.profile = profile;
  worker.draining = false;
  const reconciled = reconcile(state, out, worker, held, sameLife, now);
  worker.connected = true;
  resetRoom(worker);
  promote(state, worker);
  worker.windowStart = worker.out > 0 ? now : -1;
  reenlist(state, worker);
  for (const job of worker.claims.keys()) cancelAt(state, out, worker, job);
  refillAfter(state, out, worker, now);
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

/** The whole room is free again: every task counts as stock until it is placed anew. */
function resetRoom(worker: WorkerState): void {
  for (const name of Object.keys(worker.free)) delete worker.free[name];
  Object.assign(worker.free, worker.profile.total);
  for (const claims of worker.claims.values()) {
    for (const claim of claims) {
      worker.stock += claim.placed;
      claim.stock += claim.placed;
      claim.placed = 0;
      claim.retracting = false;
      if (claim.stock > 0) worker.stocked.add(claim);
    }
  }
}

function reconcile(
  state: State,
  out: Decisions,
  worker: WorkerState,
  held: readonly Holding[],
  sameLife: boolean,
  now: number,
): Reconciled {
  const keep: { job: JobId; index: number; attempt: Attempt }[] = [];
  const drop: TasksOf[] = [];
  const has = new Map<Claim, Set<number>>();
  for (const { job, first, last, attempt, state: what } of held) {
    const dropped: number[] = [];
    for (let index = first; index <= last; index++) {
      const claim = claimOf(worker, job, index);
      if (claim === undefined || claim.attempt !== attempt) {
        dropped.push(index);
        continue;
      }
      const indices = has.get(claim);
      if (indices === undefined) has.set(claim, new Set([index]));
      else indices.add(index);
      claim.tasks[index - claim.first] = what === "stock" ? UNSTARTED : STARTED;
      if (what !== "stock") keep.push({ job, index, attempt });
    }
    for (const range of rangesOf(dropped)) drop.push({ job, attempt, ...range });
  }
  for (const claims of [...worker.claims.values()]) {
    for (const claim of [...claims]) {
      const indices = has.get(claim);
      if (indices?.size === claim.open) continue;
      // In the same life it never arrived; in a new one, what had been started died with the old one.
      loseClaim(
        state,
        out,
        claim,
        () => !sameLife,
        now,
        (index) => indices?.has(index) !== true,
      );
    }
  }
  return { keep, drop };
}

/** The connection is gone. */
export function onWorkerAway(state: State, out: Decisions, id: WorkerId, now: number): void {
  const worker = state.workers.get(id);
  if (worker?.connected !== true) return;
  if (!worker.profile.resumable) {
    removeWorker(state, out, worker, true, now);
    return;
  }
  worker.connected = false;
  delist(worker);
  loseRequests(state, out, worker);
  if (worker.out === 0) removeWorker(state, out, worker, true, now);
  else beginGrace(state, worker, now);
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
  delist(worker);
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
  delist(worker);
  retractClaims(out, worker, [...worker.stocked]);
  enlistWork(state, out);
}

/** What the worker offers has changed. */
export function onProfile(state: State, out: Decisions, profile: WorkerProfile, now: number): void {
  const worker = state.workers.get(profile.id);
  if (worker?.connected !== true) return;
  worker.profile = profile;
  reenlist(state, worker);
  refillAfter(state, out, worker, now);
  placeWork(state, out, now);
  enlistWork(state, out);
}

/** After a start of the broker: a claim whose worker has yet to come back. */
export function restoreClaim(state: State, held: HeldParcel, now: number): void {
  const { parcel, settled } = held;
  const job = state.jobs.get(parcel.job);
  if (job === undefined || parcel.worker === undefined) return;
  const worker = state.workers.get(parcel.worker) ?? enterWorker(state, absentProfile(parcel.worker));
  const tasks = new Uint8Array(parcel.last - parcel.first + 1);
  for (let i = 0; i < tasks.length; i++) if (contains(settled, parcel.first + i)) tasks[i] = GONE;
  enterClaim(state, worker, job, { ...parcel, parcel: parcel.id }, tasks);
  if (!worker.connected && worker.grace === undefined) beginGrace(state, worker, now);
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

function enterWorker(state: State, profile: WorkerProfile): WorkerState {
  const worker: WorkerState = {
    profile,
    connected: false,
    draining: false,
    standing: "good",
    free: { ...profile.total },
    lastUse: 0,
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
  worker.grace = { at: now + state.settings.graceMs, kind: "grace", worker };
  state.timers.place(worker.grace);
}

function endGrace(state: State, worker: WorkerState): void {
  if (worker.grace === undefined) return;
  state.timers.remove(worker.grace);
  delete worker.grace;
}

/** Tell a worker to stop those of a job's tasks that were cancelled. */
export function cancelAt(state: State, out: Decisions, worker: WorkerState, id: JobId): void {
  const job = state.jobs.get(id);
  if (job === undefined || job.cancels.length === 0 || !worker.connected) return;
  const tasks: TasksOf[] = [];
  for (const claim of worker.claims.get(id) ?? []) {
    const indices = openTasks(claim).filter((index) => contains(job.cancels, index));
    for (const range of rangesOf(indices)) tasks.push({ job: id, attempt: claim.attempt, ...range });
  }
  if (tasks.length > 0) out.sends.push({ kind: "cancel", worker: worker.profile.id, tasks });
}
