import { DatabaseSync } from "@photostructure/sqlite";
import { afterEach, beforeEach, expect, it } from "vitest";
import { MIGRATIONS, migrate, schemaVersion } from "../../../src/store/sqlite/migrations.js";

let db: InstanceType<typeof DatabaseSync>;
beforeEach(() => {
  db = new DatabaseSync(":memory:");
});
afterEach(() => db.close());

it("makes the tables in an empty file, and changes nothing the next time", () => {
  migrate(db);
  expect(schemaVersion(db)).toBe(MIGRATIONS.length);
  const tables = (): unknown[] => db.prepare("SELECT name, sql FROM sqlite_master ORDER BY name").all();
  const before = tables();
  migrate(db);
  expect(tables()).toEqual(before);
});

it("brings a file forward step by step, each step whole or not at all", () => {
  migrate(db);
  db.exec(
    "INSERT INTO job (created, name, pool, spec, count, has_entries, held, cursor) VALUES (1, 'a', 'b', X'', 1, 0, 0, 0)",
  );
  const next = "ALTER TABLE job ADD COLUMN note TEXT; UPDATE job SET note = 'old'";
  const broken = "ALTER TABLE job ADD COLUMN other TEXT; INSERT INTO nowhere VALUES (1)";
  expect(() => migrate(db, [...MIGRATIONS, next, broken])).toThrow("nowhere");
  expect(schemaVersion(db)).toBe(MIGRATIONS.length + 1);
  expect(db.prepare("SELECT id, note FROM job").all()).toMatchObject([{ id: 1, note: "old" }]);
  expect(() => db.prepare("SELECT other FROM job")).toThrow("other");
  migrate(db, [...MIGRATIONS, next, "ALTER TABLE job ADD COLUMN other TEXT"]);
  expect(schemaVersion(db)).toBe(MIGRATIONS.length + 2);
});

it("rolls back a step that is a function and fails", () => {
  migrate(db);
  const failing = (): void => {
    db.exec("ALTER TABLE job ADD COLUMN note TEXT");
    throw new Error("a row cannot be read");
  };
  expect(() => migrate(db, [...MIGRATIONS, failing])).toThrow("a row cannot be read");
  expect(schemaVersion(db)).toBe(MIGRATIONS.length);
  expect(() => db.prepare("SELECT note FROM job")).toThrow("note");
});
