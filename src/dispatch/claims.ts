/** Claims: tasks assigned to workers. Creates and finds them, and returns tasks from them. */
import type { TaskResult } from "../model/outcome.js";
import { firstEndingAtOrAfter, type Range, type Ranges, rangesOf, sizeOf } from "../model/ranges.js";
import type { TaskRange } from "../model/store.js";
import type { Decisions } from "./decisions.js";
import { addWaiting, reindexJob, releaseWaiting, replaceRange } from "./job-queue.js";
import { countLimited, countRuns, isLimitedByStore, mayLeaseJobAgain, mayPlace, setAtOnce } from "./limits.js";
import { fitCount, occupy } from "./signature.js";
import {
  type Claim,
  GONE,
  type JobState,
  newTaskRangeId,
  STARTED,
  type State,
  type TaskState,
  type TaskStates,
  UNSTARTED,
  type WorkerState,
} from "./state.js";

/** Up to this many tasks a plain list is cheaper than a typed array. */
const FEW = 16;

type ClaimShape = Pick<Claim, "rangeId" | "first" | "last" | "attempt" | "failures" | "crashes">;

/** Adds a claim. It occupies no slots yet: all of its tasks are prefetched until `placePrefetched` places them. */
export function addClaim(
  state: State,
  worker: WorkerState,
  job: JobState,
  shape: ClaimShape,
  tasks?: TaskStates,
): Claim {
  const size = sizeOf(shape);
  const states = tasks ?? (size > FEW ? new Uint8Array(size) : new Array<number>(size).fill(UNSTARTED));
  let open = size;
  if (tasks !== undefined) for (const task of tasks) if (task === GONE) open--;
  // Field by field: a claim is created for every assignment, and object spread takes several times as long.
  const claim: Claim = {
    rangeId: shape.rangeId,
    job,
    worker,
    first: shape.first,
    last: shape.last,
    attempt: shape.attempt,
    failures: shape.failures,
    crashes: shape.crashes,
    tasks: states,
    open,
    started: 0,
    placed: 0,
    prefetched: 0,
    retracting: false,
    startedAt: undefined,
    passed: worker.reservedFor,
  };
  const beside = worker.claims.get(job.id);
  if (beside === undefined) {
    worker.claims.set(job.id, [claim]);
  } else {
    beside.splice(firstEndingAtOrAfter(beside, claim.first), 0, claim);
  }
  job.claims.add(claim);
  countAssigned(state, claim, open);
  addPrefetched(state, claim, open);
  if (tasks !== undefined) addStarted(claim, openTasks(claim, STARTED).length);
  return claim;
}

export function setTaskState(claim: Claim, index: number, to: TaskState): void {
  const at = index - claim.first;
  addStarted(claim, Number(to === STARTED) - Number(claim.tasks[at] === STARTED));
  claim.tasks[at] = to;
}

function countAssigned(state: State, { worker, job }: Claim, count: number): void {
  job.assigned += count;
  worker.assigned += count;
  countRuns(worker, job, count);
  if (job.signature.limits !== undefined) countLimited(state, job.signature, count);
  if (count < 0) mayLeaseJobAgain(state, job);
}

function addStarted(claim: Claim, count: number): void {
  claim.started += count;
  claim.job.started += count;
  claim.worker.started += count;
}

/** Places as many prefetched tasks as fit into the worker's free slots, at most `max`. */
export function placePrefetched(state: State, claim: Claim, max = claim.prefetched): void {
  const { worker, job } = claim;
  const count = Math.min(max, claim.prefetched, fitCount(worker, job.signature), mayPlace(worker, job));
  if (count <= 0) return;
  occupy(worker, job.job.requirement.needs, count, claim.passed);
  claim.placed += count;
  addPrefetched(state, claim, -count);
}

/** All tasks of the claim count as prefetched, and occupy nothing. */
export function unplaceAll(state: State, claim: Claim): void {
  const { placed } = claim;
  occupy(claim.worker, claim.job.job.requirement.needs, -placed, claim.passed);
  claim.placed = 0;
  addPrefetched(state, claim, placed);
}

/** Slots became free: prefetched tasks take them in the order of their assignment. */
export function placeAllPrefetched(state: State, worker: WorkerState): void {
  for (const claim of worker.prefetchedClaims) {
    if ((worker.free.slots ?? 0) <= worker.profile.reserveRequests) return;
    placePrefetched(state, claim);
  }
}

function addPrefetched(state: State, claim: Claim, count: number): void {
  const { worker } = claim;
  claim.prefetched += count;
  worker.prefetched += count;
  if (claim.prefetched > 0) worker.prefetchedClaims.add(claim);
  else worker.prefetchedClaims.delete(claim);
  if (worker.prefetched > 0) state.workersWithPrefetched.add(worker);
  else state.workersWithPrefetched.delete(worker);
}

/** Removes one task from its claim. The worker decides which tasks occupy slots; only their number is known. */
export function removeFromClaim(state: State, claim: Claim, index: number): void {
  setTaskState(claim, index, GONE);
  claim.startedAt?.delete(index);
  claim.open--;
  countAssigned(state, claim, -1);
  if (claim.placed > 0) {
    claim.placed--;
    occupy(claim.worker, claim.job.job.requirement.needs, -1, claim.passed);
  } else {
    addPrefetched(state, claim, -1);
  }
  if (claim.open === 0) dropClaim(state, claim);
}

/** Removes a claim with all its tasks. */
export function dropClaim(state: State, claim: Claim): void {
  const { worker, job } = claim;
  if (claim.placed > 0) occupy(worker, job.job.requirement.needs, -claim.placed, claim.passed);
  claim.placed = 0;
  addPrefetched(state, claim, -claim.prefetched);
  countAssigned(state, claim, -claim.open);
  claim.open = 0;
  addStarted(claim, -claim.started);
  job.claims.delete(claim);
  const beside = worker.claims.get(job.id);
  if (beside === undefined) return;
  const at = firstEndingAtOrAfter(beside, claim.first);
  if (beside[at] === claim) beside.splice(at, 1);
  if (beside.length === 0) worker.claims.delete(job.id);
}

export function openTasks(claim: Claim, state?: typeof STARTED | typeof UNSTARTED): number[] {
  const found: number[] = [];
  for (let i = 0; i < claim.tasks.length; i++) {
    const task = claim.tasks[i];
    if (task !== GONE && (state === undefined || task === state)) found.push(claim.first + i);
  }
  return found;
}

/** A task that returns to the queue, with its failures and crashes after this attempt. */
export interface ReturnedTask {
  readonly index: number;
  readonly failures: number;
  readonly crashes: number;
  readonly notBefore: number;
  readonly waitMs?: number;
}

interface TaskReturn {
  readonly returned: readonly ReturnedTask[];
  /** Tasks that are removed before they run because they were cancelled. */
  readonly cancelled?: readonly number[];
  /** Results of attempts that were not the last. */
  readonly earlierAttempts?: readonly TaskResult[];
  /** Prefer another worker next time. */
  readonly avoid?: boolean;
}

/** Returns tasks from a claim to the queue. Tasks that stay with the worker get their own task ranges. */
export function returnToQueue(state: State, out: Decisions, claim: Claim, back: TaskReturn, now: number): void {
  const { job, worker } = claim;
  const cancelled = back.cancelled ?? [];
  for (const { index } of back.returned) setTaskState(claim, index, GONE);
  for (const index of cancelled) setTaskState(claim, index, GONE);
  const kept = rangesOf(openTasks(claim));
  const base = { job: job.id, notBefore: 0 };
  const stays: TaskRange[] = kept.map((range) => ({
    ...base,
    ...range,
    id: newTaskRangeId(state),
    attempt: claim.attempt,
    failures: claim.failures,
    crashes: claim.crashes,
    worker: worker.profile.id,
  }));
  const goes: TaskRange[] = [];
  for (const { ranges, ...history } of groupByHistory(back.returned)) {
    for (const range of ranges) {
      const avoid = back.avoid === true ? { avoid: worker.profile.id } : {};
      goes.push({
        ...base,
        ...range,
        id: newTaskRangeId(state),
        attempt: claim.attempt,
        ...history,
        ...avoid,
      });
    }
  }
  replaceRange(state, out, job, claim.rangeId, [...stays, ...goes], {
    earlierAttempts: back.earlierAttempts ?? [],
    cancelled: cancelled.length,
  });
  const atOnce = worker.runShares.get(job)?.atOnce;
  dropClaim(state, claim);
  for (const piece of stays) {
    const states = claim.tasks.slice(piece.first - claim.first, piece.last - claim.first + 1);
    const entered = addClaim(state, worker, job, { ...piece, rangeId: piece.id }, states);
    entered.startedAt = startedWithin(claim, piece);
    entered.passed = claim.passed;
    // The claim may have been the worker's last one of the job.
    if (atOnce !== undefined) setAtOnce(worker, job, atOnce);
    placePrefetched(state, entered);
  }
  for (const piece of goes) addWaiting(state, out, job, piece, now);
  // While they wait, they would count against the limits. Each start needs its own lease.
  if (isLimitedByStore(state, job.job.limits)) releaseWaiting(state, out, job);
  reindexJob(state, job);
}

function startedWithin({ startedAt }: Claim, { first, last }: Range): Map<number, number> | undefined {
  if (startedAt === undefined) return undefined;
  let found: Map<number, number> | undefined;
  for (let index = first; index <= last; index++) {
    const at = startedAt.get(index);
    if (at === undefined) continue;
    found ??= new Map();
    found.set(index, at);
  }
  return found;
}

function groupByHistory(
  returned: readonly ReturnedTask[],
): (Omit<ReturnedTask, "index"> & { readonly ranges: Ranges })[] {
  const groups = new Map<string, { sample: ReturnedTask; indices: number[] }>();
  for (const one of returned) {
    const key = `${one.failures} ${one.crashes} ${one.notBefore}`;
    const group = groups.get(key);
    if (group === undefined) groups.set(key, { sample: one, indices: [one.index] });
    else group.indices.push(one.index);
  }
  return [...groups.values()].map(({ sample: { index: _, ...history }, indices }) => ({
    ...history,
    ranges: rangesOf(indices.sort((a, b) => a - b)),
  }));
}
