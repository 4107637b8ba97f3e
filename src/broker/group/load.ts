/** Counts of work and workers, of all brokers together. */

import { now } from "../../base/clock.js";
import type { JobId } from "../../model/ids.js";
import type { Core } from "../core.js";
import { countRequests, countWork, countWorkers } from "../stats/load.js";
import type { Peers } from "./peers.js";

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
  return { ...countWork(core, sumOf(others)), workers, slots, requests };
}
