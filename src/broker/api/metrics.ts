/** `/metrics` in the text format of Prometheus. A scrape only reads counters. */
import type { ServerResponse } from "node:http";
import { Registry } from "prom-client";
import { now } from "../../base/clock.js";
import { type Role, roleAllows } from "../access/tokens.js";
import type { Core } from "../core.js";
import type { LimitInfo } from "../limits.js";
import { countsOf } from "../operations/allocators.js";
import type { BrokerInfo } from "../operations/operation.js";
import { services } from "../operations/services.js";
import {
  BUCKETS,
  boundOf,
  countRequests,
  countWork,
  countWorkers,
  type Histogram,
  oldestWait,
} from "../stats/counters.js";
import { SharedResponses } from "./shared-responses.js";

interface MetricSample {
  readonly value: number;
  readonly labels: Readonly<Record<string, string | number>>;
  readonly metricName?: string;
}

interface ScrapeData {
  readonly core: Core;
  readonly version: string;
  readonly work: ReturnType<typeof countWork>;
  readonly workerCounts: ReturnType<typeof countWorkers>;
  readonly requests: ReturnType<typeof countRequests>;
  readonly services: readonly Service[];
  readonly limits: readonly LimitInfo[];
  readonly disk: { readonly free: number; readonly total: number } | undefined;
}

type Service = Awaited<ReturnType<typeof services.perform>>["services"][number];

interface Metric {
  readonly name: string;
  readonly type: "counter" | "gauge" | "histogram";
  readonly help: string;
  readonly values: (scrape: ScrapeData) => readonly MetricSample[];
}

/** Services with their own series. The others are in the totals only, which bounds the number of series. */
const SERVICES = 100;
/** Limits with their own series: those with the most waiting tasks. */
const LIMITS = 100;
/** Allocators with their own series. */
const ALLOCATORS = 100;

const by = (label: string, counts: Readonly<Record<string, number>>): MetricSample[] =>
  Object.entries(counts).map(([name, value]) => ({ value, labels: { [label]: name } }));

/** A Prometheus histogram: each bucket includes all smaller ones. */
function histogram(name: string, { counts, count, sum }: Histogram): MetricSample[] {
  let below = 0;
  const buckets = Array.from({ length: BUCKETS }, (_, at) => {
    below += counts[at] ?? 0;
    return { value: below, labels: { le: boundOf(at) / 1000 }, metricName: `${name}_bucket` };
  });
  return [
    ...buckets,
    { value: count, labels: { le: "+Inf" }, metricName: `${name}_bucket` },
    { value: sum / 1000, labels: {}, metricName: `${name}_sum` },
    { value: count, labels: {}, metricName: `${name}_count` },
  ];
}

function standings({ state }: Core): Record<string, number> {
  const counts = { good: 0, suspended: 0, banned: 0 };
  for (const { standing } of state.workers.values()) counts[standing]++;
  return counts;
}

type Values = (scrape: ScrapeData) => number | readonly MetricSample[];

const metric = (name: string, type: Metric["type"], help: string, values: Values): Metric => ({
  ...{ name: `laboro_${name}`, type, help },
  values: (scrape) => {
    const found = values(scrape);
    return typeof found === "number" ? [{ value: found, labels: {} }] : found;
  },
});
const gauge = (name: string, help: string, values: Values): Metric => metric(name, "gauge", help, values);
const counter = (name: string, help: string, values: Values): Metric => metric(name, "counter", help, values);
const durations = (name: string, help: string, of: (core: Core) => Histogram): Metric =>
  metric(name, "histogram", help, ({ core }) => histogram(`laboro_${name}`, of(core)));

type Of<T> = (item: T) => number | undefined;

const perService = (name: string, type: Metric["type"], help: string, of: Of<Service>): Metric =>
  metric(`service_${name}`, type, help, ({ services }) =>
    services.flatMap((service) => labelled(of(service), { service: service.name, pool: service.pool })),
  );
const perLimit = (name: string, help: string, of: Of<LimitInfo>): Metric =>
  gauge(`limit_${name}`, help, ({ limits }) => limits.flatMap((limit) => labelled(of(limit), { limit: limit.name })));

const labelled = (value: number | undefined, labels: MetricSample["labels"]): MetricSample[] =>
  value === undefined ? [] : [{ value, labels }];

export const METRICS: readonly Metric[] = [
  gauge("info", "Always 1, with the version", ({ version }) => [{ value: 1, labels: { version } }]),
  gauge("start_time_seconds", "When the broker was started, since 1970", ({ core }) => core.started / 1000),
  gauge("refusing", "1 while nothing new is accepted: the disk is full, or the store has failed", ({ core }) =>
    core.refusing === undefined ? 0 : 1,
  ),
  gauge("jobs", "Open jobs", ({ work }) => by("state", work.jobs)),
  gauge("tasks", "Tasks of open jobs that have not ended", ({ work }) => by("state", work.tasks)),
  counter("tasks_ended_total", "Tasks, by their last result", ({ core }) => by("state", core.counters.ended)),
  counter("tasks_assigned_total", "Tasks assigned to workers", ({ core }) => core.counters.assigned),
  counter(
    "task_retries_total",
    "Attempts that failed or were lost and were not the last",
    ({ core }) => core.counters.retried,
  ),
  gauge(
    "oldest_wait_seconds",
    "For how long the oldest waiting task has waited",
    ({ core }) => oldestWait(core, now()) / 1000,
  ),
  durations(
    "task_wait_seconds",
    "From when a task could be assigned until it was",
    ({ counters }) => counters.taskWaits,
  ),
  durations("task_duration_seconds", "From the start of a task to its end", ({ counters }) => counters.taskDurations),
  counter("output_bytes_total", "Output received from workers", ({ core }) => core.counters.outputBytes),
  gauge("workers", "Workers, connected or within the grace period", ({ workerCounts: { workers } }) =>
    by("state", { connected: workers.connected, disconnected: workers.disconnected }),
  ),
  gauge("workers_draining", "Workers that are draining", ({ workerCounts }) => workerCounts.workers.draining),
  gauge("workers_standing", "Workers by standing", ({ core }) => by("standing", standings(core))),
  counter(
    "workers_lost_total",
    "Connections of workers that ended without notice",
    ({ core }) => core.counters.workersLost,
  ),
  gauge("slots", "Slots of connected workers", ({ workerCounts: { slots } }) =>
    by("state", { free: slots.free, used: slots.total - slots.free }),
  ),
  gauge("requests", "Requests to services that have no answer yet", ({ requests }) => by("state", requests)),
  counter("requests_completed_total", "Requests that were answered or failed", ({ core: { counters } }) =>
    by("outcome", { ok: counters.requestsCompleted - counters.requestsFailed, failed: counters.requestsFailed }),
  ),
  durations("request_duration_seconds", "From a request to its answer", ({ counters }) => counters.requestDurations),
  perService("workers", "gauge", "Workers that offer it", (one) => one.workers),
  perService("requests_waiting", "gauge", "Requests that wait for a worker", (one) => one.waiting),
  perService("requests_completed_total", "counter", "Requests that were answered or failed", (one) => one.completed),
  perService("requests_failed_total", "counter", "Requests that failed", (one) => one.failed),
  perLimit("tasks_waiting", "Waiting tasks of jobs that name it", (one) => one.waiting),
  perLimit("tasks_running", "Tasks at workers that count against it, at all brokers", (one) => one.running),
  perLimit("max_running", "At most this many run", ({ rule }) => rule.running),
  perLimit("starts", "Starts within the interval of its rate, at all brokers", ({ rule, starts }) =>
    rule.rate === undefined ? undefined : starts,
  ),
  perLimit("max_starts", "At most this many within its interval", ({ rule }) => rule.rate?.starts),
  counter("schedule_runs_total", "Runs that schedules have started", ({ core }) => core.schedules.runCounts.started),
  counter("schedule_skipped_total", "Points in time of schedules without a run", ({ core }) => {
    const { overlap, missed, refused } = core.schedules.runCounts;
    return by("reason", { overlap, missed, refused });
  }),
  gauge("schedule_late_seconds", "How late the earliest scheduled run is", ({ core }) => core.schedules.late() / 1000),
  gauge("allocations", "Jobs of the batch system that an allocator has", ({ core }) =>
    core.allocators.known.slice(0, ALLOCATORS).flatMap((one) => {
      const counts = Object.entries(countsOf(one));
      return counts.map(([state, value]) => ({ value, labels: { allocator: one.name, state } }));
    }),
  ),
  counter("allocations_total", "Allocations that this broker asked for, cancelled, or saw fail", ({ core }) =>
    by("event", core.allocators.counts),
  ),
  counter("events_total", "Events", ({ core }) => core.events.last % 2 ** 32),
  counter("commits_total", "Batches written to the store", ({ core }) => core.counters.commits),
  gauge("disk_bytes", "Space on the disk of the data directory", ({ disk }) =>
    disk === undefined ? [] : by("state", { free: disk.free, used: disk.total - disk.free }),
  ),
  gauge("process_resident_bytes", "Memory of the process", () => process.memoryUsage.rss()),
  counter("process_cpu_seconds_total", "Processor time of the process", () => {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1e6;
  }),
];

export class Metrics {
  readonly #core: Core;
  readonly #info: BrokerInfo;
  readonly #registry = new Registry();
  /** One response for all scrapers. */
  readonly #responses = new SharedResponses();
  #scrape: ScrapeData | undefined;

  constructor(core: Core, info: BrokerInfo) {
    this.#core = core;
    this.#info = info;
    for (const { values, ...described } of METRICS) {
      // The part of a prom-client metric that the registry calls. These metrics do not count themselves.
      const source = {
        ...described,
        get: async () => ({ ...described, values: this.#scrape === undefined ? [] : values(this.#scrape) }),
      };
      this.#registry.registerMetric(source as unknown as Parameters<Registry["registerMetric"]>[0]);
    }
  }

  async answer(response: ServerResponse, role: Role): Promise<void> {
    if (!roleAllows(role, "read")) {
      const error = { code: "LABORO_FORBIDDEN", message: `metrics need the role read, this token has ${role}` };
      response.writeHead(403, { "content-type": "application/json" });
      response.end(JSON.stringify({ error }));
      return;
    }
    const { text } = await this.#responses.get("metrics", () => this.#text());
    response.writeHead(200, {
      "content-type": this.#registry.contentType,
      "cache-control": "no-store",
      "x-content-type-options": "nosniff",
    });
    response.end(text);
  }

  async #text(): Promise<string> {
    const context = { role: "read", info: this.#info, signal: new AbortController().signal } as const;
    const found = await services.perform(this.#core, {}, context);
    this.#scrape = {
      core: this.#core,
      version: this.#info.version,
      work: countWork(this.#core, undefined, await this.#core.delays.count()),
      workerCounts: countWorkers(this.#core),
      requests: countRequests(this.#core),
      services: found.services.slice(0, SERVICES),
      limits: (await this.#core.limits.list()).sort((a, b) => b.waiting - a.waiting).slice(0, LIMITS),
      disk: await this.#info.disk?.().catch(() => undefined),
    };
    return this.#registry.metrics();
  }
}
