/** Counts of open work and workers. Each call walks over all open jobs or workers, so it is for occasional use. */
import type { JobState } from "../../dispatch/state.js";
import { finishedCount } from "../../model/job.js";
import type { Core } from "../core.js";

/** `atPeers`: running tasks of each job at other brokers. */
export function countWork(core: Core, atPeers: ReadonlyMap<number, number> = new Map()) {
  const jobs = { held: 0, blocked: 0, waiting: 0, running: 0 };
  const tasks = { waiting: 0, running: 0 };
  for (const open of core.state.jobs.values()) {
    const { id, job } = open;
    const started = open.started + (atPeers.get(id) ?? 0);
    jobs[openJobState({ held: open.held, delayed: open.delayed, blockedBy: open.blockedBy, started })]++;
    const left = job.count - finishedCount(core.jobs.countersOf(id) ?? job.counters);
    tasks.running += Math.min(started, left);
    tasks.waiting += Math.max(0, left - started);
  }
  return { jobs, tasks };
}

export const openJobState = ({
  held,
  delayed,
  blockedBy,
  started,
}: Pick<JobState, "held" | "delayed" | "blockedBy" | "started">): "held" | "blocked" | "waiting" | "running" =>
  held ? "held" : blockedBy.size > 0 || delayed ? "blocked" : started > 0 ? "running" : "waiting";

export function countWorkers(core: Core) {
  const workers = { connected: 0, disconnected: 0, draining: 0 };
  const slots = { total: 0, free: 0 };
  for (const { connected, draining, profile, free } of core.state.workers.values()) {
    workers[connected ? "connected" : "disconnected"]++;
    if (draining) workers.draining++;
    if (!connected) continue;
    slots.total += profile.total.slots;
    if (profile.paused === undefined) slots.free += Math.max(0, free.slots ?? 0);
  }
  return { workers, slots };
}

export function countRequests(core: Core): { waiting: number; running: number } {
  let waiting = 0;
  for (const { forRequests, requests } of core.state.signatures.values()) if (forRequests) waiting += requests.size;
  return { waiting, running: core.state.requests.size - waiting };
}

/**
 * For how long the oldest task has waited that could be assigned; 0 if none waits. A job that is held or blocked begins to wait when that
 * ends. Each call records that for open jobs, so it must be called often enough.
 */
export function oldestWait(core: Core, now: number): number {
  let oldest = now;
  for (const open of core.state.jobs.values()) {
    const stage = openJobState(open);
    if (stage === "held" || stage === "blocked") core.counters.setReadySince(open.id, now);
    else if (open.ready > 0 || open.mayLease) oldest = Math.min(oldest, core.counters.readySince(open.job));
  }
  return Math.max(0, now - oldest);
}
