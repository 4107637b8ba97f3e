/**
 * The schema's history: migration n brings a database from version n - 1 to n. Each is one transaction with the change
 * of the number. Brokers that start at the same time take turns by an advisory lock; one that is older than the schema
 * is refused.
 */
import { LaboroError } from "../../../base/errors.js";
import type { Client } from "../connections.js";
import { initialSchema, submitChecks, submitFunction } from "./001-initial-schema.js";

/** Jobs that take more tasks, and changes of jobs after their submission. */
const editedJobs = `
-- It takes more tasks, and does not end, until it is closed.
ALTER TABLE laboro.job ADD COLUMN open boolean NOT NULL DEFAULT false;
-- Beside the spec as it was submitted.
ALTER TABLE laboro.job ADD COLUMN changes jsonb;
`;

export const MIGRATIONS: readonly string[] = [initialSchema + submitFunction, submitChecks, editedJobs, submitChecks];

/** The id of the advisory lock: nothing else in the database may use it. */
const LOCK = "SELECT pg_advisory_xact_lock(5429000001)";
/** Not by to_regclass: its cache may not have a table that was created while this broker waited for the lock. */
const HAS_VERSION_TABLE = `SELECT EXISTS (
  SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = 'laboro' AND tablename = 'schema_version') AS there`;
const VERSION = "SELECT number FROM laboro.schema_version";
const CREATE_SCHEMA = `
CREATE SCHEMA IF NOT EXISTS laboro;
CREATE TABLE laboro.schema_version (
  singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton), number integer NOT NULL);
INSERT INTO laboro.schema_version (number) VALUES (0);
`;

type SqlClient = Pick<Client, "unsafe">;

export async function migrate(
  client: Client,
  place: string,
  migrations: readonly string[] = MIGRATIONS,
): Promise<void> {
  let version = await schemaVersion(client, place, migrations.length);
  while (version < migrations.length) version = await migrateOnce(client, place, migrations);
}

function migrateOnce(client: Client, place: string, migrations: readonly string[]): Promise<number> {
  return client.begin(async (sql) => {
    await sql.unsafe(LOCK);
    // Another broker may have migrated meanwhile.
    const version = await schemaVersion(sql, place, migrations.length);
    const next = migrations[version];
    if (next === undefined) return version;
    if (version === 0) await sql.unsafe(CREATE_SCHEMA);
    await sql.unsafe(next);
    await sql.unsafe(`UPDATE laboro.schema_version SET number = ${version + 1}`);
    return version + 1;
  });
}

/** 0 if there is no schema yet. */
export async function schemaVersion(client: SqlClient, place: string, known = MIGRATIONS.length): Promise<number> {
  const [table] = await client.unsafe<{ there: boolean }[]>(HAS_VERSION_TABLE);
  if (table?.there !== true) return 0;
  const [row] = await client.unsafe<{ number: number }[]>(VERSION);
  const version = row?.number ?? 0;
  if (version <= known) return version;
  throw new LaboroError(
    "LABORO_DATA_NEWER",
    `${place} has schema version ${version}, this laboro knows up to ${known}: use the newer laboro, or another database`,
  );
}
