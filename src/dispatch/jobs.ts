/** The life of a job: added, granted more of its tasks, held, cancelled, ended. */
import type { JobId, ParcelId } from "../model/ids.js";
import type { After, Job, JobEnd } from "../model/job.js";
import { countOf } from "../model/ranges.js";
import { kindOf } from "../model/recipe.js";
import type { Held, Parcel, Progress } from "../model/store.js";
import { onCancel, workersOf } from "./cancel.js";
import { dropClaim } from "./claims.js";
import type { Decisions } from "./decisions.js";
import { Line } from "./line.js";
import { placeWork, useRoom } from "./place.js";
import { addWaiting, refill, relinquish, replaceWaiting, requeue } from "./queue.js";
import { signatureFor, type TaskTraits } from "./signature.js";
import type { JobState, Signature, State, WorkerState } from "./state.js";
import { retractClaims } from "./stock.js";
import { restoreClaim } from "./workers.js";

type Demands = Pick<Job, "recipe" | "limits" | "requirement">;

const traitsOf = ({ recipe, limits: { timeLimitMs } }: Demands): TaskTraits => ({
  kind: kindOf(recipe),
  ...(timeLimitMs === undefined ? {} : { timeLimitMs }),
});

export const signatureOfJob = (state: State, job: Demands): Signature =>
  signatureFor(state, job.requirement, traitsOf(job));

/** How many ends of jobs are remembered. */
const ENDS_KEPT = 10_000;

/**
 * Take up what the store has kept. Workers that hold tasks have the grace period, from now, to come back. `ends` says how the
 * jobs ended that others wait for: the broker may have died before it drew the consequence.
 */
export function onOpened(
  state: State,
  out: Decisions,
  held: Held,
  now: number,
  ends: ReadonlyMap<JobId, JobEnd> = new Map(),
): void {
  state.now = now;
  for (const [job, end] of ends) state.ends.set(job, end);
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
  for (const job of [...state.jobs.values()]) heedEnds(state, out, job);
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
  state.now = now;
  const entered = state.jobs.get(job.id) ?? enterJob(state, job);
  for (const { job: other } of job.after) if (!finished.has(other)) waitFor(state, entered, other);
  if (parcel !== undefined) {
    entered.more = parcel.last + 1 < job.count;
    addWaiting(state, out, entered, parcel, now);
  }
  heedEnds(state, out, entered);
  refill(state, out, entered);
  placeWork(state, out, now);
  relinquish(state, out, entered);
}

/** A job that it waits for may have ended, and not as wanted, while this one was on its way to the store. */
function heedEnds(state: State, out: Decisions, job: JobState): void {
  for (const after of job.job.after) {
    const end = state.ends.get(after.job);
    if (end !== undefined && !isWanted(after, end)) cancelDependant(state, out, job, after.job, end);
  }
}

const isWanted = ({ any }: After, end: JobEnd): boolean => any || end === "succeeded";

function enterJob(state: State, job: Job): JobState {
  const entered: JobState = {
    id: job.id,
    job,
    signature: signatureOfJob(state, job),
    held: job.held,
    cancels: job.cancels,
    waiting: new Line(),
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
  state.ends.delete(job.id);
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
  if (held) {
    for (const worker of workersOf(job)) retractClaims(out, worker, worker.claims.get(id) ?? []);
  } else {
    refill(state, out, job);
  }
  placeWork(state, out, now);
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

/** A job that was entered while it was on its way to the store, which would not take it: as if it had never been. */
export function onJobRefused(state: State, out: Decisions, id: JobId, now: number): void {
  const job = state.jobs.get(id);
  if (job !== undefined) endJob(state, out, job, "cancelled", now);
}

function endJob(state: State, out: Decisions, job: JobState, end: JobEnd, now: number): void {
  const freed = workersOf(job);
  for (const claim of [...job.claims]) dropClaim(state, claim);
  replaceWaiting(job, []);
  job.later.clear();
  job.more = false;
  job.leasing = false;
  requeue(state, job);
  state.jobs.delete(job.id);
  rememberEnd(state, job.id, end);
  for (const other of job.blockedBy) state.waitingFor.get(other)?.delete(job);
  for (const worker of freed) useRoom(state, out, worker);
  const { priority } = job.job;
  const left = (state.priorities.get(priority) ?? 1) - 1;
  if (left > 0) {
    state.priorities.set(priority, left);
  } else {
    state.priorities.delete(priority);
  }
  const waiting = state.waitingFor.get(job.id) ?? [];
  state.waitingFor.delete(job.id);
  for (const one of waiting) dependencyEnded(state, out, one, job.id, end);
  placeWork(state, out, now);
}

function rememberEnd(state: State, id: JobId, end: JobEnd): void {
  state.ends.set(id, end);
  const [oldest] = state.ends.keys();
  if (state.ends.size > ENDS_KEPT && oldest !== undefined) state.ends.delete(oldest);
}

function dependencyEnded(state: State, out: Decisions, job: JobState, other: JobId, end: JobEnd): void {
  job.blockedBy.delete(other);
  if (job.job.after.every((after) => after.job !== other || isWanted(after, end))) {
    requeue(state, job);
    refill(state, out, job);
  } else {
    cancelDependant(state, out, job, other, end);
  }
}

function cancelDependant(state: State, out: Decisions, job: JobState, other: JobId, end: JobEnd): void {
  const all = [{ first: 0, last: job.job.count - 1 }];
  const why = `job ${other}, which it waits for, ${end === "failed" ? "failed" : "was cancelled"}`;
  onCancel(state, out, job.id, all, why);
}

/** The store says that these parcels are another broker's now: forget them without a word. */
export function onParcelLost(state: State, out: Decisions, lost: ReadonlySet<ParcelId>, now: number): void {
  const freed = new Set<WorkerState>();
  for (const job of state.jobs.values()) {
    for (const claim of [...job.claims]) {
      if (!lost.has(claim.parcel)) continue;
      dropClaim(state, claim);
      freed.add(claim.worker);
    }
    replaceWaiting(
      job,
      [...job.waiting].filter((waiting) => !lost.has(waiting.parcel)),
    );
    for (const waiting of job.later) if (lost.has(waiting.parcel)) job.later.delete(waiting);
    requeue(state, job);
  }
  for (const worker of freed) useRoom(state, out, worker);
  placeWork(state, out, now);
}
