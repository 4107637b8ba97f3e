import postgres, { type Sql } from "postgres";
import { afterEach, beforeEach, expect, it } from "vitest";
import type { Client } from "../../../src/store/postgres/connections.js";
import { openPostgresStore } from "../../../src/store/postgres/index.js";
import { MIGRATIONS, migrate, schemaVersion } from "../../../src/store/postgres/migrations/index.js";
import { Broker } from "../suite/kit.js";
import { databaseOfFile } from "./harness.js";

const postgresHarness = databaseOfFile();

/** A database in which nothing is yet. */
let url: string;
let sql: Sql;
let client: Client;

beforeEach(async () => {
  const { server } = await postgresHarness();
  url = await server.database();
  sql = postgres(url, { max: 1, onnotice: () => {} });
  client = sql as unknown as Client;
});

afterEach(() => sql.end());

const place = "here";

it("makes its schema in an empty database, once, however many brokers begin at the same time", async () => {
  const stores = [1, 2, 3, 4].map(() => openPostgresStore({ url }));
  const held = await Promise.all(stores.map((store) => store.open(0)));
  expect(held.map(({ epoch }) => epoch).sort()).toEqual([1, 2, 3, 4]);
  expect(await schemaVersion(client, place)).toBe(MIGRATIONS.length);
  for (const store of stores) await store.close();
});

it("brings a schema forward step by step, each whole or not at all", async () => {
  await migrate(client, place);
  const next = "ALTER TABLE laboro.job ADD COLUMN note text; UPDATE laboro.job SET note = 'old'";
  const broken = "ALTER TABLE laboro.job ADD COLUMN other text; INSERT INTO laboro.nowhere VALUES (1)";
  await expect(migrate(client, place, [...MIGRATIONS, next, broken])).rejects.toThrow("nowhere");
  expect(await schemaVersion(client, place, 99)).toBe(MIGRATIONS.length + 1);
  await sql`SELECT note FROM laboro.job`;
  await expect(sql`SELECT other FROM laboro.job`).rejects.toThrow("other");
  await migrate(client, place, [...MIGRATIONS, next, "ALTER TABLE laboro.job ADD COLUMN other text"]);
  expect(await schemaVersion(client, place, 99)).toBe(MIGRATIONS.length + 2);
});

it("refuses the schema of a newer laboro and leaves it as it is", async () => {
  await migrate(client, place);
  await sql`UPDATE laboro.schema_version SET number = ${MIGRATIONS.length + 1}`;
  await expect(openPostgresStore({ url }).open(1)).rejects.toMatchObject({
    code: "LABORO_DATA_NEWER",
    message: expect.stringContaining(`version ${MIGRATIONS.length + 1}`),
  });
  expect(await sql`SELECT * FROM laboro.broker`).toHaveLength(0);
});

it("opens a schema that is up to date as somebody who may not change it", async () => {
  await migrate(client, place);
  await sql.unsafe(`
    CREATE ROLE plain LOGIN;
    GRANT USAGE ON SCHEMA laboro TO plain;
    GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA laboro TO plain;
    GRANT USAGE ON ALL SEQUENCES IN SCHEMA laboro TO plain`);
  try {
    const broker = await Broker.at(openPostgresStore({ url: url.replace("//laboro@", "//plain@") }));
    expect((await broker.submitAll(2)).taskRange).toMatchObject({ first: 0, last: 1 });
    await broker.store.close();
  } finally {
    await sql.unsafe("DROP OWNED BY plain; DROP ROLE plain");
  }
});

it.each([
  ["a database that is not there", (at: string) => at.replace(/[^/]+$/, "nowhere"), "LABORO_DATA_UNUSABLE"],
  ["a user that is not there", (at: string) => at.replace("//laboro:", "//stranger:"), "LABORO_DATA_UNUSABLE"],
  ["a server that is not there", (at: string) => at.replace(/:\d+\//, ":1/"), "LABORO_STORE_UNAVAILABLE"],
  ["an address that is none", () => "postgres://user:secret@[nowhere/x", "LABORO_BAD_INPUT"],
])("says what is wrong with %s, and not the password", async (_, changed, code) => {
  const store = openPostgresStore({ url: changed(url.replace("//laboro@", "//laboro:secret@")) });
  const refusal: unknown = await store.open(1).catch((cause: unknown) => cause);
  expect(refusal).toMatchObject({ code });
  expect(String(refusal)).not.toContain("secret");
});
