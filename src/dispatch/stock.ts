/**
 * Stock: tasks a worker holds beyond its room, so that the next one starts without a round trip. About 50 ms of the rate
 * measured at that worker, none of a job whose tasks are long or not yet known. Stock can be asked back: for an idle
 * worker, for a higher priority, for a hold, a cancel or a drain.
 */
import { rangesOf } from "../model/ranges.js";
import { openTasks } from "./claims.js";
import type { Decisions, TasksOf } from "./decisions.js";
import { fitCount } from "./signature.js";
import { type Claim, type JobState, type State, UNSTARTED, type WorkerState } from "./state.js";

/** How many stocked workers are looked at for one piece of work that found no room. */
const LOOK_AT = 8;
/** Stock that its holder gets to within this time is not worth moving. */
const NOT_WORTH_MOVING_MS = 5;

/** How many more tasks of this job the worker may hold beyond its room. */
export function stockRoom(state: State, worker: WorkerState, job: JobState): number {
  const { stockMs, stockTaskMs, maxStock } = state.settings;
  const { meanMs } = job;
  if (!worker.profile.stocks || meanMs === undefined || meanMs > stockTaskMs || worker.rate === 0) return 0;
  // A task too wide for the slots kept for requests, or for what is there at all, never starts here.
  const atOnce = Math.max(1, worker.profile.total.slots / job.job.requirement.needs.slots);
  const byLength = (stockMs * atOnce) / Math.max(meanMs, 0.001);
  const aim = Math.ceil(Math.min(stockMs * worker.rate, byLength));
  return Math.max(0, Math.min(aim, maxStock) - worker.stock);
}

/** The worker begins to be busy: its rate is measured from here. */
export function beginWindow(worker: WorkerState, now: number): void {
  worker.windowStart = now;
  worker.windowCount = 0;
}

/** Learn how fast the worker is while it is busy. */
export function measure(worker: WorkerState, count: number, now: number): void {
  worker.windowCount += count;
  const elapsed = now - worker.windowStart;
  if (elapsed >= 1) {
    const rate = worker.windowCount / elapsed;
    worker.rate = worker.rate === 0 ? rate : (worker.rate + rate) / 2;
    beginWindow(worker, now);
  }
}

export function measureJob(job: JobState, meanMs: number): void {
  job.meanMs = job.meanMs === undefined ? meanMs : job.meanMs * 0.8 + meanMs * 0.2;
}

/** A job found no room: stock of lower priority makes way for it. */
export function retractFor(state: State, out: Decisions, job: JobState): void {
  if (state.stocked.size === 0 || !hasLowerPriority(state, job)) return;
  let looked = 0;
  for (const worker of state.stocked) {
    if (++looked > LOOK_AT) return;
    if (!worker.capableOf.has(job.signature)) continue;
    retractClaims(
      out,
      worker,
      [...worker.stocked].filter((claim) => claim.job.job.priority < job.job.priority),
    );
  }
}

/** A worker has room and nothing waits for it: it gets half of what another has in stock. */
export function retractForIdle(state: State, out: Decisions, idle: WorkerState): void {
  if (state.halted || !idle.connected || idle.draining || idle.reservedFor !== undefined) return;
  let looked = 0;
  let most: WorkerState | undefined;
  for (const worker of state.stocked) {
    if (++looked > LOOK_AT) break;
    if (worker === idle || worker.stock <= (most?.stock ?? 0)) continue;
    if (worker.stock < worker.rate * NOT_WORTH_MOVING_MS) continue;
    for (const claim of worker.stocked) {
      if (claim.retracting) break;
      if (idle.capableOf.has(claim.job.signature) && fitCount(idle, claim.job.signature) > 0) most = worker;
    }
  }
  if (most === undefined) return;
  const claims = [...most.stocked].reverse();
  let want = Math.ceil(most.stock / 2);
  for (const claim of claims) {
    if (want <= 0) break;
    if (!idle.capableOf.has(claim.job.signature)) continue;
    const tail = Math.min(want, claim.stock);
    want -= tail;
    retractClaims(out, most, [claim], tail);
  }
}

/** Ask for the stock of these claims back; of each at most the last `most` tasks. */
export function retractClaims(out: Decisions, worker: WorkerState, claims: readonly Claim[], most?: number): void {
  const tasks: TasksOf[] = [];
  for (const claim of claims) {
    if (claim.retracting || claim.stock === 0 || !worker.connected) continue;
    claim.retracting = true;
    const unstarted = openTasks(claim, UNSTARTED);
    const back = unstarted.slice(-Math.min(claim.stock, most ?? claim.stock));
    for (const range of rangesOf(back)) tasks.push({ job: claim.job.id, attempt: claim.attempt, ...range });
  }
  if (tasks.length > 0) out.sends.push({ kind: "retract", worker: worker.profile.id, tasks });
}

function hasLowerPriority(state: State, job: JobState): boolean {
  for (const priority of state.priorities.keys()) if (priority < job.job.priority) return true;
  return false;
}
