/**
 * The schema's history: migration n brings a file from version n - 1 to n, `user_version` says where a file stands. Each
 * runs in one transaction with the change of its number, so a broker that dies in one finds the former version whole.
 */
import { LaboroError } from "../../../base/errors.js";
import type { Database } from "../database.js";
import { initialSchema } from "./001-initial-schema.js";

/** Jobs that take more tasks, and what of jobs was changed after their submission. */
const editedJobs = `
-- It takes more tasks, and does not end, until it is closed.
ALTER TABLE job ADD COLUMN open INTEGER NOT NULL DEFAULT 0;
-- JSON, beside the spec as it was submitted.
ALTER TABLE job ADD COLUMN changes TEXT;
`;

/** Statements, or a function where stored values have to be decoded. */
type Migration = string | ((db: Database) => void);

export const MIGRATIONS: readonly Migration[] = [initialSchema, editedJobs];

export function migrate(db: Database, migrations: readonly Migration[] = MIGRATIONS): void {
  const version = schemaVersion(db);
  for (const [at, migration] of migrations.entries()) {
    if (at < version) continue;
    try {
      db.exec("BEGIN IMMEDIATE");
      if (typeof migration === "string") db.exec(migration);
      else migration(db);
      db.exec(`PRAGMA user_version = ${at + 1}; COMMIT`);
    } catch (cause) {
      if (db.isTransaction) db.exec("ROLLBACK");
      throw cause;
    }
  }
}

export function refuseNewer(version: number, path: string, known = MIGRATIONS.length): void {
  if (version <= known) return;
  throw new LaboroError(
    "LABORO_DATA_NEWER",
    `${path} has schema version ${version}, this laboro knows up to ${known}: use the newer laboro, or another directory with --data`,
  );
}

export function schemaVersion(db: Database): number {
  const row: { user_version: number } | undefined = db.prepare("PRAGMA user_version").get();
  return row?.user_version ?? 0;
}
