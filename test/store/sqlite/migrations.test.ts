import * as fs from "node:fs";
import { DatabaseSync } from "@photostructure/sqlite";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { JobId, TaskRangeId } from "../../../src/model/ids.js";
import { MIGRATIONS, migrate, schemaVersion } from "../../../src/store/sqlite/migrations/index.js";
import { ANN, Broker, request, result } from "../suite/kit.js";
import { type DirectoryHarness, sqliteHarness } from "./harness.js";

let harness: DirectoryHarness;
beforeEach(async () => {
  harness = await sqliteHarness();
});
afterEach(() => harness.dispose());

function load(fixture: string): void {
  const db = new DatabaseSync(harness.database);
  db.exec(fs.readFileSync(new URL(`./fixtures/${fixture}`, import.meta.url), "utf8"));
  db.close();
}

describe("a data directory of an older laboro", () => {
  it("is read as it was left, from the first version on", async () => {
    load("version-1.sql");
    const broker = await Broker.at(harness.handle());
    expect(broker.held.epoch).toBe(2);
    expect(broker.held.jobs).toMatchObject([
      { id: 1, name: "sweep", count: 4, cursor: 3, reason: "not needed", cancels: [{ first: 2, last: 2 }] },
    ]);
    expect(broker.held.taskRanges.map(({ taskRange: parcel }) => parcel)).toMatchObject([
      { id: 1, first: 2, last: 2, attempt: 0 },
      { id: 3, first: 1, last: 1, attempt: 1, failures: 1, avoid: "ann", notBefore: 1_700_000_005_000 },
    ]);
    const { store } = broker;
    expect(await store.entries(JobId(1), { first: 0, last: 3 })).toEqual(["a", "b", Uint8Array.of(255, 0), "d"]);
    expect(await store.earlierAttempts(JobId(1), 1)).toMatchObject([{ code: 2, error: "no such file", state: "failed" }]);
    expect((await store.results(JobId(2), { from: 0, limit: 9 })).results).toMatchObject([{ index: 0, worker: "bob" }]);
    expect(await store.job(JobId(2))).toMatchObject({ name: "done", ended: { state: "succeeded" } });
    expect((await store.jobs({ limit: 9, filter: { name: "d*", pool: "default" } })).jobs).toMatchObject([{ id: 2 }]);
    expect((await store.jobs({ limit: 9, filter: { name: "sweep" } })).jobs).toMatchObject([{ id: 1 }]);
    const [parcel, out] = [TaskRangeId(1001), TaskRangeId(1002)];
    const answers = await store.commit(
      [
        { op: "submit", job: request({ count: 1 }), lease: 1, rangeId: parcel },
        { op: "claim", from: parcel, rangeId: out, first: 0, last: 0, attempt: 1, worker: ANN },
        { op: "settle", job: JobId(3), rangeId: out, results: [result(0)], empty: true },
      ],
      1,
    );
    expect(answers.at(-1)).toMatchObject({ lost: false, progress: { ended: "succeeded" } });
    await store.close();
  });

  it("gets the columns of version 2, filled from what each job asked for", () => {
    load("version-1.sql");
    const db = new DatabaseSync(harness.database);
    try {
      migrate(db, MIGRATIONS.slice(0, 2));
      expect(schemaVersion(db)).toBe(2);
      expect(db.prepare("SELECT id, name, pool, key FROM job ORDER BY id").all()).toMatchObject([
        { id: 1, name: "sweep", pool: "default", key: null },
        { id: 2, name: "done", pool: "default", key: null },
      ]);
    } finally {
      db.close();
    }
  });

  it("stays at version 1 where a job's request cannot be read", () => {
    load("version-1.sql");
    const db = new DatabaseSync(harness.database);
    try {
      db.exec("UPDATE job SET request = X'DE0008' WHERE id = 2");
      expect(() => migrate(db)).toThrow();
      expect(schemaVersion(db)).toBe(1);
      expect(() => db.prepare("SELECT pool FROM job")).toThrow("pool");
    } finally {
      db.close();
    }
  });

  it("is brought forward step by step, each step whole or not at all", () => {
    load("version-1.sql");
    const db = new DatabaseSync(harness.database);
    try {
      const next = "ALTER TABLE job ADD COLUMN note TEXT; UPDATE job SET note = 'old'";
      const broken = "ALTER TABLE job ADD COLUMN other TEXT; INSERT INTO nowhere VALUES (1)";
      expect(() => migrate(db, [...MIGRATIONS, next, broken])).toThrow("nowhere");
      expect(schemaVersion(db)).toBe(MIGRATIONS.length + 1);
      expect(db.prepare("SELECT id, note FROM job").all()).toMatchObject([
        { id: 1, note: "old" },
        { id: 2, note: "old" },
      ]);
      expect(() => db.prepare("SELECT other FROM job")).toThrow("other");
      migrate(db, [...MIGRATIONS, next, "ALTER TABLE job ADD COLUMN other TEXT"]);
      expect(schemaVersion(db)).toBe(MIGRATIONS.length + 2);
    } finally {
      db.close();
    }
  });
});
