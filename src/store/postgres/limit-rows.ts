/**
 * The use of named limits and of `maxRunning`, which bounds leases. Task ranges contain the limits that they count
 * against (`limit_names`, see `limitKeys`) while a broker owns them, whether leased or claimed. So a task counts as
 * long as it may run, whatever happens to a broker or worker. Brokers that lease for the same limit take turns: its row
 * is locked (write-batch.ts), for `maxRunning` the row of the job.
 */
import { LIMIT_BUCKET, type LimitRule, type LimitUse, limitKeys, roomLeft } from "../../model/limit.js";
import type { LeaseLimit } from "../../model/store.js";
import type { Session } from "./connections.js";
import type { IndexedWrite } from "./stages.js";
import { numberArray, OWN_EPOCH, textArray } from "./statements.js";

const NOW = "(extract(epoch FROM clock_timestamp()) * 1000)::float8";
const RULES = `
SELECT a.name, k.value::jsonb AS rule, (k.value::jsonb #>> '{rate,intervalMs}')::float8 AS interval_ms
FROM unnest($1::text[]) AS a (name) LEFT JOIN laboro.key_value k ON k.bucket = '${LIMIT_BUCKET}' AND k.key = a.name`;

/** $1 limits. Starts in the future come from a clock that was set back by more than the interval. */
export const LIMIT_USE = `
WITH rules AS MATERIALIZED (${RULES}),
clock AS MATERIALIZED (SELECT ${NOW} AS now),
ranges AS MATERIALIZED (
  SELECT string_to_array(p.limit_names, ',') AS names, p.worker IS NULL AS leased,
    p.last - p.first + 1 - CASE WHEN p.worker IS NULL THEN 0
    ELSE (SELECT count(*) FROM laboro.result r WHERE r.job = p.job AND r.idx BETWEEN p.first AND p.last) END AS tasks
  FROM laboro.task_range p WHERE p.limit_names IS NOT NULL AND p.epoch IS NOT NULL),
uses AS MATERIALIZED (
  SELECT name, sum(tasks) FILTER (WHERE leased) AS leased, sum(tasks) FILTER (WHERE NOT leased) AS running
  FROM ranges, unnest(names) AS u (name) WHERE name = ANY($1::text[]) GROUP BY name)
SELECT r.name, r.rule, coalesce(u.running, 0)::float8 AS running, coalesce(u.leased, 0)::float8 AS leased, s.starts,
  s.next_ms AS "nextMs"
FROM rules r LEFT JOIN uses u ON u.name = r.name, LATERAL (
  SELECT coalesce(sum(l.count), 0)::float8 AS starts, min(l.at) + r.interval_ms - (SELECT now FROM clock) AS next_ms
  FROM laboro.limit_start l
  WHERE l.name = r.name AND l.at > (SELECT now FROM clock) - r.interval_ms
    AND l.at < (SELECT now FROM clock) + r.interval_ms) AS s`;

/** $1 limits. Only brokers that have locked them delete. */
const FORGET_STARTS = `
WITH rules AS MATERIALIZED (${RULES})
DELETE FROM laboro.limit_start l USING rules r
WHERE l.name = r.name AND l.at <= ${NOW} - coalesce(r.interval_ms, 0) AND ${OWN_EPOCH} > 0`;

/** $1 jobs. This broker may not know of the last change yet. */
export const EDITED_LIMITS = `
SELECT '#' || id AS key, (changes ->> 'maxRunning')::int AS running FROM laboro.job
  WHERE id = ANY($1::bigint[]) AND changes ? 'maxRunning'`;

/** $1 limits, $2 how many tasks are started of each. As `startTime` in model/limit.ts, by the database's clock. */
export const ADD_STARTS = `
INSERT INTO laboro.limit_start AS s (name, epoch, at, count)
SELECT a.name, ${OWN_EPOCH},
  CASE WHEN rate.starts <= 1000 THEN clock.now ELSE ceil(clock.now * 1000 / rate.ms) * rate.ms / 1000 END, a.count
FROM unnest($1::text[], $2::int[]) AS a (name, count)
JOIN laboro.key_value k ON k.bucket = '${LIMIT_BUCKET}' AND k.key = a.name,
LATERAL (SELECT (k.value::jsonb #>> '{rate,starts}')::float8 AS starts,
  (k.value::jsonb #>> '{rate,intervalMs}')::float8 AS ms) AS rate,
(SELECT ${NOW} AS now) AS clock
WHERE rate.starts IS NOT NULL
ON CONFLICT (name, epoch, at) DO UPDATE SET count = s.count + excluded.count`;

interface UseRow extends Omit<LimitUse, "rule" | "nextMs"> {
  readonly rule: LimitRule | null;
  readonly nextMs: number | null;
}

export async function readLimitUse(session: Session, names: readonly string[]): Promise<LimitUse[]> {
  if (names.length === 0) return [];
  const rows = await session.send<UseRow>(LIMIT_USE, [textArray(names)]);
  return rows.map(({ rule, nextMs, ...use }) => ({ ...use, rule: rule ?? {}, ...(nextMs === null ? {} : { nextMs }) }));
}

export const isLimitedLease = ({ write }: IndexedWrite<"lease">): boolean =>
  write.limits !== undefined || write.maxRunning !== undefined;

/** What the limits of some leases leave, and how much of it they have used. */
export class LimitRooms {
  readonly #uses: ReadonlyMap<string, LimitUse>;
  readonly #rooms: Map<string, number>;

  private constructor(uses: readonly LimitUse[]) {
    this.#uses = new Map(uses.map((use) => [use.name, use]));
    this.#rooms = new Map(uses.map((use) => [use.name, Math.max(0, roomLeft(use))]));
  }

  static async read(session: Session, writes: readonly IndexedWrite<"lease">[]): Promise<LimitRooms> {
    const own = new Map<string, LimitRule>();
    const names = new Set<string>();
    for (const { write } of writes) {
      for (const name of limitKeys(write.job, write)) names.add(name);
      if (write.maxRunning !== undefined) own.set(`#${write.job}`, { running: write.maxRunning });
    }
    const jobs = numberArray(writes.map(({ write }) => write.job));
    const [uses, edited] = await Promise.all([
      readLimitUse(session, [...names]),
      session.send<{ key: string; running: number }>(EDITED_LIMITS, [jobs]),
      session.send(FORGET_STARTS, [textArray([...names])]),
    ]);
    for (const { key, running } of edited) own.set(key, { running });
    return new LimitRooms(uses.map((use) => ({ ...use, rule: own.get(use.name) ?? use.rule })));
  }

  /** Takes what these limits leave, at most `max`. */
  take(names: readonly string[], max: number): number {
    const taken = Math.min(max, ...names.map((name) => this.#room(name)));
    this.giveBack(names, -taken);
    return taken;
  }

  giveBack(names: readonly string[], count: number): void {
    for (const name of names) this.#rooms.set(name, this.#room(name) + count);
  }

  /** The limit that leaves nothing more. */
  full(names: readonly string[]): LeaseLimit | undefined {
    const name = names.find((one) => this.#room(one) <= 0);
    const use = this.#uses.get(name ?? "");
    if (name === undefined || use === undefined) return undefined;
    const { rule, running, starts, nextMs } = use;
    const byRate =
      (rule.rate?.starts ?? Number.POSITIVE_INFINITY) - starts < (rule.running ?? Number.POSITIVE_INFINITY) - running;
    return { ...(name.startsWith("#") ? {} : { limit: name }), ...(byRate && nextMs !== undefined ? { nextMs } : {}) };
  }

  #room(name: string): number {
    return this.#rooms.get(name) ?? Number.POSITIVE_INFINITY;
  }
}

/** Records the starts of claims. */
export async function addStarts(session: Session, writes: readonly IndexedWrite<"claim">[]): Promise<void> {
  const counts = new Map<string, number>();
  for (const { write } of writes)
    for (const name of write.limits ?? []) counts.set(name, (counts.get(name) ?? 0) + write.last - write.first + 1);
  if (counts.size > 0)
    await session.send(ADD_STARTS, [textArray([...counts.keys()]), numberArray([...counts.values()])]);
}
