/**
 * The schema's history: migration n brings a file from version n - 1 to n; `user_version` is the version of a file.
 * Each runs in one transaction with the change of the number, so a broker that dies during one leaves the former
 * version intact.
 */
import { LaboroError } from "../../base/errors.js";
import type { Database } from "./database.js";

/** The first version of the tables. A released migration is never changed: a later one alters its tables. */
const initialSchema = `
CREATE TABLE broker (
  singleton INTEGER PRIMARY KEY CHECK (singleton = 1),
  epoch INTEGER NOT NULL,
  commits INTEGER NOT NULL,
  -- Of this store, for whoever keeps something that belongs to it.
  identity TEXT NOT NULL
);
INSERT INTO broker (singleton, epoch, commits, identity) VALUES (1, 0, 0, lower(hex(randomblob(16))));

CREATE TABLE job (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  created INTEGER NOT NULL,
  name TEXT NOT NULL,
  pool TEXT NOT NULL,
  batch_key TEXT,
  idempotency_key TEXT,
  -- has_key: no other job may have the key now. Kept after the end of the job until another one asks for it.
  key TEXT,
  has_key INTEGER NOT NULL DEFAULT 0,
  key_for_ms INTEGER,
  -- While it is delayed; relative: counted from its submission.
  not_before INTEGER,
  relative INTEGER NOT NULL DEFAULT 0,
  keep_ms INTEGER,
  keep_failed_ms INTEGER,
  spec BLOB NOT NULL,
  count INTEGER NOT NULL,
  has_entries INTEGER NOT NULL,
  held INTEGER NOT NULL,
  cursor INTEGER NOT NULL,
  cancels TEXT NOT NULL DEFAULT '[]',
  cancel_reason TEXT,
  succeeded INTEGER NOT NULL DEFAULT 0,
  failed INTEGER NOT NULL DEFAULT 0,
  cancelled INTEGER NOT NULL DEFAULT 0,
  ended_at INTEGER,
  ended_state TEXT
);
CREATE INDEX job_open ON job (id) WHERE ended_at IS NULL AND not_before IS NULL;
CREATE INDEX job_delayed ON job (id) WHERE ended_at IS NULL AND not_before IS NOT NULL;
CREATE INDEX job_not_before ON job (relative, not_before) WHERE ended_at IS NULL AND not_before IS NOT NULL;
CREATE INDEX job_name ON job (name);
CREATE INDEX job_pool ON job (pool);
CREATE INDEX job_batch_key ON job (batch_key) WHERE batch_key IS NOT NULL;
CREATE INDEX job_key ON job (key) WHERE key IS NOT NULL;
CREATE UNIQUE INDEX job_has_key ON job (key) WHERE has_key = 1;
CREATE UNIQUE INDEX job_idempotency_key ON job (idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX job_ended ON job (ended_state, ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX job_own_keep ON job (ended_at + CASE ended_state WHEN 'succeeded' THEN keep_ms ELSE keep_failed_ms END)
  WHERE ended_at IS NOT NULL AND keep_failed_ms IS NOT NULL;

CREATE TABLE entry_chunk (
  job INTEGER NOT NULL,
  first INTEGER NOT NULL,
  last INTEGER NOT NULL,
  bytes BLOB NOT NULL,
  PRIMARY KEY (job, first)
);

CREATE TABLE task_range (
  id INTEGER PRIMARY KEY,
  job INTEGER NOT NULL,
  first INTEGER NOT NULL,
  last INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  failures INTEGER NOT NULL,
  crashes INTEGER NOT NULL,
  not_before INTEGER NOT NULL,
  wait_ms INTEGER,
  avoid TEXT,
  worker TEXT,
  epoch INTEGER
);
CREATE INDEX task_range_released ON task_range (job, first) WHERE epoch IS NULL;

CREATE TABLE worker (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE
);

CREATE TABLE result (
  job INTEGER NOT NULL,
  idx INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  state INTEGER NOT NULL,
  worker INTEGER NOT NULL,
  started INTEGER NOT NULL,
  ended INTEGER NOT NULL,
  output_bytes INTEGER NOT NULL,
  code INTEGER,
  signal TEXT,
  timed_out INTEGER,
  error TEXT,
  -- All of it where it is small (rows.ts); otherwise it is in segments, and table output says where.
  output BLOB,
  -- What the handler returned, or the error that it threw.
  value BLOB,
  cpu_ms INTEGER,
  peak_memory INTEGER,
  PRIMARY KEY (job, idx)
) WITHOUT ROWID;
-- Only results that are no success: the index costs nothing while tasks succeed.
CREATE INDEX result_unsuccessful ON result (job, state, idx) WHERE state <> 0;

CREATE TABLE earlier_attempt (
  job INTEGER NOT NULL,
  idx INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  state INTEGER NOT NULL,
  worker INTEGER NOT NULL,
  started INTEGER NOT NULL,
  ended INTEGER NOT NULL,
  output_bytes INTEGER NOT NULL,
  code INTEGER,
  signal TEXT,
  timed_out INTEGER,
  error TEXT,
  output BLOB,
  value BLOB,
  cpu_ms INTEGER,
  peak_memory INTEGER,
  PRIMARY KEY (job, idx, attempt)
) WITHOUT ROWID;

CREATE TABLE output (
  job INTEGER NOT NULL,
  idx INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  reference BLOB NOT NULL,
  PRIMARY KEY (job, idx, attempt)
) WITHOUT ROWID;

CREATE TABLE key_value (
  bucket TEXT NOT NULL,
  key TEXT NOT NULL,
  version INTEGER NOT NULL,
  value TEXT NOT NULL,
  updated_at REAL NOT NULL,
  PRIMARY KEY (bucket, key)
) WITHOUT ROWID;

-- Starts of tasks that count against the rate of a limit, for the interval of that rate.
CREATE TABLE limit_start (
  name TEXT NOT NULL,
  at REAL NOT NULL,
  count INTEGER NOT NULL,
  PRIMARY KEY (name, at)
) WITHOUT ROWID;

CREATE TABLE schedule (
  name TEXT PRIMARY KEY,
  revision INTEGER NOT NULL,
  -- When its next run is started; none while it is paused and after its end.
  next_at INTEGER,
  spec BLOB NOT NULL,
  state TEXT NOT NULL,
  last_job INTEGER,
  former_job INTEGER
);
CREATE INDEX schedule_next ON schedule (next_at) WHERE next_at IS NOT NULL;
`;

/** Jobs that take more tasks, and changes of jobs after their submission. */
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

export function refuseNewer(version: number, path: string): void {
  const known = MIGRATIONS.length;
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
