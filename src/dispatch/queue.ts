/** A job's own line: what waits, what waits for its time, and whether the job stands in its signature's order. */
import { type Range, sizeOf, within, without } from "../model/ranges.js";
import type { Parcel } from "../model/store.js";
import type { Decisions } from "./decisions.js";
import { forage, forageAhead, markHunger, stuckJobs } from "./forage.js";
import { joinLevel } from "./share.js";
import { markActivity } from "./signature.js";
import { type JobState, newParcelId, type State, type Waiting, type WorkerState } from "./state.js";

/** Whether anything of this job may be handed out now. */
export const isReady = (job: JobState): boolean => job.ready > 0 && mayRun(job);

export function mayRun(job: JobState): boolean {
  const { maxRunning } = job.job.limits;
  return !job.held && job.blockedBy.size === 0 && (maxRunning === undefined || job.out < maxRunning);
}

/** Put the job into its signature's order, or out of it, after anything that `isReady` looks at has changed. */
export function requeue(state: State, job: JobState): void {
  const { signature } = job;
  if (isReady(job)) {
    if (!signature.jobs.has(job)) {
      joinLevel(job);
      // What made it ready may be a worker that takes other work; another may have room for it.
      state.unsettled = true;
    }
    signature.jobs.place(job);
  } else {
    signature.jobs.remove(job);
  }
  markActivity(state, signature);
  if (state.shared) markHunger(state, job, mayRun(job));
}

/** Tasks granted or given back to this broker begin to wait. What was cancelled meanwhile leaves at once. */
export function addWaiting(state: State, out: Decisions, job: JobState, parcel: Parcel, now: number): void {
  const cancelled = within(parcel, job.cancels);
  if (cancelled.length === 0) {
    enqueue(state, job, { ...waitingOf(parcel), parcel: parcel.id }, now);
    return;
  }
  const pieces: Parcel[] = [];
  for (const left of without(parcel, job.cancels)) pieces.push({ ...parcel, ...left, id: newParcelId(state) });
  let count = 0;
  for (const range of cancelled) count += sizeOf(range);
  out.writes.push({ op: "replace", job: job.id, parcel: parcel.id, pieces, earlier: [], cancelled: count });
  for (const piece of pieces) enqueue(state, job, { ...waitingOf(piece), parcel: piece.id }, now);
}

function waitingOf(parcel: Parcel): Omit<Waiting, "parcel"> {
  const { first, last, attempt, failures, crashes, notBefore, avoid } = parcel;
  return { first, last, attempt, failures, crashes, notBefore, ...(avoid === undefined ? {} : { avoid }) };
}

function enqueue(state: State, job: JobState, waiting: Waiting, now: number): void {
  if (waiting.notBefore > now) {
    job.later.add(waiting);
    state.timers.place({ at: waiting.notBefore, kind: "retry", job, waiting });
    return;
  }
  job.ready += sizeOf(waiting);
  job.waiting.add(waiting);
  requeue(state, job);
}

/** The backoff of these tasks is over. */
export function fallDue(state: State, job: JobState, waiting: Waiting): void {
  if (!job.later.delete(waiting)) return;
  job.ready += sizeOf(waiting);
  job.waiting.add(waiting);
  requeue(state, job);
}

/** Up to `most` tasks for this worker, all of one parcel. `any`: even what has failed there, for want of others. */
export function takeWaiting(
  job: JobState,
  worker: WorkerState,
  most: number,
  any: boolean,
): (Range & { readonly waiting: Waiting }) | undefined {
  const waiting = job.waiting.frontFor(worker.profile.id) ?? (any ? job.waiting.front : undefined);
  if (waiting === undefined || most < 1) return undefined;
  const first = waiting.first;
  const last = Math.min(waiting.last, first + most - 1);
  waiting.first = last + 1;
  if (waiting.first > waiting.last) job.waiting.dropFront(waiting);
  job.ready -= last - first + 1;
  return { first, last, waiting };
}

/** Put other stretches in the place of all that waits. */
export function replaceWaiting(job: JobState, kept: Iterable<Waiting>): void {
  job.waiting.clear();
  job.ready = 0;
  for (const waiting of kept) {
    job.waiting.add(waiting);
    job.ready += sizeOf(waiting);
  }
}

/** Ask for more before the line runs dry. */
export function refill(state: State, out: Decisions, job: JobState): void {
  if (state.shared) markHunger(state, job, mayRun(job));
  if (!job.more || job.leasing || state.halted || job.blockedBy.size > 0) return;
  if (state.shared) {
    // What nobody here can do is left to others: leasing it would only be giving it back again.
    if (job.ready > 0 && job.signature.capable.size > 0) forageAhead(state, out, job);
    else forage(state, out);
    return;
  }
  if (job.ready > state.settings.leaseBlock / 2) return;
  job.leasing = true;
  out.writes.push({ op: "lease", job: job.id, most: state.settings.leaseBlock, parcel: newParcelId(state) });
}

/** Whatever waits is for other brokers: this one hands out nothing for a while. */
export function relinquishAll(state: State, out: Decisions): void {
  for (const job of state.jobs.values()) giveUpWaiting(state, out, job);
}

/** Others have workers with nothing to do: what is stuck here is for them. */
export function onIdleElsewhere(state: State, out: Decisions): void {
  if (state.halted) return;
  for (const job of stuckJobs(state)) giveUpWaiting(state, out, job);
}

/** No worker here can do any of this job: give back what waits, so that other brokers may lease it. */
export function relinquish(state: State, out: Decisions, job: JobState): void {
  if (state.shared && job.signature.capable.size === 0) giveUpWaiting(state, out, job);
}

/** Whatever waits of this job can be leased by any broker. */
export function giveUpWaiting(state: State, out: Decisions, job: JobState): void {
  const waiting = [...job.waiting, ...job.later];
  if (waiting.length === 0) return;
  for (const { parcel } of waiting) out.writes.push({ op: "release", parcel });
  job.waiting.clear();
  job.later.clear();
  job.ready = 0;
  job.more = true;
  requeue(state, job);
}
