/** A database with the schema of this laboro and nothing in it, to make others from. */
import postgres from "postgres";
import { openPostgresStore } from "../../../src/store/postgres/index.js";
import type { Databases } from "../../support/postgres.js";

export const EMPTY = `
DO $$ BEGIN EXECUTE (
  SELECT 'TRUNCATE ' || string_agg(format('laboro.%I', tablename), ', ') || ' RESTART IDENTITY' FROM pg_tables
  WHERE schemaname = 'laboro' AND tablename NOT IN ('schema_version', 'store')); END $$;
ALTER SEQUENCE laboro.job_number RESTART`;

export async function migratedTemplate(server: Databases): Promise<string> {
  const url = await server.database();
  const store = openPostgresStore({ url });
  await store.open(0);
  await store.close();
  const sql = postgres(url, { max: 1, onnotice: () => {} });
  await sql.unsafe(EMPTY);
  await sql.end();
  return new URL(url).pathname.slice(1);
}
