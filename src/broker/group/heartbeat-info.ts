/** What a broker of a group publishes about itself with each heartbeat. Another broker may have another version, so it is validated. */

import { hostname } from "node:os";
import { now } from "../../base/clock.js";
import type { JobId } from "../../model/ids.js";
import * as s from "../../model/schema.js";
import type { Core } from "../core.js";
import { countRequests, countWork, countWorkers } from "../stats/load.js";
import type { Peers } from "./peers.js";

const MOST = 100_000;

const heartbeatInfo = s.object({
  /** Kept in the data directory, so it is the same over restarts. */
  identity: s.text(),
  /** For people. */
  name: s.text(),
  version: s.text(),
  host: s.text(),
  pid: s.count(),
  /** `standby` is a fallback whose listeners are closed. */
  state: s.choice("open", "draining", "standby"),
  fallback: s.flag(),
  listeners: s.list(s.object({ name: s.text(), url: s.text() }), 100),
  workers: s.count(),
  slots: s.object({ total: s.number(), free: s.number() }),
  /** What its workers offer. */
  services: s.list(s.object({ pool: s.text(), service: s.text() }), MOST),
  /** Average duration of its latest commits, in milliseconds. */
  commitMs: s.number(),
});

export type HeartbeatInfo = s.ReadType<typeof heartbeatInfo>;

/** What the core does not know. */
export interface SelfInfo {
  readonly identity: string;
  readonly version: string;
  readonly fallback: boolean;
  listeners(): readonly { readonly name: string; readonly url: string }[];
}

export function ownHeartbeatInfo(core: Core, self: SelfInfo): HeartbeatInfo {
  const listeners = self.listeners();
  const { workers, slots } = countWorkers(core);
  return {
    identity: self.identity,
    name: nameOf(listeners),
    version: self.version,
    host: hostname(),
    pid: process.pid,
    state: core.maintenance.draining ? "draining" : "open",
    fallback: self.fallback,
    listeners,
    workers: workers.connected,
    slots,
    services: servicesIn(core),
    commitMs: Math.round(core.commitMs * 10) / 10,
  };
}

/** Host and port of the main listener. */
export function nameOf(listeners: HeartbeatInfo["listeners"]): string {
  const main = listeners.find(({ name }) => name === "main");
  return main === undefined ? hostname() : new URL(main.url).host;
}

function servicesIn(core: Core): HeartbeatInfo["services"] {
  const found = new Map<string, { pool: string; service: string }>();
  for (const { connected, draining, standing, profile } of core.state.workers.values()) {
    if (!connected || draining || standing === "banned") continue;
    const { pool, services } = profile;
    for (const service of services) found.set(`${pool}\0${service}`, { pool, service });
  }
  return [...found.values()].slice(0, MOST);
}

/** Undefined if this version cannot read it. Fields that only a newer version has are ignored. */
export function readHeartbeatInfo(text: string): HeartbeatInfo | undefined {
  try {
    const known = Object.entries(JSON.parse(text) as object).filter(([name]) => name in heartbeatInfo.shape);
    return heartbeatInfo.read(Object.fromEntries(known), "info");
  } catch {
    return undefined;
  }
}

/** Counts of work and workers, of all brokers together. */

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
