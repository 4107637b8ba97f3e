/** The server of these tests: started once, before the first of them, with a database that has the schema, to copy others from. */
import postgres from "postgres";
import type { TestProject } from "vitest/node";
import { openPostgresStore } from "../../../src/store/postgres/index.js";
import { type Databases, startPostgres } from "../../support/postgres.js";

declare module "vitest" {
  interface ProvidedContext {
    readonly postgres: { readonly port: number; readonly template: string };
  }
}

export const EMPTY = `
DO $$ BEGIN EXECUTE (
  SELECT 'TRUNCATE ' || string_agg(format('laboro.%I', tablename), ', ') || ' RESTART IDENTITY' FROM pg_tables
  WHERE schemaname = 'laboro' AND tablename NOT IN ('schema_version', 'store')); END $$;
ALTER SEQUENCE laboro.job_number RESTART`;

/** A database with the schema of this laboro and nothing in it, to make others from. */
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

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const server = await startPostgres({ max_connections: "200" });
  project.provide("postgres", { port: server.port, template: await migratedTemplate(server) });
  return () => server.remove();
}
