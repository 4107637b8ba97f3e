import * as fs from "node:fs";
import { DatabaseSync } from "@photostructure/sqlite";
import { expect, it } from "vitest";
import { MIGRATIONS } from "../../../src/store/sqlite/migrations.js";
import { sqliteHarness } from "./harness.js";

it("refuses the data directory of a newer laboro and leaves it as it is", async () => {
  const { database, handle, dispose } = await sqliteHarness();
  const store = handle();
  await store.open(1);
  await store.close();
  const db = new DatabaseSync(database);
  db.exec(`PRAGMA user_version = ${MIGRATIONS.length + 1}`);
  db.close();
  const before = fs.readFileSync(database);
  await expect(handle().open(1)).rejects.toMatchObject({
    code: "LABORO_DATA_NEWER",
    message: expect.stringContaining(`version ${MIGRATIONS.length + 1}`),
  });
  expect(fs.readFileSync(database).equals(before)).toBe(true);
  await dispose();
});
