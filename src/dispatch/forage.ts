/**
 * How much a broker takes from a store that it shares. What it has leased waits for its workers alone, so it leases what they will
 * soon use and no more, or those of another broker would stand idle beside it:
 *
 * - of a job whose tasks are short, half a second's work of the workers here, before what waits runs dry;
 * - of any other job, and of one of which none has ended yet, what fits into the room there is now. Where there is no room the job is
 *   hungry, and is looked at again when room comes;
 * - a few, although there is no room, of a job that must compete here: others of no higher priority wait, or a wide task needs a worker
 *   kept for it. A job of which nothing waits is in nobody's order, and would never have its turn.
 *
 * One lease at a time is under way for hungry jobs of a signature: what it brings may fill the room.
 */
import type { Job } from "../model/job.js";
import type { Decisions } from "./decisions.js";
import { fitCount, wholeCount } from "./signature.js";
import { type JobState, newParcelId, type Signature, type State } from "./state.js";

const AHEAD_MS = 500;
const SHORTEST_MS = 0.02;

/** Put the job among the hungry ones of its signature, or out of them, after anything that this looks at has changed. */
export function markHunger(state: State, job: JobState, mayRun: boolean): void {
  const { signature } = job;
  if (state.shared && job.more && !job.leasing && job.ready === 0 && mayRun) {
    signature.hungry.place(job);
    state.hungry.add(signature);
  } else {
    signature.hungry.remove(job);
    if (signature.hungry.size === 0) state.hungry.delete(signature);
  }
}

/** Room may have come, or the order may have changed: lease for the hungry job that goes next. */
export function forage(state: State, out: Decisions): void {
  if (state.halted) return;
  for (const signature of [...state.hungry]) {
    const job = signature.hungry.peek();
    if (job === undefined || signature.foraging?.leasing === true) continue;
    const most = wanted(state, job);
    if (most > 0) lease(state, out, job, most);
  }
}

/** Of a job that has something waiting: ask for more before it runs dry. */
export function forageAhead(state: State, out: Decisions, job: JobState): void {
  const ahead = shortAhead(state, job);
  if (ahead !== undefined && job.ready <= ahead / 2) lease(state, out, job, ahead);
}

/** How many tasks of a new job are leased with its submission. */
export function firstLease(state: State, signature: Signature, job: Beginning): number {
  const { after, limits, priority, held } = job;
  if (held || after.length > 0 || signature.capable.size === 0) return 0;
  const room = roomFor(state, signature, priority);
  return Math.min(room, limits.maxRunning ?? room);
}

type Beginning = Pick<Job, "after" | "limits" | "priority" | "held">;

/** Jobs of which tasks wait here although no worker here has room, and would for a while: workers of other brokers may have. */
export function stuckJobs(state: State): JobState[] {
  return [...state.jobs.values()].filter((job) => {
    const { signature, ready } = job;
    return ready > 0 && !signature.wide && signature.fitting.size === 0 && shortAhead(state, job) === undefined;
  });
}

function wanted(state: State, job: JobState): number {
  const { signature } = job;
  if (signature.capable.size === 0) return 0;
  const most = shortAhead(state, job) ?? roomFor(state, signature, job.job.priority);
  const { maxRunning } = job.job.limits;
  return maxRunning === undefined ? most : Math.min(most, maxRunning - job.out);
}

/** What the workers here do of a job with short tasks in a moment; undefined for any other. */
function shortAhead(state: State, { meanMs, signature }: JobState): number | undefined {
  const { stockTaskMs, leaseBlock } = state.settings;
  if (meanMs === undefined || meanMs > stockTaskMs) return undefined;
  const ahead = (capacityOf(signature) * AHEAD_MS) / Math.max(meanMs, SHORTEST_MS);
  return Math.min(leaseBlock, Math.max(1, Math.ceil(ahead)));
}

function roomFor(state: State, signature: Signature, priority: number): number {
  const { leaseBlock } = state.settings;
  let room = 0;
  for (const worker of signature.fitting) {
    room += fitCount(worker, signature);
    if (room >= leaseBlock) return leaseBlock;
  }
  if (room > 0) return room;
  if (signature.wide) return 1;
  return isContested(state, signature, priority) ? Math.min(leaseBlock, capacityOf(signature)) : 0;
}

/** Whether jobs wait here that a job of this priority would go before, or share with. */
function isContested(state: State, signature: Signature, priority: number): boolean {
  for (const other of state.active) {
    const next = other.jobs.peek();
    if (next !== undefined && next.job.priority <= priority && other.requirement.pool === signature.requirement.pool)
      return true;
  }
  return false;
}

/** How many tasks the workers here could have at once. */
function capacityOf(signature: Signature): number {
  if (signature.capacity === undefined) {
    let capacity = 0;
    for (const worker of signature.capable) capacity += wholeCount(worker, signature);
    signature.capacity = capacity;
  }
  return signature.capacity;
}

function lease(state: State, out: Decisions, job: JobState, most: number): void {
  const { signature } = job;
  job.leasing = true;
  markHunger(state, job, false);
  signature.foraging = job;
  out.writes.push({ op: "lease", job: job.id, most, parcel: newParcelId(state) });
}
