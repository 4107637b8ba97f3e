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

/** The data of one scrape. */
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

const one = (value: number): MetricSample[] => [{ value, labels: {} }];
const by = (label: string, counts: Readonly<Record<string, number>>): MetricSample[] =>
  Object.entries(counts).map(([name, value]) => ({ value, labels: { [label]: name } }));

const perService = (value: (service: Service) => number | undefined) => (scrape: ScrapeData) =>
  scrape.services.flatMap((service) => {
    const { name, pool } = service;
    const found = value(service);
    return found === undefined ? [] : [{ value: found, labels: { service: name, pool } }];
  });

const perLimit = (value: (limit: LimitInfo) => number | undefined) => (scrape: ScrapeData) =>
  scrape.limits.flatMap((limit) => {
    const found = value(limit);
    return found === undefined ? [] : [{ value: found, labels: { limit: limit.name } }];
  });

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

const metric = (
  name: string,
  type: Metric["type"],
  help: string,
  values: (scrape: ScrapeData) => readonly MetricSample[],
): Metric => ({ name: `laboro_${name}`, type, help, values });

const histogramMetric = (name: string, help: string, of: (core: Core) => Histogram): Metric =>
  metric(name, "histogram", help, ({ core }) => histogram(`laboro_${name}`, of(core)));

export const METRICS: readonly Metric[] = [
  metric("info", "gauge", "Always 1, with the version", ({ version }) => [{ value: 1, labels: { version } }]),
  metric("start_time_seconds", "gauge", "When the broker was started, since 1970", ({ core }) =>
    one(core.started / 1000),
  ),
  metric(
    "refusing",
    "gauge",
    "1 while nothing new is accepted: the disk is full, or the store has failed",
    ({ core }) => one(core.refusing === undefined ? 0 : 1),
  ),
  metric("jobs", "gauge", "Open jobs", ({ work }) => by("state", work.jobs)),
  metric("tasks", "gauge", "Tasks of open jobs that have not ended", ({ work }) => by("state", work.tasks)),
  metric("tasks_ended_total", "counter", "Tasks, by their last result", ({ core }) => by("state", core.counters.ended)),
  metric("tasks_assigned_total", "counter", "Tasks assigned to workers", ({ core }) => one(core.counters.assigned)),
  metric("task_retries_total", "counter", "Attempts that failed or were lost and were not the last", ({ core }) =>
    one(core.counters.retried),
  ),
  metric("oldest_wait_seconds", "gauge", "For how long the oldest waiting task has waited", ({ core }) =>
    one(oldestWait(core, now()) / 1000),
  ),
  histogramMetric(
    "task_wait_seconds",
    "From when a task could be assigned until it was",
    ({ counters }) => counters.taskWaits,
  ),
  histogramMetric(
    "task_duration_seconds",
    "From the start of a task to its end",
    ({ counters }) => counters.taskDurations,
  ),
  metric("output_bytes_total", "counter", "Output received from workers", ({ core }) => one(core.counters.outputBytes)),
  metric("workers", "gauge", "Workers, connected or within the grace period", ({ workerCounts: { workers } }) =>
    by("state", { connected: workers.connected, disconnected: workers.disconnected }),
  ),
  metric("workers_draining", "gauge", "Workers that are draining", ({ workerCounts }) =>
    one(workerCounts.workers.draining),
  ),
  metric("workers_standing", "gauge", "Workers by standing", ({ core }) => by("standing", standings(core))),
  metric("workers_lost_total", "counter", "Connections of workers that ended without notice", ({ core }) =>
    one(core.counters.workersLost),
  ),
  metric("slots", "gauge", "Slots of connected workers", ({ workerCounts: { slots } }) =>
    by("state", { free: slots.free, used: slots.total - slots.free }),
  ),
  metric("requests", "gauge", "Requests to services that have no answer yet", ({ requests }) => by("state", requests)),
  metric("requests_completed_total", "counter", "Requests that were answered or failed", ({ core: { counters } }) =>
    by("outcome", { ok: counters.requestsCompleted - counters.requestsFailed, failed: counters.requestsFailed }),
  ),
  histogramMetric(
    "request_duration_seconds",
    "From a request to its answer",
    ({ counters }) => counters.requestDurations,
  ),
  metric(
    "service_workers",
    "gauge",
    "Workers that offer it",
    perService(({ workers }) => workers),
  ),
  metric(
    "service_requests_waiting",
    "gauge",
    "Requests that wait for a worker",
    perService(({ waiting }) => waiting),
  ),
  metric(
    "service_requests_completed_total",
    "counter",
    "Requests that were answered or failed",
    perService(({ completed }) => completed),
  ),
  metric(
    "service_requests_failed_total",
    "counter",
    "Those of them that failed",
    perService(({ failed }) => failed),
  ),
  metric(
    "limit_tasks_waiting",
    "gauge",
    "Tasks of jobs that name it that are not at a worker",
    perLimit(({ waiting }) => waiting),
  ),
  metric(
    "limit_tasks_running",
    "gauge",
    "Tasks at workers that count against it, at all brokers",
    perLimit(({ running }) => running),
  ),
  metric(
    "limit_max_running",
    "gauge",
    "At most this many run",
    perLimit(({ rule }) => rule.running),
  ),
  metric(
    "limit_starts",
    "gauge",
    "Starts within the interval of its rate, at all brokers",
    perLimit(({ rule, starts }) => (rule.rate === undefined ? undefined : starts)),
  ),
  metric(
    "limit_max_starts",
    "gauge",
    "At most this many within its interval",
    perLimit(({ rule }) => rule.rate?.starts),
  ),
  metric("schedule_runs_total", "counter", "Runs that schedules have started", ({ core }) =>
    one(core.schedules.runCounts.started),
  ),
  metric("schedule_skipped_total", "counter", "Points in time of schedules without a run", ({ core }) => {
    const { overlap, missed, refused } = core.schedules.runCounts;
    return by("reason", { overlap, missed, refused });
  }),
  metric("schedule_late_seconds", "gauge", "How late the earliest scheduled run is", ({ core }) =>
    one(core.schedules.late() / 1000),
  ),
  metric("allocations", "gauge", "Jobs of the batch system that an allocator has", ({ core }) =>
    core.allocators.known.slice(0, ALLOCATORS).flatMap((one) => {
      const labelled = ([state, value]: [string, number]) => ({ value, labels: { allocator: one.name, state } });
      return Object.entries(countsOf(one)).map(labelled);
    }),
  ),
  metric("allocations_total", "counter", "Allocations that this broker asked for, cancelled, or saw fail", ({ core }) =>
    by("event", core.allocators.counts),
  ),
  metric("events_total", "counter", "Events", ({ core }) => one(core.events.last % 2 ** 32)),
  metric("commits_total", "counter", "Batches written to the store", ({ core }) => one(core.counters.commits)),
  metric("disk_bytes", "gauge", "Space on the disk of the data directory", ({ disk }) =>
    disk === undefined ? [] : by("state", { free: disk.free, used: disk.total - disk.free }),
  ),
  metric("process_resident_bytes", "gauge", "Memory of the process", () => one(process.memoryUsage.rss())),
  metric("process_cpu_seconds_total", "counter", "Processor time of the process", () => {
    const { user, system } = process.cpuUsage();
    return one((user + system) / 1e6);
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
