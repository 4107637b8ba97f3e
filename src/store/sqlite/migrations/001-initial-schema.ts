/** The first version of the tables. A released migration is never changed: a later one alters its tables. */
export const initialSchema = `
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
  key TEXT,
  idempotency_key TEXT,
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
CREATE INDEX job_open ON job (id) WHERE ended_at IS NULL;
CREATE INDEX job_name ON job (name);
CREATE INDEX job_pool ON job (pool);
CREATE INDEX job_key ON job (key) WHERE key IS NOT NULL;
CREATE UNIQUE INDEX job_idempotency_key ON job (idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX job_ended ON job (ended_at) WHERE ended_at IS NOT NULL;

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
  -- All of it where it is small (small-output.ts); otherwise it is in segments, and table output says where.
  output BLOB,
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
`;
