import type { JobId } from "../../model/ids.js";
import type { Range } from "../../model/ranges.js";
import type { Database, Statement } from "./database.js";
import type { EntryChunk } from "./entry-chunks.js";
import type { JobRow } from "./messages.js";

const COLUMNS = `
id, created, request, has_entries AS hasEntries, held, cursor, cancels, reason, succeeded, failed, cancelled,
ended_at AS endedAt, ended_state AS endedState`;
const ONE = `SELECT ${COLUMNS} FROM job WHERE id = ?`;
const PAGE = `SELECT ${COLUMNS} FROM job WHERE id < ? ORDER BY id DESC LIMIT ?`;
const OPEN = `SELECT ${COLUMNS} FROM job WHERE ended_at IS NULL ORDER BY id`;
const ENTRIES = `
SELECT first, last, bytes FROM entry_chunk
WHERE job = ?1 AND first <= ?3
  AND first >= (SELECT max(first) FROM entry_chunk WHERE job = ?1 AND first <= ?2)
ORDER BY first`;

export class JobTable {
  readonly #one: Statement;
  readonly #page: Statement;
  readonly #open: Statement;
  readonly #entries: Statement;

  constructor(db: Database) {
    this.#one = db.prepare(ONE);
    this.#page = db.prepare(PAGE);
    this.#open = db.prepare(OPEN);
    this.#entries = db.prepare(ENTRIES);
  }

  find(id: JobId): JobRow | undefined {
    return this.#one.get(id);
  }

  /** Newest first. */
  page(before: JobId | undefined, limit: number): JobRow[] {
    return this.#page.all(before ?? Number.MAX_SAFE_INTEGER, limit);
  }

  notEnded(): JobRow[] {
    return this.#open.all();
  }

  /** The chunks in which the entries of these tasks lie. */
  entries(job: JobId, range: Range): EntryChunk[] {
    return this.#entries.all(job, range.first, range.last);
  }
}
