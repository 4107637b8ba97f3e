/**
 * Problems, in words for people, each with the job, worker or service to inspect. A few of each kind are listed, the
 * others are counted.
 */

import { now } from "../../base/clock.js";
import { explain } from "../../dispatch/index.js";
import type { JobState } from "../../dispatch/state.js";
import * as s from "../../model/schema.js";
import { taskNumber } from "../../model/task-numbers.js";
import type { Core } from "../core.js";
import { openJobState } from "../stats/counters.js";

const KINDS = [
  "refusing",
  "store-older",
  "disk",
  "queue-full",
  "job-failing",
  "worker-banned",
  "worker-suspended",
  "job-stuck",
  "pool-paused",
  "worker-disconnected",
  "worker-lost",
  "queue-long",
  "job-failed",
] as const;

export const problem = s.object({
  kind: s.choice(...KINDS),
  critical: s.flag("work is failing or stopped; otherwise a warning"),
  text: s.text(65_536),
  since: s.optional(s.number("milliseconds since 1970")),
  job: s.optional(s.count()),
  task: s.optional(s.count("the number of a task of the job, as an example")),
  worker: s.optional(s.described(s.text(), "its name")),
  service: s.optional(s.text()),
  omitted: s.optional(s.count("how many others of this kind are not listed")),
});

export type Problem = s.ReadType<typeof problem>;

/** Listed of each kind. */
const MAX_PER_KIND = 5;
/** Workers that were lost and jobs that failed longer ago are not listed. */
const LOST_MS = 3_600_000;
const FAILED_MS = 24 * 3_600_000;
const LOW_DISK_FRACTION = 0.05;
const CRITICAL_DISK_FRACTION = 0.01;
const LONG_QUEUE = 0.5;
/** Failed jobs are read from the store, at most this often. */
const FAILED_JOBS_CACHE_MS = 10_000;

export async function problemsOf(core: Core, disk: { free: number; total: number } | undefined): Promise<Problem[]> {
  const { refusing } = core;
  const found: Problem[] = [];
  if (refusing !== undefined) {
    found.push({ kind: "refusing", critical: true, text: `nothing new is accepted: ${refusing.message}` });
  }
  const { older } = core.storeAge;
  if (older !== undefined) found.push({ kind: "store-older", critical: true, text: older.text, since: older.since });
  if (disk !== undefined && disk.free < disk.total * LOW_DISK_FRACTION) {
    const percent = ((100 * disk.free) / disk.total).toFixed(1);
    const critical = disk.free < disk.total * CRITICAL_DISK_FRACTION;
    found.push({ kind: "disk", critical, text: `the disk has ${percent} % free` });
  }
  found.push(
    ...fullQueues(core),
    ...few(core.pools.list().map(pausedPool)),
    ...jobProblems(core),
    ...workerProblems(core),
    ...lostWorkers(core),
    ...(await failedJobs(core)),
  );
  return found.sort((a, b) => Number(b.critical) - Number(a.critical) || KINDS.indexOf(a.kind) - KINDS.indexOf(b.kind));
}

const pausedPool = ({ pool, since, reason }: ReturnType<Core["pools"]["list"]>[number]): Problem => ({
  ...{ kind: "pool-paused", critical: false, since },
  text: `pool ${pool} is paused${reason === undefined ? "" : `: ${reason}`}`,
});

/** The first of them; the last one has the number of the others. */
function few(problems: readonly Problem[]): Problem[] {
  const listed = problems.slice(0, MAX_PER_KIND);
  const last = listed.at(-1);
  const omitted = problems.length - listed.length;
  return last === undefined || omitted === 0 ? listed : [...listed.slice(0, -1), { ...last, omitted }];
}

function fullQueues(core: Core): Problem[] {
  const most = core.state.settings.maxWaitingRequests;
  const full: Problem[] = [];
  const long: Problem[] = [];
  for (const { forRequests, requirement, requests } of core.state.signatures.values()) {
    if (!forRequests || requirement.service === undefined || requests.size < most * LONG_QUEUE) continue;
    const { service } = requirement;
    if (requests.size >= most) {
      const text = `${service}: ${requests.size} requests wait, new ones are refused`;
      full.push({ kind: "queue-full", critical: true, text, service });
    } else {
      const text = `${service}: ${requests.size} of at most ${most} requests wait`;
      long.push({ kind: "queue-long", critical: false, text, service });
    }
  }
  return [...few(full), ...few(long)];
}

function jobProblems(core: Core): Problem[] {
  const failing: { failed: number; problem: Problem }[] = [];
  const stuck: Problem[] = [];
  for (const open of core.state.jobs.values()) {
    const { id, job } = open;
    const { failed, succeeded } = core.jobs.countersOf(id) ?? job.counters;
    if (failed > 0) {
      const text = `${job.name}: ${failed} of ${failed + succeeded} tasks have failed so far`;
      failing.push({ failed, problem: { kind: "job-failing", critical: true, text, job: id, since: job.created } });
    }
    if (isStuck(core, open)) stuck.push(stuckJob(core, open));
  }
  failing.sort((a, b) => b.failed - a.failed);
  return [...few(failing.map(({ problem }) => problem)), ...few(stuck)];
}

/** In a group another broker may have workers for it. */
const isStuck = (core: Core, open: JobState): boolean =>
  !core.state.shared && open.ready > 0 && openJobState(open) === "waiting" && open.signature.capable.size === 0;

function stuckJob(core: Core, { id, job, waiting }: JobState): Problem {
  const index = waiting.front?.first ?? 0;
  const text = `${job.name} waits: ${explain(core.state, id, index, now())}`;
  const task = taskNumber(job, index);
  return { kind: "job-stuck", critical: false, text, job: id, task, since: core.counters.readySince(job) };
}

function workerProblems(core: Core): Problem[] {
  const found: Record<"banned" | "suspended" | "disconnected", Problem[]> = {
    banned: [],
    suspended: [],
    disconnected: [],
  };
  for (const { profile, connected, standing } of core.state.workers.values()) {
    const { name } = profile;
    const { results = 0, succeeded = 0, recent = "" } = core.state.standings.get(name) ?? {};
    if (standing === "banned") {
      const text = `${name} is banned: ${succeeded} of its ${results} tasks succeeded`;
      found.banned.push({ kind: "worker-banned", critical: true, text, worker: name });
    } else if (standing === "suspended") {
      const failures = recent.split("-").length - 1;
      const text = `${name} is suspended: ${failures} of its last ${recent.length} tasks failed`;
      found.suspended.push({ kind: "worker-suspended", critical: true, text, worker: name });
    }
    if (!connected) {
      const text = `${name} is disconnected; its tasks are kept for the grace period`;
      found.disconnected.push({ kind: "worker-disconnected", critical: false, text, worker: name });
    }
  }
  return [...few(found.banned), ...few(found.suspended), ...few(found.disconnected)];
}

function lostWorkers(core: Core): Problem[] {
  const lost: Problem[] = [];
  for (const [id, { name, at }] of core.counters.lostWorkers) {
    if (core.state.workers.has(id) || now() - at > LOST_MS) continue;
    lost.push({
      kind: "worker-lost",
      critical: false,
      text: `${name} disconnected without notice`,
      worker: name,
      since: at,
    });
  }
  return few(lost.reverse());
}

const failedJobsCache = new WeakMap<Core, { readonly at: number; readonly problems: Promise<Problem[]> }>();

function failedJobs(core: Core): Promise<Problem[]> {
  const before = failedJobsCache.get(core);
  if (before !== undefined && now() - before.at < FAILED_JOBS_CACHE_MS) return before.problems;
  const problems = readFailedJobs(core);
  failedJobsCache.set(core, { at: now(), problems });
  return problems;
}

async function readFailedJobs(core: Core): Promise<Problem[]> {
  const filter = { states: ["failed"] as const, createdFrom: now() - FAILED_MS };
  const { jobs } = await core.store.jobs({ limit: 100, filter });
  return few(
    jobs.map(({ id, name, counters, count, ended }) => ({
      kind: "job-failed",
      critical: false,
      text: `${name} failed: ${counters.failed} of ${count} tasks`,
      job: id,
      ...(ended === undefined ? {} : { since: ended.at }),
    })),
  );
}
