/** Events of a job: added, more tasks granted, held, cancelled, ended. */
import type { JobId, TaskRangeId } from "../model/ids.js";
import type { Dependency, Job, JobEnd } from "../model/job.js";
import { ALL_TASKS } from "../model/ranges.js";
import { kindOf } from "../model/recipe.js";
import type { LeaseLimit, Progress, RecoveredState, TaskRange } from "../model/store.js";
import { checkHalt, onCancel, workersOf } from "./cancel.js";
import { dropClaim, openTasks } from "./claims.js";
import type { Decisions } from "./decisions.js";
import { releasedOf, unwatchEach, watchEach } from "./each.js";
import {
  addWaiting,
  leaseMore,
  reindexJob,
  releaseIfNoWorker,
  releaseLimited,
  releaseWaiting,
  replaceWaiting,
} from "./job-queue.js";
import { leaseEnded, updateNeedsLease } from "./leasing.js";
import { beginRunShares, isLimitedByStore, mayLeaseJobAgain, onLeaseRefused } from "./limits.js";
import { placeWork, useFreeSlots } from "./placement.js";
import { retractClaims } from "./prefetch.js";
import { TaskQueue } from "./queues.js";
import { signatureFor, type TaskTraits, updateActive } from "./signature.js";
import type { JobState, Signature, State, WorkerState } from "./state.js";
import { restoreClaim } from "./workers.js";

type Demands = Pick<Job, "recipe" | "limits" | "requirement">;

const traitsOf = ({ recipe, limits: { timeLimitMs, timeRequestMs = timeLimitMs, named } }: Demands): TaskTraits => ({
  kind: kindOf(recipe),
  ...(timeRequestMs === undefined ? {} : { timeNeededMs: timeRequestMs }),
  ...(named === undefined ? {} : { named }),
});

export const signatureOfJob = (state: State, job: Demands): Signature =>
  signatureFor(state, job.requirement, traitsOf(job));

/** How many ends of jobs are remembered, at least. */
const RECENT_ENDS = 10_000;

/**
 * Restores the state from the store. Workers with tasks have the grace period, from now, to reconnect. `ends`: the ends
 * of jobs that others wait for, because the broker may have died before it applied them.
 */
export function onOpened(
  state: State,
  out: Decisions,
  recovered: RecoveredState,
  now: number,
  ends: ReadonlyMap<JobId, JobEnd> = new Map(),
): void {
  state.now = now;
  for (const [job, end] of ends) state.recentEnds.set(job, end);
  for (const job of recovered.jobs) addJob(state, job);
  for (const job of state.jobs.values())
    for (const { job: other, each } of job.job.after) if (each !== true) waitFor(state, job, other);
  for (const one of recovered.taskRanges) {
    const job = state.jobs.get(one.taskRange.job);
    if (job === undefined) continue;
    if (one.taskRange.worker === undefined) addWaiting(state, out, job, one.taskRange, now);
    else restoreClaim(state, one, now);
  }
  for (const job of state.jobs.values()) {
    reindexJob(state, job);
    leaseMore(state, out, job);
    releaseIfNoWorker(state, out, job);
  }
  for (const job of [...state.jobs.values()]) applyDependencyEnds(state, out, job);
}

/** Jobs that have ended. */
export type Finished = Pick<ReadonlySet<JobId>, "has">;

/** A job was stored. `finished`: the jobs of its `after` that have ended as required. */
export function onJobAdded(
  state: State,
  out: Decisions,
  job: Job,
  taskRange: TaskRange | undefined,
  finished: Finished,
  now: number,
): void {
  state.now = now;
  const entered = state.jobs.get(job.id) ?? addJob(state, job);
  for (const { job: other, each } of job.after)
    if (each !== true && !finished.has(other)) waitFor(state, entered, other);
  if (taskRange !== undefined) {
    entered.mayLease = taskRange.last + 1 < job.count;
    addWaiting(state, out, entered, taskRange, now);
  }
  applyDependencyEnds(state, out, entered);
  leaseMore(state, out, entered);
  placeWork(state, out, now);
  releaseIfNoWorker(state, out, entered);
}

/** A job that it depends on may have ended otherwise while this one was being stored. */
function applyDependencyEnds(state: State, out: Decisions, job: JobState): void {
  for (const after of job.job.after) {
    const end = state.recentEnds.get(after.job);
    if (end !== undefined && !isSatisfied(after, end)) cancelDependant(state, out, job, after.job, end);
  }
}

const isSatisfied = ({ any, each }: Dependency, end: JobEnd): boolean => any || each === true || end === "succeeded";

function addJob(state: State, job: Job): JobState {
  const entered: JobState = {
    id: job.id,
    job,
    signature: signatureOfJob(state, job),
    held: job.held,
    paused: state.pausedPools.has(job.requirement.pool),
    delayed: job.delayed === true || waitsInDispatch(job),
    cancels: job.cancels,
    waiting: new TaskQueue(),
    ready: 0,
    inBackoff: new Set(),
    pending: new Set(),
    each: new Map(),
    assigned: 0,
    mostRunning: 0,
    started: 0,
    claims: new Set(),
    mayLease: job.cursor < job.count,
    leasing: false,
    leaseRefused: false,
    eachStalled: isLimitedByStore(state, job.limits) && job.after.some(({ each }) => each),
    leasingTasks: 0,
    served: 0,
    blockedBy: new Set(),
    failed: job.counters.failed,
    succeeded: job.counters.succeeded,
    halted: false,
  };
  state.jobs.set(job.id, entered);
  // If it runs again, jobs that depend on it wait for its new end.
  state.recentEnds.delete(job.id);
  countPriority(state, job.priority, 1);
  watchEach(state, entered);
  return entered;
}

function countPriority(state: State, priority: number, more: number): void {
  const jobs = (state.priorities.get(priority) ?? 0) + more;
  if (jobs > 0) state.priorities.set(priority, jobs);
  else state.priorities.delete(priority);
}

/** A delayed job that also waits for other jobs is known here early. Once tasks were granted, its time has come. */
export const waitsInDispatch = ({ notBefore, after, cursor }: Job): boolean =>
  notBefore !== undefined && after.length > 0 && cursor === 0;

/** The time of these jobs has come. */
export function onJobsDue(state: State, out: Decisions, ids: readonly JobId[], now: number): void {
  state.now = now;
  for (const id of ids) {
    const job = state.jobs.get(id);
    if (job?.delayed !== true) continue;
    job.delayed = false;
    reindexJob(state, job);
    leaseMore(state, out, job);
  }
  placeWork(state, out, now);
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
  taskRanges: readonly TaskRange[],
  mayLease: boolean,
  now: number,
  limited?: LeaseLimit,
): void {
  const job = state.jobs.get(id);
  if (job === undefined) return;
  leaseEnded(job);
  job.mayLease = mayLease;
  if (limited !== undefined) onLeaseRefused(state, job, limited, now);
  for (const taskRange of taskRanges) {
    if (taskRange.attempt > 0) dropMovedClaims(state, out, job, taskRange);
    addWaiting(state, out, job, taskRange, now);
  }
  job.eachStalled = isLimitedByStore(state, job.job.limits) && isStalled(job);
  releaseLimited(state, out, job);
  reindexJob(state, job);
  leaseMore(state, out, job);
  placeWork(state, out, now);
  releaseIfNoWorker(state, out, job);
}

/** All granted tasks wait for tasks of other jobs. */
const isStalled = (job: JobState): boolean =>
  job.pending.size > 0 &&
  job.ready === 0 &&
  [...job.pending].every((range) => releasedOf(job.each, range).length === 0);

/**
 * Drops claims of tasks that wait in the store: their worker has moved to another broker, which released them, and the
 * message about it has not arrived here yet.
 */
function dropMovedClaims(state: State, out: Decisions, job: JobState, { first, last }: TaskRange): void {
  for (const claim of [...job.claims]) {
    if (!openTasks(claim).some((index) => index >= first && index <= last)) continue;
    dropClaim(state, claim);
    useFreeSlots(state, out, claim.worker);
  }
}

/** A hint that the store may have more tasks of a job to grant: another broker died or released some. */
export function onMayLease(state: State, out: Decisions, id: JobId): void {
  const job = state.jobs.get(id);
  if (job === undefined) return;
  job.mayLease = true;
  leaseMore(state, out, job);
}

/** The store has held or released the job. */
export function onHold(state: State, out: Decisions, id: JobId, held: boolean, now: number): void {
  const job = state.jobs.get(id);
  if (job === undefined) return;
  job.held = held;
  stopOrGoOn(state, out, job, held);
  placeWork(state, out, now);
}

/** No task of the pool is started until it is resumed (`paused` is undefined). */
export function onPoolPaused(
  state: State,
  out: Decisions,
  pool: string,
  paused: { readonly reason?: string } | undefined,
  now: number,
): void {
  if (paused === undefined) state.pausedPools.delete(pool);
  else state.pausedPools.set(pool, paused.reason);
  for (const job of state.jobs.values()) {
    if (job.job.requirement.pool !== pool || job.paused === (paused !== undefined)) continue;
    job.paused = paused !== undefined;
    stopOrGoOn(state, out, job, job.paused);
  }
  placeWork(state, out, now);
}

function stopOrGoOn(state: State, out: Decisions, job: JobState, stopped: boolean): void {
  reindexJob(state, job);
  if (!stopped) {
    leaseMore(state, out, job);
    return;
  }
  releaseLimited(state, out, job);
  for (const worker of workersOf(job)) retractClaims(out, worker, worker.claims.get(job.id) ?? []);
}

/** The store has changed the job: its priority, limits or number of tasks. */
export function onJobEdited(state: State, out: Decisions, job: Job, now: number): void {
  const known = state.jobs.get(job.id);
  if (known === undefined) return;
  state.now = now;
  const before = known.job;
  const { signature } = known;
  // The priority determines the order of the following changes.
  signature.jobs.remove(known);
  updateNeedsLease(state, known, false);
  known.job = job;
  countPriority(state, before.priority, -1);
  countPriority(state, job.priority, 1);
  known.signature = signatureOfJob(state, job);
  signature.leasingTasks -= known.leasingTasks;
  known.signature.leasingTasks += known.leasingTasks;
  updateActive(state, signature);
  if (job.count > before.count) known.mayLease = true;
  const { maxRunning, timeLimitMs } = job.limits;
  const limited = maxRunning !== before.limits.maxRunning;
  if (limited && before.limits.maxRunning === undefined) beginRunShares(known);
  // Tasks that have not started start under the new limits.
  if (limited || timeLimitMs !== before.limits.timeLimitMs)
    for (const worker of workersOf(known)) retractClaims(out, worker, worker.claims.get(job.id) ?? []);
  if (limited) mayLeaseJobAgain(state, known);
  reindexJob(state, known);
  // More tasks may be leased than the limit permits.
  if (limited && state.shared) releaseWaiting(state, out, known);
  leaseMore(state, out, known);
  placeWork(state, out, now);
  releaseIfNoWorker(state, out, known);
}

/** The store has recorded ends of tasks, and perhaps of the job. */
export function onProgress(state: State, out: Decisions, id: JobId, progress: Progress, now: number): void {
  applyProgress(state, out, id, progress);
  if (progress.ended !== undefined) placeWork(state, out, now);
}

/** The same for one of many: the caller places work after the last. */
export function applyProgress(state: State, out: Decisions, id: JobId, progress: Progress): void {
  const job = state.jobs.get(id);
  if (job === undefined) return;
  // Fewer than before: some run again at another broker.
  const { failed, succeeded } = progress.counters;
  const again = failed < job.failed || succeeded < job.succeeded;
  job.failed = failed;
  job.succeeded = succeeded;
  if (progress.ended !== undefined) endJob(state, out, job, progress.ended);
  else if (!again) checkHalt(state, out, job);
}

/** The store refused a job that was already added: it is removed. */
export function onJobRefused(state: State, out: Decisions, id: JobId, now: number): void {
  const job = state.jobs.get(id);
  if (job === undefined) return;
  endJob(state, out, job, "cancelled");
  placeWork(state, out, now);
}

function endJob(state: State, out: Decisions, job: JobState, end: JobEnd): void {
  const freed = workersOf(job);
  for (const claim of [...job.claims]) dropClaim(state, claim);
  replaceWaiting(job, []);
  job.inBackoff.clear();
  unwatchEach(state, job);
  job.mayLease = false;
  mayLeaseJobAgain(state, job);
  leaseEnded(job);
  reindexJob(state, job);
  state.jobs.delete(job.id);
  rememberEnd(state, job.id, end);
  for (const other of job.blockedBy) state.waitingFor.get(other)?.delete(job);
  for (const worker of freed) useFreeSlots(state, out, worker);
  countPriority(state, job.job.priority, -1);
  const waiting = state.waitingFor.get(job.id) ?? [];
  state.waitingFor.delete(job.id);
  for (const one of waiting) dependencyEnded(state, out, one, job.id, end);
}

function rememberEnd(state: State, id: JobId, end: JobEnd): void {
  state.recentEnds.set(id, end);
  if (state.recentEnds.size < 2 * RECENT_ENDS) return;
  // Many at once: finding the oldest of a map takes the longer, the more have been deleted.
  for (const oldest of state.recentEnds.keys()) {
    if (state.recentEnds.size <= RECENT_ENDS) break;
    state.recentEnds.delete(oldest);
  }
}

function dependencyEnded(state: State, out: Decisions, job: JobState, other: JobId, end: JobEnd): void {
  job.blockedBy.delete(other);
  if (job.job.after.every((after) => after.job !== other || isSatisfied(after, end))) {
    reindexJob(state, job);
    leaseMore(state, out, job);
  } else {
    cancelDependant(state, out, job, other, end);
  }
}

function cancelDependant(state: State, out: Decisions, job: JobState, other: JobId, end: JobEnd): void {
  const all = [ALL_TASKS];
  const why = `job ${other}, which it waits for, ${end === "failed" ? "failed" : "was cancelled"}`;
  onCancel(state, out, job.id, all, why);
}

/** These task ranges belong to another broker now. They are dropped without telling anyone. */
export function onTaskRangesLost(state: State, out: Decisions, lost: ReadonlySet<TaskRangeId>, now: number): void {
  const freed = new Set<WorkerState>();
  for (const job of state.jobs.values()) {
    for (const claim of [...job.claims]) {
      if (!lost.has(claim.rangeId)) continue;
      dropClaim(state, claim);
      freed.add(claim.worker);
    }
    replaceWaiting(
      job,
      [...job.waiting].filter((waiting) => !lost.has(waiting.rangeId)),
    );
    for (const waiting of job.inBackoff) if (lost.has(waiting.rangeId)) job.inBackoff.delete(waiting);
    for (const pending of job.pending) if (lost.has(pending.id)) job.pending.delete(pending);
    reindexJob(state, job);
  }
  for (const worker of freed) useFreeSlots(state, out, worker);
  placeWork(state, out, now);
}
