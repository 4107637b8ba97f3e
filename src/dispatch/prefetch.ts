/**
 * Prefetched tasks: tasks that a worker has beyond its free slots, so that the next one starts without a round trip.
 * About 50 ms of the worker's measured rate, or two round trips if these are longer. None of a job whose tasks are
 * wide, long or of unknown length. They can be retracted: for an idle worker, a higher priority, a hold, a cancel or a
 * drain.
 */
import { haltRuleOf, leftToHalt } from "../model/job.js";
import { rangesOf } from "../model/ranges.js";
import { openTasks } from "./claims.js";
import type { AttemptRange, Decisions } from "./decisions.js";
import { isLimitedByStore, runsAtMost, spareRuns } from "./limits.js";
import { mayUse } from "./reservation.js";
import { fitCount } from "./signature.js";
import { type Claim, type JobState, type State, UNSTARTED, type WorkerState } from "./state.js";

/** How many workers with prefetched tasks are considered for one job or idle worker. */
const MAX_CANDIDATES = 8;
/** Prefetched tasks that their worker starts within this time are not worth moving. */
const NOT_WORTH_MOVING_MS = 5;
/** This many short tasks may always be prefetched: with a thousand workers the rate of each is low. */
const MIN_PREFETCH_LIMIT = 64;

/** A longer round trip is not counted: the worker may have been busy with something else. */
const MAX_ROUND_TRIP_MS = 1_000;

/** How many more tasks of this job the worker may prefetch. */
export function prefetchAllowance(state: State, worker: WorkerState, job: JobState): number {
  const { maxPrefetchTaskMs, maxPrefetch } = state.settings;
  const meanMs = expectedMs(job);
  // Tasks are requested when half is gone, so the other half must last for a round trip.
  const prefetchMs = Math.max(state.settings.prefetchMs, 2 * worker.roundTripMs);
  if (!worker.profile.canPrefetch || meanMs === undefined || meanMs > maxPrefetchTaskMs || worker.rate === 0) return 0;
  // Each free slot would go to a narrow task before a prefetched wide one, and no reservation would help it.
  if (job.signature.wide) return 0;
  // The worker may start all tasks that it has.
  if (job.signature.limits !== undefined || isLimitedByStore(state, job.job.limits)) return 0;
  // Its prefetched tasks wait for the end of another task of the job there.
  if (job.job.limits.maxRunning !== undefined && runsAtMost(worker, job) === 0) return 0;
  const atOnce = Math.max(1, worker.profile.total.slots / job.job.requirement.needs.slots);
  const byLength = (prefetchMs * atOnce) / Math.max(meanMs, 0.001);
  // The measured rate of a worker with few tasks is too low. Short tasks need not wait for a better measurement.
  const byRate = Math.max(prefetchMs * worker.rate, MIN_PREFETCH_LIMIT);
  // Prefetched tasks may run although the rest of the job is cancelled. So no more are prefetched than can end without
  // halting it.
  const rule = haltRuleOf(job.job.limits);
  const mayEnd = rule === undefined ? Number.POSITIVE_INFINITY : Math.max(0, leftToHalt(rule, job) - 1);
  const aim = Math.min(Math.ceil(Math.min(byRate, byLength)), maxPrefetch, mayEnd);
  // Refilled when half of it is gone. One by one, each task would be a claim of its own.
  return worker.prefetched > aim / 2 ? 0 : aim - worker.prefetched;
}

/** Expected duration of a task. Until one has ended, the mean of other jobs of the service. */
const expectedMs = ({ meanMs, signature }: JobState): number | undefined =>
  meanMs ?? (signature.requirement.service === undefined ? undefined : signature.meanMs);

/** The worker becomes busy: the measurement of its rate starts. */
export function startRateWindow(worker: WorkerState, now: number): void {
  worker.rateWindowStart = now;
  worker.rateWindowCount = 0;
}

/** Updates the worker's rate while it is busy. */
export function measureRate(worker: WorkerState, count: number, now: number): void {
  if (worker.rateWindowStart < 0) startRateWindow(worker, now);
  worker.rateWindowCount += count;
  const elapsed = now - worker.rateWindowStart;
  if (elapsed >= 1) {
    const rate = worker.rateWindowCount / elapsed;
    worker.rate = worker.rate === 0 ? rate : (worker.rate + rate) / 2;
    startRateWindow(worker, now);
  }
}

/** The first results of a claim that an idle worker got. `tasksMs`: how much of the time since then was tasks. */
export function measureRoundTrip(worker: WorkerState, tasksMs: number, now: number): void {
  const { roundTripProbe: probe } = worker;
  if (probe === undefined || !Number.isFinite(tasksMs)) return;
  const { roundTripMs: before } = worker;
  const measured = Math.min(Math.max(0, now - probe.at - Math.max(0, tasksMs)), MAX_ROUND_TRIP_MS);
  worker.roundTripMs = before === 0 ? measured : (before + measured) / 2;
  delete worker.roundTripProbe;
}

/** Durations come from a worker's clock, which may have been set back. */
export function updateMeanDuration(of: { meanMs?: number }, reportedMs: number): void {
  if (!Number.isFinite(reportedMs)) return;
  const meanMs = Math.max(0, reportedMs);
  of.meanMs = of.meanMs === undefined ? meanMs : of.meanMs * 0.8 + meanMs * 0.2;
}

/** A job found no free slot: retracts prefetched tasks of lower priority. */
export function retractForJob(state: State, out: Decisions, job: JobState): void {
  if (state.workersWithPrefetched.size === 0 || !hasLowerPriority(state, job)) return;
  let considered = 0;
  for (const worker of state.workersWithPrefetched) {
    if (++considered > MAX_CANDIDATES) return;
    if (!worker.capableOf.has(job.signature)) continue;
    retractClaims(
      out,
      worker,
      [...worker.prefetchedClaims].filter((claim) => claim.job.job.priority < job.job.priority),
    );
  }
}

/** A worker has free slots and no work waits: retracts half of another worker's prefetched tasks for it. */
export function retractForIdle(state: State, out: Decisions, idle: WorkerState): void {
  if (state.workersWithPrefetched.size === 0 || idle.reservedFor !== undefined) return;
  if ((idle.free.slots ?? 0) <= idle.profile.reserveRequests) return;
  let considered = 0;
  let donor: WorkerState | undefined;
  for (const worker of state.workersWithPrefetched) {
    if (++considered > MAX_CANDIDATES) break;
    if (worker === idle || worker.prefetched <= (donor?.prefetched ?? 0)) continue;
    const movedMs = Math.max(NOT_WORTH_MOVING_MS, worker.roundTripMs);
    if (worker.prefetched >= worker.rate * movedMs && hasPrefetchedFor(worker, idle)) donor = worker;
  }
  if (donor === undefined) return;
  let want = Math.ceil(donor.prefetched / 2);
  const requested: [Claim, number][] = [];
  // The tasks assigned last would be started last.
  for (const claim of [...donor.prefetchedClaims].reverse()) {
    if (want <= 0) break;
    if (!fits(idle, claim)) continue;
    const tail = Math.min(want, claim.prefetched);
    want -= tail;
    requested.push([claim, tail]);
  }
  retract(out, donor, requested);
}

/**
 * Retracts prefetched tasks that wait although the same worker has free slots: its `atOnce` is too low, and only an
 * assignment can raise it. If no task of the job waits, the retracted ones are assigned again.
 */
export function retractForSelf(state: State, out: Decisions, worker: WorkerState): void {
  for (const job of worker.runShares.keys()) {
    if (job.ready > 0 || spareRuns(job) <= 0 || fitCount(worker, job.signature) === 0) continue;
    if (mayUse(state, worker, job)) retractClaims(out, worker, worker.claims.get(job.id) ?? []);
  }
}

const fits = (worker: WorkerState, { job }: Claim): boolean =>
  worker.capableOf.has(job.signature) &&
  !job.held &&
  !job.paused &&
  spareRuns(job) > 0 &&
  fitCount(worker, job.signature) > 0;

/** Whether the idle worker could run one of the first prefetched tasks. False while some are being retracted. */
function hasPrefetchedFor(worker: WorkerState, idle: WorkerState): boolean {
  let considered = 0;
  let found = false;
  for (const claim of worker.prefetchedClaims) {
    if (claim.retracting) return false;
    found ||= fits(idle, claim);
    if (++considered === MAX_CANDIDATES) break;
  }
  return found;
}

/** Retracts all prefetched tasks of these claims. */
export function retractClaims(out: Decisions, worker: WorkerState, claims: Iterable<Claim>): void {
  retract(
    out,
    worker,
    Array.from(claims, (claim): [Claim, number] => [claim, claim.prefetched]),
  );
}

/** Retracts the last unstarted tasks of each claim, up to the given number. */
function retract(out: Decisions, worker: WorkerState, requested: readonly [Claim, number][]): void {
  if (!worker.connected) return;
  const tasks: AttemptRange[] = [];
  for (const [claim, most] of requested) {
    const count = Math.min(claim.prefetched, most);
    if (claim.retracting || count === 0) continue;
    const back = rangesOf(openTasks(claim, UNSTARTED).slice(-count));
    // If all of them were started, there is nothing to retract and no answer to wait for.
    claim.retracting = back.length > 0;
    for (const range of back) tasks.push({ job: claim.job.id, attempt: claim.attempt, ...range });
  }
  if (tasks.length === 0) return;
  out.sends.push({ kind: "retract", worker: worker.profile.id, tasks });
  out.urgent = true;
}

function hasLowerPriority(state: State, job: JobState): boolean {
  for (const priority of state.priorities.keys()) if (priority < job.job.priority) return true;
  return false;
}
