/** Claims: tasks at workers. Making them, finding them, and giving tasks back from them. */
import type { TaskResult } from "../model/outcome.js";
import { type Range, type Ranges, rangesOf, sizeOf } from "../model/ranges.js";
import type { Parcel } from "../model/store.js";
import type { Decisions } from "./decisions.js";
import { addWaiting, requeue } from "./queue.js";
import { fitCount, occupy } from "./signature.js";
import {
  type Claim,
  firstReaching,
  GONE,
  type JobState,
  newParcelId,
  type STARTED,
  type State,
  type TaskStates,
  UNSTARTED,
  type WorkerState,
} from "./state.js";

/** So many tasks of a claim are few. */
const FEW = 16;

type ClaimShape = Pick<Claim, "parcel" | "first" | "last" | "attempt" | "failures" | "crashes">;

/** Enter a claim into the tables, holding no room yet: all of it is stock until `place`d. */
export function enterClaim(
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
  // Written out: this is made for every hand-out, and a spread takes several times as long.
  const claim: Claim = {
    parcel: shape.parcel,
    job,
    worker,
    first: shape.first,
    last: shape.last,
    attempt: shape.attempt,
    failures: shape.failures,
    crashes: shape.crashes,
    tasks: states,
    open,
    placed: 0,
    stock: 0,
    retracting: false,
    startedAt: undefined,
  };
  const beside = worker.claims.get(job.id);
  if (beside === undefined) {
    worker.claims.set(job.id, [claim]);
  } else {
    beside.splice(firstReaching(beside, claim.first), 0, claim);
  }
  job.claims.add(claim);
  job.out += open;
  worker.out += open;
  addStock(state, claim, open);
  return claim;
}

/** Move as many tasks as fit, and no more than `most`, from stock into the worker's room. */
export function placeFromStock(state: State, claim: Claim, most = claim.stock): void {
  const count = Math.min(most, claim.stock, fitCount(claim.worker, claim.job.signature));
  if (count <= 0) return;
  occupy(claim.worker, claim.job.job.requirement.needs, count);
  claim.placed += count;
  addStock(state, claim, -count);
}

/** All of the claim counts as stock; its room is not given back, the caller reckons that anew. */
export function unplace(state: State, claim: Claim): void {
  const { placed } = claim;
  claim.placed = 0;
  addStock(state, claim, placed);
}

/** After room came free: the stock handed out first takes it first. */
export function promote(state: State, worker: WorkerState): void {
  for (const claim of worker.stocked) {
    if ((worker.free.slots ?? 0) <= worker.profile.reserveRequests) return;
    placeFromStock(state, claim);
  }
}

function addStock(state: State, claim: Claim, count: number): void {
  const { worker } = claim;
  claim.stock += count;
  worker.stock += count;
  if (claim.stock > 0) worker.stocked.add(claim);
  else worker.stocked.delete(claim);
  if (worker.stock > 0) state.stocked.add(worker);
  else state.stocked.delete(worker);
}

/** One task leaves its claim. Which of the tasks hold room is the worker's affair: we only count. */
export function leaveClaim(state: State, claim: Claim, index: number): void {
  claim.tasks[index - claim.first] = GONE;
  claim.startedAt?.delete(index);
  claim.open--;
  claim.job.out--;
  claim.worker.out--;
  if (claim.placed > 0) {
    claim.placed--;
    occupy(claim.worker, claim.job.job.requirement.needs, -1);
  } else {
    addStock(state, claim, -1);
  }
  if (claim.open === 0) dropClaim(state, claim);
}

/** Take a claim out of the tables with whatever is still in it. */
export function dropClaim(state: State, claim: Claim): void {
  const { worker, job } = claim;
  if (claim.placed > 0) occupy(worker, job.job.requirement.needs, -claim.placed);
  claim.placed = 0;
  addStock(state, claim, -claim.stock);
  job.out -= claim.open;
  worker.out -= claim.open;
  claim.open = 0;
  job.claims.delete(claim);
  const beside = worker.claims.get(job.id);
  if (beside === undefined) return;
  const at = firstReaching(beside, claim.first);
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

/** Tasks on their way back to the line, with what this hand-out has cost them. */
export interface Returning {
  readonly index: number;
  readonly failures: number;
  readonly crashes: number;
  readonly notBefore: number;
}

export interface GiveBack {
  readonly returning: readonly Returning[];
  /** Tasks that leave unrun because they were cancelled. */
  readonly cancelled?: readonly number[];
  /** Ends of attempts that were not the last. */
  readonly earlier?: readonly TaskResult[];
  /** Prefer another worker next time. */
  readonly avoid?: boolean;
}

/** Take tasks out of a claim and let them wait again. What stays with the worker gets parcels of its own. */
export function giveBack(state: State, out: Decisions, claim: Claim, back: GiveBack, now: number): void {
  const { job, worker } = claim;
  const cancelled = back.cancelled ?? [];
  for (const { index } of back.returning) claim.tasks[index - claim.first] = GONE;
  for (const index of cancelled) claim.tasks[index - claim.first] = GONE;
  const kept = rangesOf(openTasks(claim));
  const base = { job: job.id, notBefore: 0 };
  const stays: Parcel[] = kept.map((range) => ({
    ...base,
    ...range,
    id: newParcelId(state),
    attempt: claim.attempt,
    failures: claim.failures,
    crashes: claim.crashes,
    worker: worker.profile.id,
  }));
  const goes: Parcel[] = [];
  for (const { failures, crashes, notBefore, ranges } of groupAlike(back.returning)) {
    for (const range of ranges) {
      const avoid = back.avoid === true ? { avoid: worker.profile.id } : {};
      goes.push({
        ...base,
        ...range,
        id: newParcelId(state),
        attempt: claim.attempt,
        failures,
        crashes,
        notBefore,
        ...avoid,
      });
    }
  }
  out.writes.push({
    op: "replace",
    job: job.id,
    parcel: claim.parcel,
    pieces: [...stays, ...goes],
    earlier: back.earlier ?? [],
    cancelled: cancelled.length,
  });
  dropClaim(state, claim);
  for (const piece of stays) {
    const states = claim.tasks.slice(piece.first - claim.first, piece.last - claim.first + 1);
    const entered = enterClaim(state, worker, job, { ...piece, parcel: piece.id }, states);
    entered.startedAt = startedWithin(claim, piece);
    placeFromStock(state, entered);
  }
  for (const piece of goes) addWaiting(state, out, job, piece, now);
  requeue(state, job);
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

function groupAlike(returning: readonly Returning[]): (Omit<Returning, "index"> & { readonly ranges: Ranges })[] {
  const groups = new Map<string, { sample: Returning; indices: number[] }>();
  for (const one of returning) {
    const key = `${one.failures} ${one.crashes} ${one.notBefore}`;
    const group = groups.get(key);
    if (group === undefined) groups.set(key, { sample: one, indices: [one.index] });
    else group.indices.push(one.index);
  }
  return [...groups.values()].map(({ sample, indices }) => ({
    failures: sample.failures,
    crashes: sample.crashes,
    notBefore: sample.notBefore,
    ranges: rangesOf(indices.sort((a, b) => a - b)),
  }));
}

/** The open, unstarted or started, tasks of a claim as stretches to speak of to its worker. */
export const openRanges = (claim: Claim, state?: typeof STARTED | typeof UNSTARTED): readonly Range[] =>
  rangesOf(openTasks(claim, state));
