/** `/metrics` in the text format of Prometheus. Everything is counted already: a scrape only reads. */
import type { ServerResponse } from "node:http";
import { Registry } from "prom-client";
import { now } from "../../base/clock.js";
import { roleAllows, type Role } from "../access/roles.js";
import type { Core } from "../core.js";
import type { BrokerInfo } from "../operations/operation.js";
import { services } from "../operations/services.js";
import { oldestWait, countRequests, countWorkers, countWork } from "../stats/load.js";
import { BUCKETS, boundOf, type Histogram } from "../stats/histogram.js";
import { SharedResponses } from "./shared-responses.js";

interface MetricSample {
  readonly value: number;
  readonly labels: Readonly<Record<string, string | number>>;
  readonly metricName?: string;
}

/** What one scrape has looked at. */
interface ScrapeData {
  readonly core: Core;
  readonly version: string;
  readonly work: ReturnType<typeof countWork>;
  readonly workerCounts: ReturnType<typeof countWorkers>;
  readonly requests: ReturnType<typeof countRequests>;
  readonly services: readonly Service[];
  readonly disk: { readonly free: number; readonly total: number } | undefined;
}

type Service = Awaited<ReturnType<typeof services.perform>>["services"][number];

export interface Metric {
  readonly name: string;
  readonly type: "counter" | "gauge" | "histogram";
  readonly help: string;
  readonly values: (scene: ScrapeData) => readonly MetricSample[];
}

/** Services that are told apart; the rest are in the totals only, so that the number of series is bounded. */
const SERVICES = 100;

const one = (value: number): MetricSample[] => [{ value, labels: {} }];
const by = (label: string, counts: Readonly<Record<string, number>>): MetricSample[] =>
  Object.entries(counts).map(([name, value]) => ({ value, labels: { [label]: name } }));

const perService = (value: (service: Service) => number | undefined) => (scene: ScrapeData) =>
  scene.services.flatMap((service) => {
    const { name, pool } = service;
    const found = value(service);
    return found === undefined ? [] : [{ value: found, labels: { service: name, pool } }];
  });

/** As Prometheus has histograms: each bucket with all that are below it. */
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
  values: (scene: ScrapeData) => readonly MetricSample[],
): Metric => ({ name: `laboro_${name}`, type, help, values });

const histogramMetric = (name: string, help: string, of: (core: Core) => Histogram): Metric =>
  metric(name, "histogram", help, ({ core }) => histogram(`laboro_${name}`, of(core)));

export const METRICS: readonly Metric[] = [
  metric("info", "gauge", "Always 1, with the version", ({ version }) => [{ value: 1, labels: { version } }]),
  metric("start_time_seconds", "gauge", "When the broker was started, since 1970", ({ core }) =>
    one(core.started / 1000),
  ),
  metric("refusing", "gauge", "1 while nothing new is taken: the disk is full, or the store has failed", ({ core }) =>
    one(core.refusing === undefined ? 0 : 1),
  ),
  metric("jobs", "gauge", "Open jobs", ({ work }) => by("state", work.jobs)),
  metric("tasks", "gauge", "Tasks of open jobs that have not ended", ({ work }) => by("state", work.tasks)),
  metric("tasks_ended_total", "counter", "Tasks, by their last result", ({ core }) => by("state", core.counters.ended)),
  metric("tasks_handed_out_total", "counter", "Tasks given to workers", ({ core }) => one(core.counters.assigned)),
  metric("attempts_repeated_total", "counter", "Attempts that failed or were lost and were not the last", ({ core }) =>
    one(core.counters.retried),
  ),
  metric("queue_latency_seconds", "gauge", "For how long the work has waited that waits longest", ({ core }) =>
    one(oldestWait(core, now()) / 1000),
  ),
  histogramMetric("task_wait_seconds", "From when a task could be handed out until it was", ({ counters: tally }) => tally.taskWaits),
  histogramMetric("task_duration_seconds", "From the start of a task to its end", ({ counters: tally }) => tally.taskDurations),
  metric("output_bytes_total", "counter", "Output taken from workers", ({ core }) => one(core.counters.outputBytes)),
  metric("workers", "gauge", "Workers, there or away for a while", ({ workerCounts: { workers } }) =>
    by("state", { connected: workers.connected, away: workers.disconnected }),
  ),
  metric("workers_draining", "gauge", "Those of them that get nothing new", ({ workerCounts: crew }) => one(crew.workers.draining)),
  metric("workers_standing", "gauge", "Workers, by how they stand", ({ core }) => by("standing", standings(core))),
  metric("workers_lost_total", "counter", "Connections of workers that ended without a word", ({ core }) =>
    one(core.counters.workersLost),
  ),
  metric("slots", "gauge", "Slots of connected workers", ({ workerCounts: crew }) =>
    by("state", { free: crew.slots.free, used: crew.slots.total - crew.slots.free }),
  ),
  metric("requests", "gauge", "Requests to services that are under way", ({ requests }) => by("state", requests)),
  metric("requests_answered_total", "counter", "Requests that were answered", ({ core }) =>
    by("outcome", { answer: core.counters.requestsCompleted - core.counters.requestsFailed, refusal: core.counters.requestsFailed }),
  ),
  histogramMetric("request_seconds", "From a request to its answer", ({ counters: tally }) => tally.requestDurations),
  metric(
    "service_workers",
    "gauge",
    "Workers that offer it",
    perService(({ workers }) => workers),
  ),
  metric(
    "service_waiting",
    "gauge",
    "Requests that wait for a worker",
    perService(({ waiting }) => waiting),
  ),
  metric(
    "service_answered_total",
    "counter",
    "Requests that were answered",
    perService(({ completed: answered }) => answered),
  ),
  metric(
    "service_failed_total",
    "counter",
    "Those of them that were refused",
    perService(({ failed }) => failed),
  ),
  metric("events_total", "counter", "Events", ({ core }) => one(core.events.last % 2 ** 32)),
  metric("commits_total", "counter", "Batches written to the store", ({ core }) => one(core.counters.commits)),
  metric("disk_bytes", "gauge", "Room where the data lies", ({ disk }) =>
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
  /** However many scrape. */
  readonly #responses = new SharedResponses();
  #scrape: ScrapeData | undefined;

  constructor(core: Core, info: BrokerInfo) {
    this.#core = core;
    this.#info = info;
    for (const { values, ...said } of METRICS) {
      // What a registry asks of a metric, and no more: these count nothing themselves.
      const source = {
        ...said,
        get: async () => ({ ...said, values: this.#scrape === undefined ? [] : values(this.#scrape) }),
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
    const context = { role: "read", broker: this.#info, gone: new AbortController().signal } as const;
    const found = await services.perform(this.#core, {}, context);
    this.#scrape = {
      core: this.#core,
      version: this.#info.version,
      work: countWork(this.#core),
      workerCounts: countWorkers(this.#core),
      requests: countRequests(this.#core),
      services: found.services.slice(0, SERVICES),
      disk: await this.#info.disk?.().catch(() => undefined),
    };
    return this.#registry.metrics();
  }
}
