import postgres from "postgres";
import { afterAll, beforeAll, expect, it } from "vitest";
import { checkPostgres } from "../../../src/cli/verbs/doctor/postgres.js";
import { openPostgresStore } from "../../../src/store/postgres/index.js";
import { MIGRATIONS } from "../../../src/store/postgres/migrations/index.js";
import { type PostgresServer, startPostgres } from "../../support/postgres.js";

let server: PostgresServer;
beforeAll(async () => {
  server = await startPostgres({ fsync: "on", full_page_writes: "on", idle_in_transaction_session_timeout: "5min" });
});
afterAll(() => server.remove());

const steady = (text: string): string =>
  text
    .replace(/PostgreSQL \S+/, "PostgreSQL VERSION")
    .replace(/127\.0\.0\.1:\d+/, "HOST")
    .replace(/\d[\d.]* ?m?s$/, "TIME")
    .replace(/test_\w+/, "DATABASE")
    .replace(/^\d+ of/, "MANY of");

const lines = async (url: string): Promise<string[]> =>
  (await checkPostgres(url)).map(
    ({ state, message: what, remedy }) => `${state} ${steady(what)}${remedy === undefined ? "" : `; ${remedy}`}`,
  );

async function said(url: string, ...statements: string[]): Promise<string[]> {
  const sql = postgres(url, { max: 1, onnotice: () => {} });
  for (const statement of statements) await sql.unsafe(statement);
  await sql.end();
  return lines(url);
}

it("finds a server fit for a group of brokers, before the first of them and after", async () => {
  const url = await server.database();
  const fit = [
    "ok PostgreSQL VERSION at postgres://HOST/DATABASE answers in TIME",
    "ok it has on disk what it acknowledges (synchronous_commit = on)",
    "ok MANY of its 60 connections are free; a broker takes up to 7",
    "ok its autovacuum removes dead rows",
    "ok its clock agrees with this one",
  ];
  expect(await lines(url)).toEqual([
    ...fit,
    `ok no broker has stored anything there yet; laboro serve --store brings it to version ${MIGRATIONS.length}`,
  ]);
  const store = openPostgresStore({ url });
  await store.open(0);
  await store.close();
  expect(await lines(url)).toEqual([...fit, `ok its schema has version ${MIGRATIONS.length}, as this laboro expects`]);
});

it("finds settings that lose what was acknowledged, and a schema that is newer", async () => {
  const url = await server.database();
  const name = new URL(url).pathname.slice(1);
  const found = await said(
    url,
    "CREATE SCHEMA laboro",
    "CREATE TABLE laboro.schema_version AS SELECT 99 AS number",
    `ALTER DATABASE ${name} SET synchronous_commit = off`,
    `ALTER DATABASE ${name} SET idle_in_transaction_session_timeout = 0`,
  );
  expect(found).toContainEqual(expect.stringMatching(/^FAIL its synchronous_commit is off; acknowledged data is lost/));
  expect(found).toContainEqual(expect.stringMatching(/^warn it does not end transactions that others leave open; /));
  expect(found.at(-1)).toMatch(/^FAIL .*schema version 99, this laboro knows up to \d+/);
});

it("says what is in the way of a connection, and not the password", async () => {
  const [refused] = await lines("postgres://laboro:secret@127.0.0.1:1/nowhere");
  expect(refused).toMatch(/^FAIL postgres:\/\/HOST\/nowhere: .*ECONNREFUSED.*; is the server running/);
  const [unknown] = await lines(server.urlOf("nowhere"));
  expect(unknown).toMatch(/^FAIL cannot use postgres:\/\/HOST\/nowhere: database "nowhere" does not exist/);
});
