/**
 * The overview for one page: the broker, its task rates, problems, and the permissions of the caller.
 *
 * Problems, in words for people, each with the job, worker or service to inspect. A few of each kind are listed, the
 * others are counted.
 *
 * Time series for charts.
 */
import { now } from "../../base/clock.js";
import { LaboroError } from "../../base/errors.js";
import { explain } from "../../dispatch/index.js";
import type { JobState } from "../../dispatch/state.js";
import * as s from "../../model/schema.js";
import { taskNumber } from "../../model/task-numbers.js";
import { roleAllows } from "../access/tokens.js";
import type { Core } from "../core.js";
import { MAX_RECENT_EVENTS, oldestWait, openJobState } from "../stats/counters.js";
import { HISTORY_FIELDS, type HistoryField, type HistoryPoint, TICK_MS } from "../stats/history.js";
import { status } from "./broker.js";
import { eventView } from "./events.js";
import { type AnyOperation, nothing, operation } from "./operation.js";

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

const problem = s.object({
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

type Problem = s.ReadType<typeof problem>;

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

async function problemsOf(core: Core, disk: { free: number; total: number } | undefined): Promise<Problem[]> {
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
    ...firstFew(core.pools.list().map(pausedPool)),
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

/** The first few; the last one includes the number of the others. */
function firstFew(problems: readonly Problem[]): Problem[] {
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
  return [...firstFew(full), ...firstFew(long)];
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
  return [...firstFew(failing.map(({ problem }) => problem)), ...firstFew(stuck)];
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
  return [...firstFew(found.banned), ...firstFew(found.suspended), ...firstFew(found.disconnected)];
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
  return firstFew(lost.reverse());
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
  return firstFew(
    jobs.map(({ id, name, counters, count, ended }) => ({
      kind: "job-failed",
      critical: false,
      text: `${name} failed: ${counters.failed} of ${count} tasks`,
      job: id,
      ...(ended === undefined ? {} : { since: ended.at }),
    })),
  );
}

/** Rates are averages over this time. */
const RATE_WINDOW_MS = 60_000;

const perSecond = s.number("per second, over the last minute");

export const overview = operation({
  name: "overview",
  role: "read",
  method: "GET",
  path: "/overview",
  summary: "An overview: the broker, its task rates, and problems",
  input: nothing,
  output: s.object({
    at: s.number("the time of this answer, in milliseconds since 1970"),
    status: status.output,
    rate: s.object({ succeeded: perSecond, failed: perSecond, cancelled: perSecond, requestsCompleted: perSecond }),
    waitMs: s.object({
      p50: s.number("of the tasks assigned in the last minute"),
      p95: s.number(),
      oldest: s.number("for how long the oldest waiting task has waited"),
    }),
    disk: s.optional(s.described(s.object({ free: s.number(), total: s.number() }), "of the data directory, in bytes")),
    problems: s.described(s.list(problem, 1_000), "critical ones first"),
    recentEvents: s.described(
      s.list(eventView, MAX_RECENT_EVENTS),
      "the latest events, without the ends and the progress of tasks",
    ),
  }),
  perform: async (core, _given, context) => {
    const disk = await diskOf(context.info.disk);
    return {
      at: now(),
      status: await status.perform(core, {}, context),
      ...recentRates(core),
      ...(disk === undefined ? {} : { disk }),
      problems: await problemsOf(core, disk),
      recentEvents: [...core.counters.recentEvents] as s.ReadType<typeof eventView>[],
    };
  },
});

/** The overview is answered even if the size of the disk cannot be read. */
async function diskOf(ask: (() => Promise<{ free: number; total: number }>) | undefined) {
  return ask?.().catch(() => undefined);
}

function recentRates(core: Core) {
  const points = core.history.recent().slice(-RATE_WINDOW_MS / TICK_MS);
  const seconds = Math.max(1, (points.length * TICK_MS) / 1000);
  const sum = (name: "succeeded" | "failed" | "cancelled" | "requestsCompleted"): number =>
    points.reduce((total, point) => total + point[name], 0) / seconds;
  const most = (name: "waitP50" | "waitP95"): number => Math.max(0, ...points.map((point) => point[name]));
  return {
    rate: {
      succeeded: sum("succeeded"),
      failed: sum("failed"),
      cancelled: sum("cancelled"),
      requestsCompleted: sum("requestsCompleted"),
    },
    waitMs: { p50: most("waitP50"), p95: most("waitP95"), oldest: oldestWait(core, now()) },
  };
}

/** The table contains this operation, so it is read when the operation runs. */
export const permissionsOperation = (table: () => Iterable<AnyOperation>) =>
  operation({
    name: "permissions",
    role: "any",
    method: "GET",
    path: "/permissions",
    summary: "What the caller may do",
    input: nothing,
    output: s.object({
      role: s.text(),
      operations: s.described(s.list(s.text(), 1_000), "the names of the operations that its role allows"),
    }),
    perform: (_core, _given, { role }) => {
      const operations = [...table()].filter((one) => roleAllows(role, one.role)).map(({ name }) => name);
      if (operations.length === 0) throw new LaboroError("LABORO_FORBIDDEN", `the role ${role} allows nothing here`);
      return { role, operations };
    },
  });

const MOST = 2_000;
const MINUTE_MS = 60_000;

const column = (what: string) => s.described(s.list(s.number(), MOST), what);

const COLUMNS = {
  succeeded: column("tasks, in the interval of a point"),
  failed: column("tasks"),
  cancelled: column("tasks"),
  assigned: column("tasks"),
  requestsCompleted: column("requests, failed ones included"),
  requestsFailed: column("requests"),
  waitP50: column("median of the milliseconds from when a task could be assigned until it was"),
  waitP95: column("95th percentile of the same"),
  oldestWait: column("milliseconds that the oldest waiting task had waited"),
  latencyP50: column("median of the milliseconds from a request to its answer"),
  latencyP95: column("95th percentile of the same"),
  slots: column("of connected workers"),
  slotsUsed: column("of these"),
  tasksWaiting: column("of open jobs"),
  tasksRunning: column("at workers"),
  workers: column("connected"),
} as const satisfies Readonly<Record<HistoryField, unknown>>;

export const history = operation({
  name: "history",
  role: "read",
  method: "GET",
  path: "/history",
  summary: "Time series: the last hour in steps of 5 s, or the last day in minutes",
  input: s.object({
    span: s.withDefault(s.described(s.choice("hour", "day"), "hour: of this broker only, since its start"), "hour"),
  }),
  output: s.object({
    stepMs: s.count("the interval of a point; points are missing while no broker ran"),
    at: column("the end of each interval, in milliseconds since 1970"),
    ...COLUMNS,
  }),
  perform: async (core, { span }) => {
    const points = span === "hour" ? core.history.recent() : await core.history.minutes();
    return {
      stepMs: span === "hour" ? TICK_MS : MINUTE_MS,
      at: points.map(({ at }) => at),
      ...columnsOf(points),
    };
  },
});

const columnsOf = (points: readonly HistoryPoint[]) =>
  Object.fromEntries(HISTORY_FIELDS.map((name) => [name, points.map((point) => point[name])])) as Record<
    HistoryField,
    number[]
  >;
