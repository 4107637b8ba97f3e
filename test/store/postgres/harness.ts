/** One server and one database a test file; each test finds it empty. */
import postgres, { type Sql } from "postgres";
import { afterAll } from "vitest";
import type { Store } from "../../../src/model/store.js";
import { openPostgresStore, type PostgresOptions } from "../../../src/store/postgres/index.js";
import { type PostgresServer, startPostgres } from "../../support/postgres.js";
import type { StoreHarness } from "../suite/kit.js";

export interface DatabaseHarness extends StoreHarness {
  readonly server: PostgresServer;
  readonly url: string;
  /** Beside the brokers. */
  readonly sql: Sql;
  open(options?: Partial<PostgresOptions>): Store;
}

const EMPTY = `
DO $$ BEGIN EXECUTE (
  SELECT 'TRUNCATE ' || string_agg(format('laboro.%I', tablename), ', ') || ' RESTART IDENTITY' FROM pg_tables
  WHERE schemaname = 'laboro' AND tablename <> 'schema_version'); END $$;
ALTER SEQUENCE laboro.job_number RESTART`;

interface Place {
  readonly server: PostgresServer;
  readonly url: string;
  readonly sql: Sql;
}

let place: Promise<Place> | undefined;

afterAll(async () => {
  if (place === undefined) return;
  const { server, sql } = await place;
  await sql.end();
  await server.remove();
});

async function makePlace(): Promise<Place> {
  const server = await startPostgres();
  const url = await server.database(await migratedTemplate(server));
  return { server, url, sql: postgres(url, { max: 2, onnotice: () => {} }) };
}

/** A database with the schema of this laboro and nothing in it, to make others from. */
export async function migratedTemplate(server: PostgresServer): Promise<string> {
  const url = await server.database();
  const store = openPostgresStore({ url });
  await store.open(0);
  await store.close();
  const sql = postgres(url, { max: 1, onnotice: () => {} });
  await sql.unsafe(EMPTY);
  await sql.end();
  return new URL(url).pathname.slice(1);
}

export async function postgresHarness(): Promise<DatabaseHarness> {
  place ??= makePlace();
  const { server, url, sql } = await place;
  return {
    server,
    url,
    sql,
    open: (options) => openPostgresStore({ url, ...options }),
    handle: () => openPostgresStore({ url }),
    dispose: async () => {
      await sql.unsafe(EMPTY);
    },
  };
}
