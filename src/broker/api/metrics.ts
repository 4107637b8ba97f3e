/** `/metrics` in the text format of Prometheus. Everything is counted already: a scrape only reads. */
import type { ServerResponse } from "node:http";
import { Registry } from "prom-client";
import { now } from "../../base/clock.js";
import { mayDo, type Role } from "../access/roles.js";
import type { Core } from "../core.js";
import type { BrokerFace } from "../operations/operation.js";
import { services } from "../operations/services.js";
import { oldestWait, requestsIn, workersIn, workIn } from "../stats/load.js";
import { BUCKETS, boundOf, type Spread } from "../stats/spread.js";
import { Looks } from "./dashboard-looks.js";

interface Value {
  readonly value: number;
  readonly labels: Readonly<Record<string, string | number>>;
  readonly metricName?: string;
}

/** What one scrape has looked at. */
interface Scene {
  readonly core: Core;
  readonly version: string;
  readonly work: ReturnType<typeof workIn>;
  readonly crew: ReturnType<typeof workersIn>;
  readonly requests: ReturnType<typeof requestsIn>;
  readonly services: readonly Service[];
  readonly disk: { readonly free: number; readonly total: number } | undefined;
}

type Service = Awaited<ReturnType<typeof services.perform>>["services"][number];

export interface Metric {
  readonly name: string;
  readonly type: "counter" | "gauge" | "histogram";
  readonly help: string;
  readonly values: (scene: Scene) => readonly Value[];
}

/** Services that are told apart; the rest are in the totals only, so that the number of series is bounded. */
const SERVICES = 100;

const one = (value: number): Value[] => [{ value, labels: {} }];
const by = (label: string, counts: Readonly<Record<string, number>>): Value[] =>
  Object.entries(counts).map(([name, value]) => ({ value, labels: { [label]: name } }));

const perService = (value: (service: Service) => number | undefined) => (scene: Scene) =>
  scene.services.flatMap((service) => {
    const { name, pool } = service;
    const found = value(service);
    return found === undefined ? [] : [{ value: found, labels: { service: name, pool } }];
  });

/** As Prometheus has histograms: each bucket with all that are below it. */
function histogram(name: string, { counts, count, sum }: Spread): Value[] {
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
  values: (scene: Scene) => readonly Value[],
): Metric => ({ name: `laboro_${name}`, type, help, values });

const spread = (name: string, help: string, of: (core: Core) => Spread): Metric =>
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
  metric("tasks_ended_total", "counter", "Tasks, by their last result", ({ core }) => by("state", core.tally.ended)),
  metric("tasks_handed_out_total", "counter", "Tasks given to workers", ({ core }) => one(core.tally.handedOut)),
  metric("attempts_repeated_total", "counter", "Attempts that failed or were lost and were not the last", ({ core }) =>
    one(core.tally.retried),
  ),
  metric("queue_latency_seconds", "gauge", "For how long the work has waited that waits longest", ({ core }) =>
    one(oldestWait(core, now()) / 1000),
  ),
  spread("task_wait_seconds", "From when a task could be handed out until it was", ({ tally }) => tally.waits),
  spread("task_duration_seconds", "From the start of a task to its end", ({ tally }) => tally.lengths),
  metric("output_bytes_total", "counter", "Output taken from workers", ({ core }) => one(core.tally.outputBytes)),
  metric("workers", "gauge", "Workers, there or away for a while", ({ crew: { workers } }) =>
    by("state", { connected: workers.connected, away: workers.away }),
  ),
  metric("workers_draining", "gauge", "Those of them that get nothing new", ({ crew }) => one(crew.workers.draining)),
  metric("workers_standing", "gauge", "Workers, by how they stand", ({ core }) => by("standing", standings(core))),
  metric("workers_lost_total", "counter", "Connections of workers that ended without a word", ({ core }) =>
    one(core.tally.workersLost),
  ),
  metric("slots", "gauge", "Slots of connected workers", ({ crew }) =>
    by("state", { free: crew.slots.free, used: crew.slots.total - crew.slots.free }),
  ),
  metric("requests", "gauge", "Requests to services that are under way", ({ requests }) => by("state", requests)),
  metric("requests_answered_total", "counter", "Requests that were answered", ({ core }) =>
    by("outcome", { answer: core.tally.answered - core.tally.refused, refusal: core.tally.refused }),
  ),
  spread("request_seconds", "From a request to its answer", ({ tally }) => tally.answers),
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
    perService(({ answered }) => answered),
  ),
  metric(
    "service_failed_total",
    "counter",
    "Those of them that were refused",
    perService(({ failed }) => failed),
  ),
  metric("events_total", "counter", "Events", ({ core }) => one(core.events.last % 2 ** 32)),
  metric("commits_total", "counter", "Batches written to the store", ({ core }) => one(core.tally.commits)),
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
  readonly #face: BrokerFace;
  readonly #registry = new Registry();
  /** However many scrape. */
  readonly #looks = new Looks();
  #scene: Scene | undefined;

  constructor(core: Core, face: BrokerFace) {
    this.#core = core;
    this.#face = face;
    for (const { values, ...said } of METRICS) {
      // What a registry asks of a metric, and no more: these count nothing themselves.
      const source = {
        ...said,
        get: async () => ({ ...said, values: this.#scene === undefined ? [] : values(this.#scene) }),
      };
      this.#registry.registerMetric(source as unknown as Parameters<Registry["registerMetric"]>[0]);
    }
  }

  async answer(response: ServerResponse, role: Role): Promise<void> {
    if (!mayDo(role, "read")) {
      const error = { code: "LABORO_FORBIDDEN", message: `metrics need the role read, this token has ${role}` };
      response.writeHead(403, { "content-type": "application/json" });
      response.end(JSON.stringify({ error }));
      return;
    }
    const { text } = await this.#looks.look("metrics", () => this.#text());
    response.writeHead(200, {
      "content-type": this.#registry.contentType,
      "cache-control": "no-store",
      "x-content-type-options": "nosniff",
    });
    response.end(text);
  }

  async #text(): Promise<string> {
    const context = { role: "read", broker: this.#face, gone: new AbortController().signal } as const;
    const found = await services.perform(this.#core, {}, context);
    this.#scene = {
      core: this.#core,
      version: this.#face.version,
      work: workIn(this.#core),
      crew: workersIn(this.#core),
      requests: requestsIn(this.#core),
      services: found.services.slice(0, SERVICES),
      disk: await this.#face.disk?.().catch(() => undefined),
    };
    return this.#registry.metrics();
  }
}
