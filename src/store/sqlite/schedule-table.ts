/** Table schedule: which rows are due, and changes that depend on a row's revision. */
import type { ScheduleQuery } from "../../model/schedule.js";
import type { ScheduleRow } from "../rows.js";
import type { Database, Statement } from "./database.js";
import type { BatchContext, Operation } from "./operations/index.js";
import type { ScheduleChangeRow, ScheduleRows, WriteResultRow, WriteRow } from "./thread-calls.js";

const SELECT =
  "SELECT name, revision, next_at AS nextAt, spec, state, last_job AS lastJob, former_job AS formerJob FROM schedule";
const ONE = `${SELECT} WHERE name = ?`;
export const DUE = `${SELECT} WHERE next_at <= ? ORDER BY next_at, name LIMIT ?`;
const PAGE = `${SELECT} WHERE name > ? ORDER BY name LIMIT ?`;
export const EARLIEST = "SELECT min(next_at) AS earliest FROM schedule WHERE next_at IS NOT NULL";

export class ScheduleTable {
  readonly #one: Statement;
  readonly #due: Statement;
  readonly #page: Statement;
  readonly #earliest: Statement;

  constructor(db: Database) {
    this.#one = db.prepare(ONE);
    this.#due = db.prepare(DUE);
    this.#page = db.prepare(PAGE);
    this.#earliest = db.prepare(EARLIEST);
  }

  read({ name, due, after = "", limit }: ScheduleQuery, now: number): ScheduleRows {
    const { earliest }: { earliest: number | null } = this.#earliest.get();
    return { rows: this.#rows(name, due === true ? now : undefined, after, limit), earliest };
  }

  #rows(name: string | undefined, dueAt: number | undefined, after: string, limit: number): ScheduleRow[] {
    if (name !== undefined) return this.#one.all(name);
    return dueAt === undefined ? this.#page.all(after, limit) : this.#due.all(dueAt, limit);
  }
}

const REVISION = "SELECT revision FROM schedule WHERE name = ?";
const INSERT = "INSERT INTO schedule (name, revision, next_at, spec, state) VALUES (?, ?, ?, ?, ?)";
const UPDATE = "UPDATE schedule SET revision = ?, next_at = ?, spec = coalesce(?, spec), state = ? WHERE name = ?";
const SET_JOB = "UPDATE schedule SET former_job = last_job, last_job = ? WHERE name = ?";
const DELETE = "DELETE FROM schedule WHERE name = ?";

type Apply = (write: WriteRow, batch: BatchContext) => WriteResultRow;

/** `due` is not compared: the only broker of this store has decided by its own clock. */
export function prepareSchedule(db: Database, apply: Apply): Operation<"schedule"> {
  const revision = db.prepare(REVISION);
  const insert = db.prepare(INSERT);
  const update = db.prepare(UPDATE);
  const remove = db.prepare(DELETE);
  const setJob = db.prepare(SET_JOB);
  const change = ({ name, expected, next }: ScheduleChangeRow): boolean => {
    const found: { revision: number } | undefined = revision.get(name);
    if ((found?.revision ?? 0) !== expected) return false;
    if (next === undefined) remove.run(name);
    else if (found !== undefined) update.run(next.revision, next.nextAt, next.spec, next.state, name);
    else insert.run(name, next.revision, next.nextAt, next.spec, next.state);
    return true;
  };
  return ({ op, changes }, batch) => ({
    op,
    changes: changes.map((one) => {
      const changed = change(one);
      const results = changed ? one.writes.map((write) => apply(write, batch)) : [];
      for (const result of results) {
        if (result.op === "submit") setJob.run(result.id, one.name);
        else if (result.op === "duplicate") setJob.run(result.job, one.name);
      }
      return { changed, results };
    }),
  });
}
