import { JobId } from "../../model/ids.js";
import type { Range } from "../../model/ranges.js";
import type { EntryChunk, JobFilter, NextDelayed } from "../../model/store.js";
import type { Database, Statement } from "./database.js";
import { conditionsOf } from "./job-filter.js";
import type { JobRow } from "./messages.js";

const COLUMNS = `
id, created, spec, has_entries AS hasEntries, held, cursor, cancels, cancel_reason AS reason, succeeded, failed, cancelled,
ended_at AS endedAt, ended_state AS endedState, not_before AS notBefore`;
const ONE = `SELECT ${COLUMNS} FROM job WHERE id = ?`;
export const pageOfJobs = (conditions: readonly string[]): string =>
  `SELECT ${COLUMNS} FROM job WHERE ${["id < ?", ...conditions].join(" AND ")} ORDER BY id DESC LIMIT ?`;
const OPEN = `SELECT ${COLUMNS} FROM job WHERE ended_at IS NULL AND not_before IS NULL ORDER BY id`;
export const NEXT_DELAYED = `
SELECT not_before AS at FROM job WHERE ended_at IS NULL AND not_before IS NOT NULL AND relative = ? ORDER BY not_before LIMIT 1`;
const ENTRIES = `
SELECT first, last, bytes FROM entry_chunk
WHERE job = ?1 AND first <= ?3
  AND first >= (SELECT max(first) FROM entry_chunk WHERE job = ?1 AND first <= ?2)
ORDER BY first`;

/** A number that was given to a job, which is not there any more. Of a number never given, nothing is known. */
const WAS_REMOVED = `
SELECT 1 WHERE ?1 <= (SELECT seq FROM sqlite_sequence WHERE name = 'job') AND NOT EXISTS (SELECT 1 FROM job WHERE id = ?1)`;

const LAST = "SELECT seq FROM sqlite_sequence WHERE name = 'job'";

export class JobTable {
  readonly #last: Statement;
  readonly #db: Database;
  readonly #one: Statement;
  /** By their conditions, of which there are a few. */
  readonly #pages = new Map<string, Statement>();
  readonly #open: Statement;
  readonly #entries: Statement;
  readonly #wasRemoved: Statement;
  readonly #nextDelayed: Statement;

  constructor(db: Database) {
    this.#last = db.prepare(LAST);
    this.#db = db;
    this.#one = db.prepare(ONE);
    this.#open = db.prepare(OPEN);
    this.#entries = db.prepare(ENTRIES);
    this.#wasRemoved = db.prepare(WAS_REMOVED);
    this.#nextDelayed = db.prepare(NEXT_DELAYED);
  }

  find(id: JobId): JobRow | undefined {
    return this.#one.get(id);
  }

  /** The number after the last that was ever given. */
  next(): JobId {
    const row: { seq: number } | undefined = this.#last.get();
    return JobId((row?.seq ?? 0) + 1);
  }

  /** Numbers up to this one are not given any more. */
  skipTo(id: number): void {
    const last = Math.max(id, this.next() - 1);
    this.#db.exec(
      `DELETE FROM sqlite_sequence WHERE name = 'job'; INSERT INTO sqlite_sequence VALUES ('job', ${last})`,
    );
  }

  nextDelayed(): NextDelayed {
    const [clock, steady] = [0, 1].map((relative) => this.#nextDelayed.get(relative) as { at: number } | undefined);
    return { ...(clock && { clock: clock.at }), ...(steady && { steady: steady.at }) };
  }

  /** Newest first. */
  page(before: JobId | undefined, limit: number, filter: JobFilter = {}): JobRow[] {
    const found = conditionsOf(filter).map((conditions): JobRow[] => {
      const values = conditions.flatMap(({ value }) => (value === undefined ? [] : [value].flat()));
      const page = this.#pageWhere(conditions.map(({ sql }) => sql));
      return page.all(before ?? Number.MAX_SAFE_INTEGER, ...values, limit);
    });
    const [all = []] = found;
    if (found.length < 2) return all;
    return found
      .flat()
      .sort((a, b) => b.id - a.id)
      .slice(0, limit);
  }

  openJobs(): JobRow[] {
    return this.#open.all();
  }

  /** The chunks in which the entries of these tasks lie. */
  entries(job: JobId, range: Range): EntryChunk[] {
    return this.#entries.all(job, range.first, range.last);
  }

  wasRemoved(id: JobId): boolean {
    return this.#wasRemoved.get(id) !== undefined;
  }

  #pageWhere(conditions: readonly string[]): Statement {
    const sql = pageOfJobs(conditions);
    const page = this.#pages.get(sql) ?? this.#db.prepare(sql);
    this.#pages.set(sql, page);
    return page;
  }
}
