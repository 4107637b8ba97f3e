/** What the brokers of a group know together: where a task is, why it does not run, and how much work there is. */
import { now } from "../../base/clock.js";
import { explain, whyDelayed } from "../../dispatch/index.js";
import { claimOf, STARTED } from "../../dispatch/state.js";
import type { JobId, TaskIndex } from "../../model/ids.js";
import type { Job } from "../../model/job.js";
import { contains } from "../../model/ranges.js";
import type { Core } from "../core.js";
import { countRequests, countWork, countWorkers } from "../stats/counters.js";
import type { Peers } from "./peers.js";

/**
 * The answer with the highest rank counts: a worker of that broker has the task; the task waits there; a worker of it
 * could take the task; it has workers.
 */
const RANK = { claimed: 4, waiting: 3, capable: 2, workers: 1, none: 0 } as const;

interface TaskLocation {
  readonly rank: number;
  readonly reason: string;
  readonly claim?: LocalClaim;
}

interface LocalClaim {
  readonly attempt: number;
  readonly worker: string;
  /** False while it is prefetched. */
  readonly started: boolean;
}

export function localTaskLocation(core: Core, id: JobId, index: TaskIndex): TaskLocation {
  const reason = explain(core.state, id, index, now());
  const claim = localClaim(core, id, index);
  if (claim !== undefined) return { rank: RANK.claimed, reason, claim };
  const job = core.state.jobs.get(id);
  if (job === undefined) return { rank: RANK.none, reason };
  const waits = [...job.waiting, ...job.inBackoff, ...job.pending].some(
    ({ first, last }) => first <= index && index <= last,
  );
  if (waits) return { rank: RANK.waiting, reason };
  if (job.signature.capable.size > 0) return { rank: RANK.capable, reason };
  const workers = [...core.state.workers.values()].some(({ connected }) => connected);
  return { rank: workers ? RANK.workers : RANK.none, reason };
}

/** Where a task without a result is. Undefined for a task that was cancelled before it ran. */
export async function locateTask(core: Core, job: Job, at: TaskIndex): Promise<Omit<TaskLocation, "rank">> {
  const { id, cancels, reason } = job;
  if (job.delayed === true && !contains(cancels, at))
    return { reason: job.held ? "its job is held" : whyDelayed(job, core.delays.msUntil(job)) };
  const found = await taskLocation(core, id, at);
  if (found.claim !== undefined) return found;
  if (!contains(cancels, at)) {
    const allocators = await core.allocators.explain(id);
    return allocators === undefined ? found : { ...found, reason: `${found.reason}; ${allocators}` };
  }
  const why = reason === undefined ? "" : `: ${reason}`;
  return { reason: `it was cancelled before it ran${why}` };
}

export async function taskLocation(core: Core, job: JobId, index: TaskIndex): Promise<TaskLocation> {
  const here = localTaskLocation(core, job, index);
  if (core.peers === undefined || here.rank === RANK.claimed) return here;
  const others = await core.peers.askAll<TaskLocation>("peer.taskLocation", { job, index });
  return others.reduce((best, { answer }) => (answer.rank > best.rank ? answer : best), here);
}

/** The worker of this broker that has the task, and the attempt. */
export function localClaim(core: Core, id: JobId, at: number): LocalClaim | undefined {
  for (const { worker } of core.state.jobs.get(id)?.claims ?? []) {
    const claim = claimOf(worker, id, at);
    if (claim === undefined) continue;
    const started = claim.tasks[at - claim.first] === STARTED;
    return { attempt: claim.attempt, worker: worker.profile.name, started };
  }
  return undefined;
}

// Counts of work and workers, of all brokers together.

interface Load extends ReturnType<typeof countWorkers> {
  /** The number of running tasks of each job that has any. */
  readonly jobs: readonly { readonly job: JobId; readonly running: number }[];
  readonly requests: ReturnType<typeof countRequests>;
}

export function localLoad(core: Core): Load {
  const jobs: { job: JobId; running: number }[] = [];
  for (const { id, started } of core.state.jobs.values()) if (started > 0) jobs.push({ job: id, running: started });
  return { jobs, ...countWorkers(core), requests: countRequests(core) };
}

/** Lists are read often, so the answers of other brokers are cached for a moment. */
const FRESH_MS = 300;
const loadCache = new WeakMap<Peers, { readonly until: number; readonly loads: Promise<readonly Load[]> }>();

function peerLoads({ peers }: Core): Promise<readonly Load[]> {
  if (peers === undefined || peers.all.length === 0) return Promise.resolve([]);
  const known = loadCache.get(peers);
  if (known !== undefined && known.until > now()) return known.loads;
  const loads = peers.askAll<Load>("peer.load", {}).then((all) => all.map(({ answer }) => answer));
  loadCache.set(peers, { until: now() + FRESH_MS, loads });
  return loads;
}

/** The number of running tasks of each job at other brokers. */
export async function tasksAtPeers(core: Core): Promise<ReadonlyMap<JobId, number>> {
  return sumOf(await peerLoads(core));
}

function sumOf(loads: readonly Load[]): Map<JobId, number> {
  const sum = new Map<JobId, number>();
  for (const { jobs } of loads) {
    for (const { job, running } of jobs) sum.set(job, (sum.get(job) ?? 0) + running);
  }
  return sum;
}

export async function groupLoad(core: Core) {
  const others = await peerLoads(core);
  const { workers, slots } = countWorkers(core);
  const requests = countRequests(core);
  for (const other of others) {
    for (const name of ["connected", "disconnected", "draining"] as const) workers[name] += other.workers[name];
    for (const name of ["total", "free"] as const) slots[name] += other.slots[name];
    for (const name of ["waiting", "running"] as const) requests[name] += other.requests[name];
  }
  return { ...countWork(core, sumOf(others), await core.delays.count()), workers, slots, requests };
}
