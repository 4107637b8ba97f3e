/**
 * What jobs and results are looked for by: a job's name, pool and key come out of its packed request into columns of their own, and
 * results that are no success get an index, which costs nothing while tasks succeed.
 */
import { unpack } from "msgpackr";
import type { Database } from "../database.js";

const COLUMNS = `
ALTER TABLE job ADD COLUMN name TEXT NOT NULL DEFAULT '';
ALTER TABLE job ADD COLUMN pool TEXT NOT NULL DEFAULT '';
ALTER TABLE job ADD COLUMN key TEXT;
`;
const INDEXES = `
CREATE INDEX job_name ON job (name);
CREATE INDEX job_pool ON job (pool);
CREATE INDEX job_key ON job (key) WHERE key IS NOT NULL;
CREATE INDEX job_ended ON job (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX result_unsuccessful ON result (job, state, idx) WHERE state <> 0;
`;
const NEXT = "SELECT id, request FROM job WHERE id > ? ORDER BY id LIMIT 1";
const FILL = "UPDATE job SET name = ?, pool = ?, key = ? WHERE id = ?";

/** As much of a request as this migration knows of. */
interface Request {
  readonly name: string;
  readonly requirement: { readonly pool: string };
  readonly key?: string;
}

export function filters(db: Database): void {
  db.exec(COLUMNS);
  const next = db.prepare(NEXT);
  const fill = db.prepare(FILL);
  let row: { id: number; request: Uint8Array } | undefined = next.get(0);
  while (row !== undefined) {
    const { name, requirement, key }: Request = unpack(row.request);
    fill.run(name, requirement.pool, key ?? null, row.id);
    row = next.get(row.id);
  }
  db.exec(INDEXES);
}
