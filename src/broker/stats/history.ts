/**
 * Time series for charts: one point for every five seconds of the last hour, in memory, and for every minute of the
 * last day, in the store. Each broker stores an hour of minutes as one text under its own key, so the brokers of a
 * group do not overwrite each other. Points older than a day are removed.
 */
import { now } from "../../base/clock.js";
import { asLaboroError } from "../../base/errors.js";
import type { Log } from "../../base/log.js";
import type { Core } from "../core.js";
import { type BrokerCounters, countWork, countWorkers, type Histogram, oldestWait } from "./counters.js";

/** The fields of a point: counts over its interval, then gauges at its end. */
const COUNTER_FIELDS = ["succeeded", "failed", "cancelled", "assigned", "requestsCompleted", "requestsFailed"] as const;
const GAUGE_FIELDS = [
  "waitP50",
  "waitP95",
  "oldestWait",
  "latencyP50",
  "latencyP95",
  "slots",
  "slotsUsed",
  "tasksWaiting",
  "tasksRunning",
  "workers",
] as const;
/** In a group these are summed over the brokers. For the other fields the maximum is taken. */
const SUMMED_FIELDS: readonly HistoryField[] = [...COUNTER_FIELDS, "slots", "slotsUsed", "tasksRunning", "workers"];
export const HISTORY_FIELDS = [...COUNTER_FIELDS, ...GAUGE_FIELDS] as const;
export type HistoryField = (typeof HISTORY_FIELDS)[number];
export type HistoryPoint = { readonly [Name in HistoryField | "at"]: number };

export const BUCKET = "history";
export const TICK_MS = 5_000;
const TICKS = 720;
const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
export const KEPT_MS = 24 * HOUR_MS;

/** The counters at the start of a point. */
class CounterSnapshot {
  readonly counted: Readonly<Record<(typeof COUNTER_FIELDS)[number], number>>;
  readonly taskWaits: Histogram;
  readonly requestDurations: Histogram;

  constructor(counters: BrokerCounters) {
    this.counted = countsOf(counters);
    this.taskWaits = counters.taskWaits.copy();
    this.requestDurations = counters.requestDurations.copy();
  }
}

export class History {
  readonly #core: Core;
  readonly #log: Log;
  readonly #ticks: HistoryPoint[] = [];
  /** The stored minutes of this hour. */
  #hour: { readonly start: number; readonly minutes: HistoryPoint[] };
  #minute: number;
  #sinceTick: CounterSnapshot;
  #sinceMinute: CounterSnapshot;
  #timer: NodeJS.Timeout | undefined;
  #dayCache: { readonly until: number; readonly points: Promise<readonly HistoryPoint[]> } | undefined;

  constructor(core: Core, log: Log) {
    this.#core = core;
    this.#log = log;
    this.#sinceTick = new CounterSnapshot(core.counters);
    this.#sinceMinute = this.#sinceTick;
    this.#minute = Math.floor(now() / MINUTE_MS);
    this.#hour = { start: hourOf(now()), minutes: [] };
  }

  start(): void {
    this.#timer = setInterval(() => void this.tick(now()), TICK_MS).unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  /** The last hour, or since the start of this broker. */
  recent(): readonly HistoryPoint[] {
    return this.#ticks;
  }

  /** The last day, of all brokers together. It changes once a minute and is read no more often. */
  minutes(): Promise<readonly HistoryPoint[]> {
    if (this.#dayCache === undefined || this.#dayCache.until <= now()) {
      const points = this.#readAll();
      points.catch(() => {
        this.#dayCache = undefined;
      });
      this.#dayCache = { until: now() + MINUTE_MS / 2, points };
    }
    return this.#dayCache.points;
  }

  /** Adds a point; at the end of a minute, resolves when the minute is stored. */
  async tick(at: number): Promise<void> {
    const mark = new CounterSnapshot(this.#core.counters);
    this.#ticks.push(pointOf(this.#core, at, this.#sinceTick, mark));
    if (this.#ticks.length > TICKS) this.#ticks.shift();
    this.#sinceTick = mark;
    const minute = Math.floor(at / MINUTE_MS);
    if (minute === this.#minute) return;
    const point = pointOf(this.#core, minute * MINUTE_MS, this.#sinceMinute, mark);
    this.#minute = minute;
    this.#sinceMinute = mark;
    try {
      await this.#saveMinute(point);
    } catch (cause) {
      // A minute that cannot be written is dropped: work is more important than charts.
      this.#log.info({ code: asLaboroError(cause).code }, "a minute is missing from the history");
    }
  }

  async #saveMinute(point: HistoryPoint): Promise<void> {
    const start = hourOf(point.at - 1);
    const begun = start !== this.#hour.start;
    if (begun) this.#hour = { start, minutes: [] };
    this.#hour.minutes.push(point);
    const rows = this.#hour.minutes.map((one) => [one.at, ...HISTORY_FIELDS.map((name) => rounded(one[name]))]);
    await this.#core.put(
      BUCKET,
      `${start}.${this.#core.state.epoch}`,
      JSON.stringify({ fields: HISTORY_FIELDS, rows }),
    );
    this.#dayCache = undefined;
    if (begun || this.#hour.minutes.length === 1) await this.#removeOld(point.at);
  }

  async #removeOld(at: number): Promise<void> {
    for (const { key } of await this.#core.store.keyValues(BUCKET)) {
      if (!(Number(key.split(".", 1)[0]) > at - KEPT_MS - HOUR_MS)) await this.#core.put(BUCKET, key, null);
    }
  }

  async #readAll(): Promise<readonly HistoryPoint[]> {
    const points = new Map<number, HistoryPoint>();
    for (const { value } of await this.#core.store.keyValues(BUCKET)) {
      for (const point of pointsIn(value)) {
        const other = points.get(point.at);
        points.set(point.at, other === undefined ? point : mergePoints(other, point));
      }
    }
    const oldest = now() - KEPT_MS;
    return [...points.values()].filter(({ at }) => at > oldest).sort((a, b) => a.at - b.at);
  }
}

const hourOf = (at: number): number => Math.floor(at / HOUR_MS) * HOUR_MS;
const rounded = (value: number): number => Math.round(value * 10) / 10;

const countsOf = ({ ended, assigned, requestsCompleted, requestsFailed }: BrokerCounters) => ({
  ...ended,
  assigned,
  requestsCompleted,
  requestsFailed,
});

function pointOf(core: Core, at: number, before: CounterSnapshot, after: CounterSnapshot): HistoryPoint {
  const waits = after.taskWaits.since(before.taskWaits);
  const latencies = after.requestDurations.since(before.requestDurations);
  const { workers, slots } = countWorkers(core);
  const { tasks } = countWork(core);
  const counts = COUNTER_FIELDS.map((name) => [name, after.counted[name] - before.counted[name]]);
  return {
    ...(Object.fromEntries(counts) as Record<(typeof COUNTER_FIELDS)[number], number>),
    at,
    waitP50: waits.quantile(0.5),
    waitP95: waits.quantile(0.95),
    oldestWait: oldestWait(core, now()),
    latencyP50: latencies.quantile(0.5),
    latencyP95: latencies.quantile(0.95),
    slots: slots.total,
    slotsUsed: slots.total - slots.free,
    tasksWaiting: tasks.waiting,
    tasksRunning: tasks.running,
    workers: workers.connected,
  };
}

/** Another version may have written other fields; an unreadable text has no points. */
function pointsIn(value: string): HistoryPoint[] {
  let stored: { readonly fields?: readonly string[]; readonly rows?: readonly (readonly number[])[] };
  try {
    stored = JSON.parse(value) as typeof stored;
  } catch {
    return [];
  }
  const { fields = [], rows = [] } = stored;
  const columns = HISTORY_FIELDS.map((name) => [name, fields.indexOf(name) + 1] as const);
  return rows.map((row) => ({
    ...(Object.fromEntries(columns.map(([name, at]) => [name, at === 0 ? 0 : (row[at] ?? 0)])) as Record<
      HistoryField,
      number
    >),
    at: row[0] ?? 0,
  }));
}

function mergePoints(a: HistoryPoint, b: HistoryPoint): HistoryPoint {
  const both = HISTORY_FIELDS.map((name) => [
    name,
    SUMMED_FIELDS.includes(name) ? a[name] + b[name] : Math.max(a[name], b[name]),
  ]) as [HistoryField, number][];
  return { ...(Object.fromEntries(both) as Record<HistoryField, number>), at: a.at };
}
