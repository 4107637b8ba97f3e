/** Statistics of services: how many requests were completed, how fast, at what rate. Bounded in size. */

/** Latencies that are kept for each service. */
const WINDOW = 1024;
const SECONDS = 60;
/** Services that are remembered; the one used longest ago is dropped first. */
const SERVICES = 1_000;

interface ServiceStatsView {
  readonly completed: number;
  readonly failed: number;
  /** Requests completed per second, over the last minute. */
  readonly rate: number;
  readonly latencyMs?: { readonly mean: number; readonly p50: number; readonly p99: number };
}

class ServiceCounters {
  completed = 0;
  failed = 0;
  readonly times = new Float64Array(WINDOW);
  readonly perSecond = new Uint32Array(SECONDS);
  second = 0;

  add(now: number, tookMs: number, failed: boolean): void {
    this.advance(now);
    if (failed) this.failed++;
    this.times[this.completed++ % WINDOW] = tookMs;
    const slot = this.second % SECONDS;
    this.perSecond[slot] = (this.perSecond[slot] ?? 0) + 1;
  }

  /** Clears the seconds that are older than a minute. */
  advance(now: number): void {
    const second = Math.floor(now / 1000);
    if (second - this.second >= SECONDS) this.perSecond.fill(0);
    else for (let one = this.second + 1; one <= second; one++) this.perSecond[one % SECONDS] = 0;
    this.second = Math.max(this.second, second);
  }
}

export class ServiceStats {
  /** The one used last comes last. */
  readonly #services = new Map<string, ServiceCounters>();
  #last: { readonly service: string; readonly pool: string; readonly counters: ServiceCounters } | undefined;

  add(service: string, pool: string, now: number, tookMs: number, failed: boolean): void {
    // Most requests are for the service of the one before.
    const last = this.#last;
    const same = last !== undefined && last.service === service && last.pool === pool;
    (same ? last.counters : this.#moveToEnd(service, pool)).add(now, tookMs, failed);
  }

  #moveToEnd(service: string, pool: string): ServiceCounters {
    const key = keyOf(service, pool);
    const counters = this.#services.get(key) ?? new ServiceCounters();
    this.#services.delete(key);
    this.#services.set(key, counters);
    this.#last = { service, pool, counters };
    const [oldest] = this.#services.keys();
    if (this.#services.size > SERVICES && oldest !== undefined) this.#services.delete(oldest);
    return counters;
  }

  /** Services that had requests, with their pool. */
  names(): { service: string; pool: string }[] {
    return [...this.#services.keys()].map((key) => {
      const [pool = "", service = ""] = key.split("\0");
      return { service, pool };
    });
  }

  of(service: string, pool: string, now: number): ServiceStatsView {
    const counters = this.#services.get(keyOf(service, pool));
    if (counters === undefined) return { completed: 0, failed: 0, rate: 0 };
    counters.advance(now);
    const { completed, failed } = counters;
    const rate = counters.perSecond.reduce((sum, count) => sum + count, 0) / SECONDS;
    const times = counters.times.slice(0, Math.min(completed, WINDOW)).sort();
    const mean = times.reduce((sum, time) => sum + time, 0) / times.length;
    const at = (part: number): number => times[Math.min(times.length - 1, Math.floor(times.length * part))] ?? 0;
    return { completed, failed, rate, latencyMs: { mean, p50: at(0.5), p99: at(0.99) } };
  }
}

const keyOf = (service: string, pool: string): string => `${pool}\0${service}`;
