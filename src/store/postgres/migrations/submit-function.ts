/**
 * Functions by which an application submits jobs in a transaction of its own. They check their input, take a number and store a row; at the
 * commit a broker is notified, makes the job and deletes the row. The application's role needs no right on any table.
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
    ('delayMs', 'number', 0, 3e12), ('keepMs', 'number', 0, 3e12), ('keepFailedMs', 'number', 0, 3e12)
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
