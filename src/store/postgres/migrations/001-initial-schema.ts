/** The tables as they first were. A migration is never changed once released: the next one changes what it made. */
export const initialSchema = `
CREATE TABLE laboro.broker (
  epoch bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  about text NOT NULL,
  started timestamptz NOT NULL DEFAULT clock_timestamp(),
  beat timestamptz NOT NULL DEFAULT clock_timestamp(),
  lease_ends timestamptz NOT NULL,
  -- Another broker has found its lease ended, or it has said good-bye: it writes nothing any more.
  dead boolean NOT NULL DEFAULT false
);

-- The last batch of each broker: one that is given again, because its commit was not heard of, is found here.
CREATE TABLE laboro.batch (
  epoch bigint NOT NULL,
  number bigint NOT NULL,
  PRIMARY KEY (epoch, number)
);

CREATE SEQUENCE laboro.job_number;

CREATE TABLE laboro.job (
  id bigint PRIMARY KEY,
  created double precision NOT NULL,
  ended_at double precision,
  count integer NOT NULL,
  cursor integer NOT NULL,
  -- How often it has been let run again after its end.
  life integer NOT NULL DEFAULT 0,
  ended_state smallint,
  has_entries boolean NOT NULL,
  held boolean NOT NULL,
  -- The transaction that last changed what other brokers must hear of, and the broker; 0 where several have changed it.
  changed xid8 NOT NULL DEFAULT pg_current_xact_id(),
  changed_by bigint NOT NULL,
  name text COLLATE "C" NOT NULL,
  pool text COLLATE "C" NOT NULL,
  key text COLLATE "C",
  reason text,
  cancels int4multirange NOT NULL DEFAULT '{}',
  request bytea NOT NULL
) WITH (fillfactor = 80);
CREATE INDEX job_open ON laboro.job (id) WHERE ended_at IS NULL;
CREATE INDEX job_name ON laboro.job (name, id);
CREATE INDEX job_pool ON laboro.job (pool, id);
CREATE INDEX job_key ON laboro.job (key, id) WHERE key IS NOT NULL;
CREATE INDEX job_ended ON laboro.job (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX job_changed ON laboro.job (changed);

CREATE TABLE laboro.tally (
  job bigint NOT NULL,
  epoch bigint NOT NULL,
  -- Bytes of entries and output.
  bytes bigint NOT NULL DEFAULT 0,
  succeeded integer NOT NULL DEFAULT 0,
  failed integer NOT NULL DEFAULT 0,
  cancelled integer NOT NULL DEFAULT 0,
  PRIMARY KEY (job, epoch)
) WITH (fillfactor = 60);

CREATE TABLE laboro.entry_chunk (
  job bigint NOT NULL,
  first integer NOT NULL,
  last integer NOT NULL,
  bytes bytea NOT NULL,
  PRIMARY KEY (job, first)
);

CREATE TABLE laboro.parcel (
  id bigint PRIMARY KEY,
  job bigint NOT NULL,
  epoch bigint,
  not_before double precision NOT NULL,
  first integer NOT NULL,
  last integer NOT NULL,
  attempt integer NOT NULL,
  failures integer NOT NULL,
  crashes integer NOT NULL,
  avoid text COLLATE "C",
  worker text COLLATE "C"
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
CREATE INDEX parcel_given_back ON laboro.parcel (job, first) WHERE epoch IS NULL;
CREATE INDEX parcel_owned ON laboro.parcel (epoch, job) WHERE epoch IS NOT NULL;
CREATE INDEX parcel_claimed ON laboro.parcel (worker) WHERE worker IS NOT NULL;

CREATE TABLE laboro.worker (
  id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text COLLATE "C" NOT NULL UNIQUE
);

CREATE TABLE laboro.result (
  job bigint NOT NULL,
  started double precision NOT NULL,
  ended double precision NOT NULL,
  output_end bigint NOT NULL,
  idx integer NOT NULL,
  attempt integer NOT NULL,
  worker integer NOT NULL,
  state smallint NOT NULL,
  timed_out boolean,
  code bigint,
  signal text,
  error text,
  PRIMARY KEY (job, idx)
);
CREATE INDEX result_unsuccessful ON laboro.result (job, state, idx) WHERE state <> 0;

CREATE TABLE laboro.earlier (
  LIKE laboro.result,
  PRIMARY KEY (job, idx, attempt)
);

CREATE TABLE laboro.output (
  job bigint NOT NULL,
  -- Where these bytes begin in the attempt's output.
  at bigint NOT NULL,
  idx integer NOT NULL,
  attempt integer NOT NULL,
  -- The job's when they came.
  life integer NOT NULL,
  stream smallint NOT NULL,
  bytes bytea NOT NULL,
  PRIMARY KEY (job, idx, attempt, at)
);

CREATE TABLE laboro.kept (
  area text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  version integer NOT NULL,
  value text NOT NULL,
  changed double precision NOT NULL,
  -- As of a job.
  changed_in xid8 NOT NULL DEFAULT pg_current_xact_id(),
  changed_by bigint NOT NULL,
  PRIMARY KEY (area, key)
);
`;
