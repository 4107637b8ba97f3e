/** The life of a job: added, granted more of its tasks, held, cancelled, ended. */
import type { JobId, ParcelId } from "../model/ids.js";
import type { Job, JobEnd } from "../model/job.js";
import { countOf, type Ranges, sizeOf, union, within, without } from "../model/ranges.js";
import type { Held, Parcel, Progress } from "../store/contract.js";
import { dropClaim } from "./claims.js";
import type { Decisions } from "./decisions.js";
import { placeWork } from "./place.js";
import { addWaiting, refill, relinquish, requeue } from "./queue.js";
import { reindex, signatureFor } from "./signature.js";
import { type JobState, newParcelId, type State, type Waiting } from "./state.js";
import { retractClaims } from "./stock.js";
import { cancelAt, restoreClaim } from "./workers.js";

/** Take up what the store has kept. Workers that hold tasks have the grace period, from now, to come back. */
export function onOpened(state: State, out: Decisions, held: Held, now: number): void {
  for (const job of held.jobs) enterJob(state, job);
  for (const job of state.jobs.values()) for (const { job: other } of job.job.after) waitFor(state, job, other);
  for (const one of held.parcels) {
    const job = state.jobs.get(one.parcel.job);
    if (job === undefined) continue;
    if (one.parcel.worker === undefined) addWaiting(state, out, job, one.parcel, now);
    else restoreClaim(state, one, now);
  }
  for (const job of state.jobs.values()) {
    requeue(state, job);
    refill(state, out, job);
    relinquish(state, out, job);
  }
}

/** A job was stored. `finished` are the jobs of its `after` that have ended as it wants. */
export function onJobAdded(
  state: State,
  out: Decisions,
  job: Job,
  parcel: Parcel | undefined,
  finished: ReadonlySet<JobId>,
  now: number,
): void {
  const entered = enterJob(state, job);
  for (const { job: other } of job.after) if (!finished.has(other)) waitFor(state, entered, other);
  if (parcel !== undefined) {
    entered.more = parcel.last + 1 < job.count;
    addWaiting(state, out, entered, parcel, now);
  }
  refill(state, out, entered);
  placeWork(state, out, now);
  relinquish(state, out, entered);
}

function enterJob(state: State, job: Job): JobState {
  const entered: JobState = {
    id: job.id,
    job,
    signature: signatureFor(state, job.requirement, false),
    held: job.held,
    cancels: job.cancels,
    waiting: [],
    ready: 0,
    later: new Set(),
    out: 0,
    claims: new Set(),
    more: job.cursor < job.count,
    leasing: false,
    served: 0,
    blockedBy: new Set(),
    failed: job.counters.failed,
  };
  state.jobs.set(job.id, entered);
  state.priorities.set(job.priority, (state.priorities.get(job.priority) ?? 0) + 1);
  return entered;
}

function waitFor(state: State, job: JobState, other: JobId): void {
  if (!state.jobs.has(other)) return;
  job.blockedBy.add(other);
  const waiting = state.waitingFor.get(other);
  if (waiting === undefined) state.waitingFor.set(other, new Set([job]));
  else waiting.add(job);
}

/** The store has granted tasks of a job. */
export function onGranted(
  state: State,
  out: Decisions,
  id: JobId,
  parcels: readonly Parcel[],
  more: boolean,
  now: number,
): void {
  const job = state.jobs.get(id);
  if (job === undefined) return;
  job.leasing = false;
  job.more = more;
  for (const parcel of parcels) addWaiting(state, out, job, parcel, now);
  requeue(state, job);
  refill(state, out, job);
  placeWork(state, out, now);
  relinquish(state, out, job);
}

/** A hint that the store may have more of a job to grant: another broker died or gave back. */
export function onMore(state: State, out: Decisions, id: JobId): void {
  const job = state.jobs.get(id);
  if (job === undefined) return;
  job.more = true;
  refill(state, out, job);
}

export function onHold(state: State, out: Decisions, id: JobId, held: boolean, now: number): void {
  if (!state.jobs.has(id)) return;
  out.writes.push({ op: "hold", job: id, held });
  onHoldHeard(state, out, id, held, now);
}

/** The same, where another broker has stored it. */
export function onHoldHeard(state: State, out: Decisions, id: JobId, held: boolean, now: number): void {
  const job = state.jobs.get(id);
  if (job === undefined) return;
  job.held = held;
  requeue(state, job);
  if (held) for (const claim of job.claims) retractClaims(out, claim.worker, [claim]);
  else placeWork(state, out, now);
}

/** Cancel tasks of a job: those that wait leave at once, those at workers when the worker says that they are gone. */
export function onCancel(state: State, out: Decisions, id: JobId, ranges: Ranges, reason?: string): void {
  if (!state.jobs.has(id)) return;
  out.writes.push({ op: "cancel", job: id, ranges, ...(reason === undefined ? {} : { reason }) });
  onCancelHeard(state, out, id, ranges);
}

/** The same, where another broker has stored it. */
export function onCancelHeard(state: State, out: Decisions, id: JobId, ranges: Ranges): void {
  const job = state.jobs.get(id);
  if (job === undefined) return;
  job.cancels = union(job.cancels, ranges);
  dropCancelled(state, out, job);
  requeue(state, job);
  for (const worker of new Set([...job.claims].map((claim) => claim.worker))) cancelAt(state, out, worker, id);
}

function dropCancelled(state: State, out: Decisions, job: JobState): void {
  const carve = (waiting: Waiting): Waiting[] | undefined => {
    const cancelled = countOf(within(waiting, job.cancels));
    if (cancelled === 0) return undefined;
    const { attempt, failures, crashes, notBefore, avoid } = waiting;
    const history = { attempt, failures, crashes, notBefore, ...(avoid === undefined ? {} : { avoid }) };
    const pieces = without(waiting, job.cancels).map((range) => ({
      ...range,
      ...history,
      id: newParcelId(state),
      job: job.id,
    }));
    out.writes.push({ op: "replace", job: job.id, parcel: waiting.parcel, pieces, earlier: [], cancelled });
    return pieces.map(({ id, first, last }) => ({ parcel: id, first, last, ...history }));
  };
  const kept = job.waiting.flatMap((waiting) => carve(waiting) ?? [waiting]);
  job.waiting.splice(0, job.waiting.length, ...kept);
  job.ready = kept.reduce((sum, waiting) => sum + sizeOf(waiting), 0);
  for (const waiting of [...job.later]) {
    const pieces = carve(waiting);
    if (pieces === undefined) continue;
    job.later.delete(waiting);
    for (const piece of pieces) {
      job.later.add(piece);
      state.timers.place({ at: piece.notBefore, kind: "retry", job, waiting: piece });
    }
  }
}

/** The store has recorded ends of tasks, and perhaps of the job. */
export function onProgress(state: State, out: Decisions, id: JobId, progress: Progress, now: number): void {
  const job = state.jobs.get(id);
  if (job === undefined) return;
  job.failed = progress.counters.failed;
  if (progress.ended !== undefined) {
    endJob(state, out, job, progress.ended, now);
    return;
  }
  const { maxFails } = job.job.limits;
  if (maxFails === undefined || job.failed <= maxFails || countOf(job.cancels) === job.job.count) return;
  const all = [{ first: 0, last: job.job.count - 1 }];
  onCancel(state, out, id, all, `more than ${maxFails} tasks failed`);
}

function endJob(state: State, out: Decisions, job: JobState, end: JobEnd, now: number): void {
  for (const claim of [...job.claims]) {
    dropClaim(state, claim);
    reindex(claim.worker);
  }
  job.waiting.length = 0;
  job.ready = 0;
  requeue(state, job);
  state.jobs.delete(job.id);
  const { priority } = job.job;
  const left = (state.priorities.get(priority) ?? 1) - 1;
  if (left > 0) {
    state.priorities.set(priority, left);
  } else {
    state.priorities.delete(priority);
    state.servedAt.delete(priority);
  }
  for (const waiting of state.waitingFor.get(job.id) ?? []) dependencyEnded(state, out, waiting, job.id, end);
  state.waitingFor.delete(job.id);
  placeWork(state, out, now);
}

function dependencyEnded(state: State, out: Decisions, job: JobState, other: JobId, end: JobEnd): void {
  job.blockedBy.delete(other);
  const any = job.job.after.some((after) => after.job === other && after.any);
  if (any || end === "succeeded") {
    requeue(state, job);
    refill(state, out, job);
    return;
  }
  const all = [{ first: 0, last: job.job.count - 1 }];
  onCancel(
    state,
    out,
    job.id,
    all,
    `job ${other}, which it waits for, ${end === "failed" ? "failed" : "was cancelled"}`,
  );
}

/** The store says that these parcels are another broker's now: forget them without a word. */
export function onParcelLost(state: State, out: Decisions, lost: ReadonlySet<ParcelId>, now: number): void {
  for (const job of state.jobs.values()) {
    for (const claim of [...job.claims]) {
      if (!lost.has(claim.parcel)) continue;
      dropClaim(state, claim);
      reindex(claim.worker);
    }
    const kept = job.waiting.filter((waiting) => !lost.has(waiting.parcel));
    job.waiting.splice(0, job.waiting.length, ...kept);
    job.ready = kept.reduce((sum, waiting) => sum + sizeOf(waiting), 0);
    for (const waiting of job.later) if (lost.has(waiting.parcel)) job.later.delete(waiting);
    requeue(state, job);
  }
  placeWork(state, out, now);
}
