/** The first version of the tables. A released migration is never changed: a later one alters its tables. */
export const initialSchema = `
-- The identity of this store, for whoever keeps something that belongs to it.
CREATE TABLE laboro.store (
  singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
  identity text NOT NULL DEFAULT replace(gen_random_uuid()::text, '-', '')
);
INSERT INTO laboro.store DEFAULT VALUES;

CREATE TABLE laboro.broker (
  epoch bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  info text NOT NULL,
  started timestamptz NOT NULL DEFAULT clock_timestamp(),
  heartbeat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  lease_ends_at timestamptz NOT NULL,
  -- Another broker has found its lease ended, or it has left: it writes nothing any more.
  dead boolean NOT NULL DEFAULT false
);

-- The last batch of each broker: a batch that is tried again after an unconfirmed COMMIT finds its own number here.
CREATE TABLE laboro.last_batch (
  epoch bigint NOT NULL,
  number bigint NOT NULL,
  PRIMARY KEY (epoch, number)
);

CREATE SEQUENCE laboro.job_number;

CREATE TABLE laboro.job (
  id bigint PRIMARY KEY,
  created double precision NOT NULL,
  count integer NOT NULL,
  cursor integer NOT NULL,
  -- How often it was reopened after its end.
  reopen_count integer NOT NULL DEFAULT 0,
  has_entries boolean NOT NULL,
  held boolean NOT NULL,
  name text COLLATE "C" NOT NULL,
  pool text COLLATE "C" NOT NULL,
  batch_key text COLLATE "C",
  idempotency_key text COLLATE "C",
  -- has_key: no other job may have the key now. Kept after the end of the job until another one asks for it.
  key text COLLATE "C",
  has_key boolean NOT NULL DEFAULT false,
  key_for_ms double precision,
  cancel_reason text,
  cancels int4multirange NOT NULL DEFAULT '{}',
  spec bytea NOT NULL
) WITH (fillfactor = 90);
CREATE INDEX job_name ON laboro.job (name, id);
CREATE INDEX job_pool ON laboro.job (pool, id);
CREATE INDEX job_batch_key ON laboro.job (batch_key, id) WHERE batch_key IS NOT NULL;
CREATE INDEX job_key ON laboro.job (key, id) WHERE key IS NOT NULL;
CREATE UNIQUE INDEX job_has_key ON laboro.job (key) WHERE has_key;
CREATE UNIQUE INDEX job_idempotency_key ON laboro.job (idempotency_key) WHERE idempotency_key IS NOT NULL;

-- What changes of a job and is searched for. Apart from table job: its rows are long and have many indexes, none on a column that changes.
CREATE TABLE laboro.job_state (
  job bigint PRIMARY KEY,
  ended_at double precision,
  -- The transaction that last changed what concerns other brokers, and the broker; 0 where several have changed it.
  changed_xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  changed_by bigint NOT NULL,
  -- While it is delayed; relative: counted from its submission.
  not_before double precision,
  keep_ms double precision,
  keep_failed_ms double precision,
  ended_state smallint,
  relative boolean NOT NULL DEFAULT false
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
CREATE INDEX job_open ON laboro.job_state (job) WHERE ended_at IS NULL AND not_before IS NULL;
CREATE INDEX job_delayed ON laboro.job_state (job) WHERE ended_at IS NULL AND not_before IS NOT NULL;
CREATE INDEX job_not_before ON laboro.job_state (relative, not_before) WHERE ended_at IS NULL AND not_before IS NOT NULL;
CREATE INDEX job_ended ON laboro.job_state (ended_state, ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX job_own_keep ON laboro.job_state ((ended_at + CASE ended_state WHEN 0 THEN keep_ms ELSE keep_failed_ms END))
  WHERE ended_at IS NOT NULL AND keep_failed_ms IS NOT NULL;
CREATE INDEX job_unsuccessful ON laboro.job_state (ended_state, job) WHERE ended_state <> 0;
CREATE INDEX job_changed ON laboro.job_state (changed_xid);

CREATE TABLE laboro.job_counters (
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

CREATE TABLE laboro.task_range (
  id bigint PRIMARY KEY,
  job bigint NOT NULL,
  epoch bigint,
  not_before double precision NOT NULL,
  wait_ms double precision,
  first integer NOT NULL,
  last integer NOT NULL,
  attempt integer NOT NULL,
  failures integer NOT NULL,
  crashes integer NOT NULL,
  avoid text COLLATE "C",
  worker text COLLATE "C",
  -- The limits that its tasks count against while a broker owns it, with commas between them (limit-rows.ts).
  limit_names text COLLATE "C"
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);
CREATE INDEX task_range_released ON laboro.task_range (job, first) WHERE epoch IS NULL;
CREATE INDEX task_range_owned ON laboro.task_range (epoch, job) WHERE epoch IS NOT NULL;
CREATE INDEX task_range_claimed ON laboro.task_range (worker) WHERE worker IS NOT NULL;
CREATE INDEX task_range_limited ON laboro.task_range (id) WHERE limit_names IS NOT NULL AND epoch IS NOT NULL;

CREATE TABLE laboro.worker (
  id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text COLLATE "C" NOT NULL UNIQUE
);

CREATE TABLE laboro.result (
  job bigint NOT NULL,
  started double precision NOT NULL,
  ended double precision NOT NULL,
  output_bytes bigint NOT NULL,
  idx integer NOT NULL,
  attempt integer NOT NULL,
  worker integer NOT NULL,
  state smallint NOT NULL,
  timed_out boolean,
  code bigint,
  signal text,
  error text,
  -- All of it where it is small (rows.ts); otherwise it is in table output.
  output bytea,
  -- What the handler returned, or the error that it threw.
  value bytea,
  cpu_ms bigint,
  peak_memory bigint,
  PRIMARY KEY (job, idx)
);
CREATE INDEX result_unsuccessful ON laboro.result (job, state, idx) WHERE state <> 0;

CREATE TABLE laboro.earlier_attempt (
  LIKE laboro.result,
  PRIMARY KEY (job, idx, attempt)
);

CREATE TABLE laboro.output (
  job bigint NOT NULL,
  -- Where these bytes begin in the attempt's output.
  start_offset bigint NOT NULL,
  idx integer NOT NULL,
  attempt integer NOT NULL,
  -- The job's reopen_count when they were stored.
  reopen_count integer NOT NULL,
  stream smallint NOT NULL,
  bytes bytea NOT NULL,
  PRIMARY KEY (job, idx, attempt, start_offset)
);

CREATE TABLE laboro.key_value (
  bucket text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  version integer NOT NULL,
  value text NOT NULL,
  updated_at double precision NOT NULL,
  -- As in table job.
  changed_xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  changed_by bigint NOT NULL,
  PRIMARY KEY (bucket, key)
);

-- Starts of tasks that count against the rate of a limit, for the interval of that rate.
CREATE TABLE laboro.limit_start (
  name text COLLATE "C" NOT NULL,
  epoch bigint NOT NULL,
  at double precision NOT NULL,
  count integer NOT NULL,
  PRIMARY KEY (name, epoch, at)
);

CREATE TABLE laboro.schedule (
  name text COLLATE "C" PRIMARY KEY,
  revision bigint NOT NULL,
  -- When its next run is started; none while it is paused and after its end.
  next_at double precision,
  spec bytea NOT NULL,
  state text NOT NULL,
  last_job bigint,
  former_job bigint,
  -- As in table job.
  changed_xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  changed_by bigint NOT NULL
);
CREATE INDEX schedule_next ON laboro.schedule (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX schedule_changed ON laboro.schedule (changed_xid);
`;

/**
 * Functions with which an application submits jobs in its own transaction. They check their input, take a number and
 * store a row. At the commit a broker is notified, creates the job and deletes the row. The application's role needs no
 * right on any table.
 */
const submissionTable = `
-- Submitted by transactions of applications, and not yet made a job.
CREATE TABLE laboro.submission (
  id bigint PRIMARY KEY,
  task text NOT NULL,
  -- JSON texts, empty for none.
  inputs text[] NOT NULL,
  options jsonb NOT NULL
);
`;

/** The checks and the function that calls them. A migration that changes them runs this again. */
export const submitChecks = `
CREATE OR REPLACE FUNCTION laboro.check_option(option text, value jsonb) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  rule record;
  part record;
BEGIN
  SELECT * INTO rule FROM (VALUES
    ('name', 'string', NULL, NULL), ('pool', 'string', NULL, NULL), ('retry', 'object', NULL, NULL),
    ('tags', 'array', NULL, NULL), ('limits', 'array', NULL, NULL), ('after', 'array', NULL, NULL), ('held', 'boolean', NULL, NULL),
    ('priority', 'number', -1000, 1000), ('retries', 'number', 0, 1000), ('crashLimit', 'number', 0, 1000),
    ('maxFails', 'number', 0, 1000000000), ('maxRunning', 'number', 1, 1000000000), ('timeLimitMs', 'number', 1, 1e15),
    ('delayMs', 'number', 0, 3e12), ('keepMs', 'number', 0, 3e12), ('keepFailedMs', 'number', 0, 3e12), ('at', NULL, NULL, NULL),
    ('key', 'string', NULL, NULL), ('keyForMs', 'number', 0, 3e12), ('ifExists', 'string', NULL, NULL), ('needs', 'object', NULL, NULL)
  ) AS rules (name, type, least, most) WHERE name = option;
  IF rule.name IS NULL THEN
    RAISE EXCEPTION 'laboro.submit: there is no option %', option USING ERRCODE = 'invalid_parameter_value';
  ELSIF jsonb_typeof(value) <> rule.type THEN
    RAISE EXCEPTION 'laboro.submit: %: expected a value of type %, got %', option, rule.type, value USING ERRCODE = 'invalid_parameter_value';
  ELSIF rule.least IS NOT NULL AND (value::numeric NOT BETWEEN rule.least AND rule.most OR value::numeric <> trunc(value::numeric)) THEN
    RAISE EXCEPTION 'laboro.submit: %: expected a whole number from % to %, got %', option, rule.least, rule.most, value
      USING ERRCODE = 'invalid_parameter_value';
  ELSIF rule.type = 'string' AND length(value #>> '{}') NOT BETWEEN 1 AND 1024 THEN
    RAISE EXCEPTION 'laboro.submit: %: expected 1 to 1024 characters', option USING ERRCODE = 'invalid_parameter_value';
  ELSIF option = 'tags' AND EXISTS (SELECT 1 FROM jsonb_array_elements(value) AS t WHERE jsonb_typeof(t) <> 'string' OR length(t #>> '{}') NOT BETWEEN 1 AND 1024) THEN
    RAISE EXCEPTION 'laboro.submit: tags: expected texts, got %', value USING ERRCODE = 'invalid_parameter_value';
  ELSIF option = 'retry' THEN
    FOR part IN SELECT key, v, jsonb_typeof(v) AS type FROM jsonb_each(value) AS e (key, v) LOOP
      IF NOT (CASE
        WHEN part.key IN ('waitMs', 'maxMs') AND part.type = 'number' THEN part.v::numeric BETWEEN 0 AND 3e12 AND part.v::numeric = trunc(part.v::numeric)
        WHEN part.key = 'factor' AND part.type = 'number' THEN part.v::numeric BETWEEN 1 AND 100
        WHEN part.key = 'jitter' AND part.type = 'number' THEN part.v::numeric BETWEEN 0 AND 1
        WHEN part.key IN ('on', 'never') AND part.type = 'array' THEN jsonb_array_length(part.v) <= 100 AND NOT EXISTS (
          SELECT 1 FROM jsonb_array_elements(part.v) AS e (v) WHERE NOT CASE jsonb_typeof(v)
            WHEN 'string' THEN length(v #>> '{}') BETWEEN 1 AND 200
            WHEN 'number' THEN v::numeric BETWEEN 1 AND 2147483647 AND v::numeric = trunc(v::numeric) ELSE false END)
        ELSE false END) THEN
        RAISE EXCEPTION 'laboro.submit: retry.%: expected one of waitMs, factor (1 to 100), maxMs, jitter (0 to 1), on, never, got %', part.key, part.v
          USING ERRCODE = 'invalid_parameter_value', HINT = '{"waitMs": 1000, "factor": 2, "maxMs": 60000, "jitter": 0.2, "on": [75, "timeout"]}';
      END IF;
    END LOOP;
  ELSIF option = 'limits' AND (jsonb_array_length(value) > 20 OR EXISTS (
    SELECT 1 FROM jsonb_array_elements(value) AS l
    WHERE NOT EXISTS (SELECT 1 FROM laboro.key_value WHERE bucket = 'limit' AND key = l #>> '{}'))) THEN
    RAISE EXCEPTION 'laboro.submit: limits: expected the names of at most 20 limits that there are, got %', value
      USING ERRCODE = 'invalid_parameter_value';
  ELSIF option IN ('tags', 'after') AND jsonb_array_length(value) > 100 THEN
    RAISE EXCEPTION 'laboro.submit: %: expected at most 100', option USING ERRCODE = 'invalid_parameter_value';
  ELSIF option = 'key' AND value #>> '{}' COLLATE "C" !~ '^[!-~]{1,200}$' THEN
    RAISE EXCEPTION 'laboro.submit: key: expected 1 to 200 printable ASCII characters without spaces' USING ERRCODE = 'invalid_parameter_value';
  ELSIF option = 'ifExists' AND value #>> '{}' NOT IN ('return', 'refuse', 'replace') THEN
    RAISE EXCEPTION 'laboro.submit: ifExists: expected return, refuse or replace, got %', value USING ERRCODE = 'invalid_parameter_value';
  ELSIF option = 'at' AND NOT (CASE jsonb_typeof(value) WHEN 'number' THEN abs(value::numeric) <= 8.64e15 AND value::numeric = trunc(value::numeric)
    WHEN 'string' THEN value #>> '{}' ~ '^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d(:\\d\\d(\\.\\d+)?)?(Z|[+-]\\d\\d:\\d\\d)$' AND (value #>> '{}')::timestamptz IS NOT NULL
    ELSE false END) THEN
    RAISE EXCEPTION 'laboro.submit: at: expected a time with a zone, such as 2026-12-24T18:00:00+01:00, or milliseconds since 1970, got %', value
      USING ERRCODE = 'invalid_parameter_value';
  ELSIF option = 'needs' THEN
    FOR part IN SELECT key, v, jsonb_typeof(v) AS type FROM jsonb_each(value) AS e (key, v) LOOP
      IF NOT (length(part.key) BETWEEN 1 AND 64 AND CASE
        WHEN part.key = 'slots' AND part.type = 'number' THEN part.v::numeric BETWEEN 1 AND 1000000 AND part.v::numeric = trunc(part.v::numeric)
        WHEN part.type = 'number' THEN part.v::numeric > 0 ELSE part.key <> 'slots' AND part.v = '"all"' END) THEN
        RAISE EXCEPTION 'laboro.submit: needs.%: expected an amount or "all", got %', part.key, part.v USING ERRCODE = 'invalid_parameter_value';
      END IF;
    END LOOP;
  END IF;
END $$;

-- One job with a task for each input. Returns its number.
CREATE OR REPLACE FUNCTION laboro.submit_many(task text, inputs jsonb[], options jsonb DEFAULT '{}') RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  given record;
  other jsonb;
  after jsonb := '[]';
  number bigint;
BEGIN
  IF task IS NULL OR length(task) NOT BETWEEN 1 AND 1024 THEN
    RAISE EXCEPTION 'laboro.submit: the task needs a name of 1 to 1024 characters' USING ERRCODE = 'invalid_parameter_value';
  ELSIF coalesce(array_length(inputs, 1), 0) NOT BETWEEN 1 AND 100000 OR array_ndims(inputs) <> 1 THEN
    RAISE EXCEPTION 'laboro.submit: expected 1 to 100000 inputs' USING ERRCODE = 'invalid_parameter_value';
  ELSIF EXISTS (SELECT 1 FROM unnest(inputs) AS i WHERE octet_length(i::text) > 62914560) THEN
    RAISE EXCEPTION 'laboro.submit: an input is larger than 60 MiB' USING ERRCODE = 'invalid_parameter_value';
  ELSIF jsonb_typeof(options) IS DISTINCT FROM 'object' THEN
    RAISE EXCEPTION 'laboro.submit: the options have to be an object, got %', options USING ERRCODE = 'invalid_parameter_value';
  END IF;
  FOR given IN SELECT * FROM jsonb_each(options) LOOP
    PERFORM laboro.check_option(given.key, given.value);
  END LOOP;
  IF options ? 'at' AND options ? 'delayMs' THEN
    RAISE EXCEPTION 'laboro.submit: at: expected none beside delayMs' USING ERRCODE = 'invalid_parameter_value';
  ELSIF options ? 'key' THEN
    -- Transactions with the same key take turns.
    PERFORM pg_advisory_xact_lock(5429, hashtext(options ->> 'key'));
    SELECT s.id INTO number FROM laboro.submission AS s WHERE s.options ->> 'key' = submit_many.options ->> 'key' ORDER BY s.id DESC LIMIT 1;
    IF number IS NULL THEN
      SELECT j.id INTO number FROM laboro.job AS j JOIN laboro.job_state AS s ON s.job = j.id WHERE j.key = options ->> 'key' AND j.has_key
        AND (s.ended_at IS NULL OR s.ended_at + coalesce(j.key_for_ms, 0) > extract(epoch FROM clock_timestamp()) * 1000);
    END IF;
    IF number IS NOT NULL AND options ->> 'ifExists' = 'refuse' THEN
      RAISE EXCEPTION 'laboro.submit: job % has the key %', number, options ->> 'key' USING ERRCODE = 'unique_violation';
    ELSIF number IS NOT NULL AND options ->> 'ifExists' IS DISTINCT FROM 'replace' THEN
      RETURN number;
    END IF;
  ELSIF options ?| ARRAY['keyForMs', 'ifExists'] THEN
    RAISE EXCEPTION 'laboro.submit: keyForMs and ifExists need a key' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  FOR other IN SELECT CASE jsonb_typeof(o) WHEN 'number' THEN jsonb_build_object('job', o) ELSE o END FROM jsonb_array_elements(coalesce(options -> 'after', '[]')) AS o LOOP
    IF jsonb_typeof(other -> 'job') IS DISTINCT FROM 'number' OR jsonb_typeof(coalesce(other -> 'any', 'false')) <> 'boolean'
       OR other - 'job' - 'any' <> '{}' THEN
      RAISE EXCEPTION 'laboro.submit: after: expected the number of a job, or {"job": 1, "any": true}, got %', other
        USING ERRCODE = 'invalid_parameter_value';
    ELSIF NOT EXISTS (SELECT 1 FROM laboro.job WHERE id = (other ->> 'job')::numeric
                      UNION ALL SELECT 1 FROM laboro.submission WHERE id = (other ->> 'job')::numeric) THEN
      RAISE EXCEPTION 'laboro.submit: after: there is no job %', other ->> 'job' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    after := after || jsonb_build_array(other);
  END LOOP;
  number := nextval('laboro.job_number');
  INSERT INTO laboro.submission (id, task, inputs, options)
  VALUES (number, task, ARRAY(SELECT coalesce(i::text, '') FROM unnest(inputs) WITH ORDINALITY AS u (i, n) ORDER BY n),
    options || jsonb_build_object('after', after));
  PERFORM pg_notify('laboro_submit', '');
  RETURN number;
END $$;
`;

export const submitFunction = `${submissionTable}${submitChecks}
CREATE FUNCTION laboro.submit(task text, input jsonb DEFAULT NULL, options jsonb DEFAULT '{}') RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'SELECT laboro.submit_many(task, ARRAY[input], options)';

REVOKE EXECUTE ON FUNCTION laboro.submit, laboro.submit_many, laboro.check_option FROM PUBLIC;
`;
