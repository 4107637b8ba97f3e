/** The tables as they first were. A migration is never changed once released: the next one changes what it made. */
export const initialSchema = `
CREATE TABLE broker (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  epoch INTEGER NOT NULL
);
INSERT INTO broker (one, epoch) VALUES (1, 0);

CREATE TABLE job (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  created INTEGER NOT NULL,
  request BLOB NOT NULL,
  count INTEGER NOT NULL,
  has_entries INTEGER NOT NULL,
  held INTEGER NOT NULL,
  cursor INTEGER NOT NULL,
  cancels TEXT NOT NULL DEFAULT '[]',
  reason TEXT,
  succeeded INTEGER NOT NULL DEFAULT 0,
  failed INTEGER NOT NULL DEFAULT 0,
  cancelled INTEGER NOT NULL DEFAULT 0,
  ended_at INTEGER,
  ended_state TEXT
);
CREATE INDEX job_open ON job (id) WHERE ended_at IS NULL;

CREATE TABLE entry_chunk (
  job INTEGER NOT NULL,
  first INTEGER NOT NULL,
  last INTEGER NOT NULL,
  bytes BLOB NOT NULL,
  PRIMARY KEY (job, first)
);

CREATE TABLE parcel (
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
CREATE INDEX parcel_given_back ON parcel (job, first) WHERE epoch IS NULL;

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
  output_end INTEGER NOT NULL,
  code INTEGER,
  signal TEXT,
  timed_out INTEGER,
  error TEXT,
  PRIMARY KEY (job, idx)
) WITHOUT ROWID;

CREATE TABLE earlier (
  job INTEGER NOT NULL,
  idx INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  state INTEGER NOT NULL,
  worker INTEGER NOT NULL,
  started INTEGER NOT NULL,
  ended INTEGER NOT NULL,
  output_end INTEGER NOT NULL,
  code INTEGER,
  signal TEXT,
  timed_out INTEGER,
  error TEXT,
  PRIMARY KEY (job, idx, attempt)
) WITHOUT ROWID;

CREATE TABLE output (
  job INTEGER NOT NULL,
  idx INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  reference BLOB NOT NULL,
  PRIMARY KEY (job, idx, attempt)
) WITHOUT ROWID;
`;
