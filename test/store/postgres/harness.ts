/** One database a test file, on a server that all of them share; each test finds it empty. */
import { connect } from "node:net";
import { text } from "node:stream/consumers";
import postgres, { type Sql } from "postgres";
import { afterAll, inject } from "vitest";
import type { Store } from "../../../src/model/store.js";
import { openPostgresStore, type PostgresOptions } from "../../../src/store/postgres/index.js";
import { type Databases, databasesAt, type PostgresServer, startPostgres } from "../../support/postgres.js";
import type { StoreHarness } from "../suite/kit.js";
import type { SharedServer } from "./shared-server.js";
import { EMPTY, migratedTemplate } from "./template.js";

export interface DatabaseHarness extends StoreHarness {
  readonly server: Databases;
  readonly url: string;
  /** Beside the brokers. */
  readonly sql: Sql;
  open(options?: Partial<PostgresOptions>): Store;
}

/** The server that all files share, and a database there with the schema. */
export async function sharedServer(): Promise<Databases & { readonly template: string }> {
  const answer = JSON.parse(await text(connect(inject("postgres"), "127.0.0.1"))) as SharedServer;
  if ("error" in answer) throw new Error(answer.error);
  return { ...databasesAt(answer.port), template: answer.template };
}

/** For the tests of the file that calls this. */
export function databaseOfFile(): () => Promise<DatabaseHarness> {
  return harnessAt(async () => {
    const server = await sharedServer();
    return { server, url: await server.database(server.template) };
  });
}

/** With a server of its own, for tests that end it, or connections of whomever. */
export function serverOfFile(): () => Promise<DatabaseHarness & { readonly server: PostgresServer }> {
  let started: PostgresServer | undefined;
  afterAll(() => started?.remove());
  return harnessAt(async () => {
    const server = await startPostgres();
    started = server;
    return { server, url: await server.database(await migratedTemplate(server)) };
  });
}

interface Place<Server> {
  readonly server: Server;
  readonly url: string;
}

function harnessAt<Server extends Databases>(
  make: () => Promise<Place<Server>>,
): () => Promise<DatabaseHarness & { readonly server: Server }> {
  let place: Promise<Place<Server> & { readonly sql: Sql }> | undefined;
  afterAll(async () => (await place)?.sql.end());
  return async () => {
    place ??= make().then((made) => ({ ...made, sql: postgres(made.url, { max: 2, onnotice: () => {} }) }));
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
  };
}
