import * as fs from "node:fs";
import * as fc from "fast-check";
import { afterEach, beforeEach, expect, it } from "vitest";
import { Broker, results } from "../suite/kit.js";
import { type DirectoryHarness, sqliteHarness } from "./harness.js";

const PAGE = 4096;
let harness: DirectoryHarness;

/** A database of some hundred pages. */
beforeEach(async () => {
  harness = await sqliteHarness();
  const broker = await Broker.at(harness.handle());
  await broker.submit(
    {},
    0,
    Array.from({ length: 5000 }, (_, i) => `entry ${i} of the list`),
  );
  const { taskRange } = await broker.submitAll(5000);
  await broker.settle(await broker.claim(taskRange, 0, 4999), results(0, 4999));
  await broker.store.close();
});
afterEach(() => harness.dispose());

async function expectRefused(because: RegExp = /./): Promise<void> {
  const files = fs.readdirSync(harness.dir, { withFileTypes: true }).filter((entry) => entry.isFile());
  const before = files.map(({ name }) => ({ name, bytes: fs.readFileSync(`${harness.dir}/${name}`) }));
  const refusal = await harness
    .handle()
    .open(1)
    .then(
      () => undefined,
      (cause: { code: string; message: string }) => cause,
    );
  expect(refusal?.code).toBe("LABORO_DATA_CORRUPT");
  expect(refusal?.message).toContain(harness.database);
  expect(refusal?.message).toMatch(because);
  for (const { name, bytes } of before) expect(fs.readFileSync(`${harness.dir}/${name}`).equals(bytes)).toBe(true);
}

function overwrite(at: number, bytes: Uint8Array): void {
  const fd = fs.openSync(harness.database, "r+");
  fs.writeSync(fd, bytes, 0, bytes.length, at);
  fs.closeSync(fd);
}

it("refuses a file with another header", async () => {
  overwrite(3, Buffer.from("garbage"));
  await expectRefused(/not a database/);
});

it("refuses a file whose page size makes no sense", async () => {
  overwrite(16, Uint8Array.of(0x33, 0x33));
  await expectRefused();
});

it("refuses a file in which any one page was overwritten", async () => {
  const whole = fs.readFileSync(harness.database);
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 1, max: whole.length / PAGE - 1 }), async (page) => {
      overwrite(page * PAGE, Buffer.alloc(64, 0xab));
      await expectRefused();
      fs.writeFileSync(harness.database, whole);
    }),
    { numRuns: 12 },
  );
});

it("refuses a file that was cut off, in the middle of a page or between two", async () => {
  const whole = fs.readFileSync(harness.database);
  for (const length of [whole.length - PAGE, Math.floor(whole.length / 2) + 17, PAGE, 50]) {
    fs.truncateSync(harness.database, length);
    await expectRefused();
    fs.writeFileSync(harness.database, whole);
  }
});

it("refuses a log without its file instead of dropping the log", async () => {
  const log = `${harness.database}-wal`;
  fs.writeFileSync(log, Buffer.alloc(5000, 1));
  fs.renameSync(harness.database, `${harness.dir}/elsewhere.db`);
  await expect(harness.handle().open(1)).rejects.toMatchObject({ code: "LABORO_DATA_CORRUPT" });
  expect(fs.statSync(log).size).toBe(5000);
});

it("leaves the log of a damaged file alone", async () => {
  const broker = await Broker.at(harness.handle());
  await broker.submit();
  // As a power cut would leave them.
  const image = { db: fs.readFileSync(harness.database), log: fs.readFileSync(`${harness.database}-wal`) };
  await broker.store.close();
  expect(image.log.length).toBeGreaterThan(0);
  fs.writeFileSync(harness.database, image.db);
  fs.writeFileSync(`${harness.database}-wal`, image.log);
  overwrite(20 * PAGE, Buffer.alloc(PAGE, 0xcd));
  await expectRefused();
});

it("opens the undamaged file", async () => {
  const store = harness.handle();
  expect((await store.open(1)).jobs).toHaveLength(1);
  await store.close();
});
