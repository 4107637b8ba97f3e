/** A broker that was killed, and whose log was damaged after that, says what is missing and goes on. */
import * as fs from "node:fs";
import { join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { startWorker } from "../../src/entries/worker.js";
import { JobId } from "../../src/model/ids.js";
import { startBroker } from "../../src/server.js";
import { openPlace } from "../cli/run/place.js";
import { laboro } from "../cli/support/cli.js";
import { atEnd } from "../support/at-end.js";
import { report } from "../support/fault-batch.js";
import { CALL_NOTHING, NOTHING, TRUE } from "../support/recipes.js";
import { sites } from "../support/site.js";
import { until } from "../support/wait.js";

const newSite = sites();
const JOBS = 40;
/** Three of each second job. */
const RESULTS = 60;
const FILES = ["store.db", "store.db-wal", "last-commit"];

/** What a broker with 40 jobs, half of them with results, left when it was killed. */
const image = new Map<string, Buffer>();
const log = (): Buffer => image.get("store.db-wal") as Buffer;

beforeAll(async () => {
  const { Site } = await import("../support/site.js");
  const site = new Site();
  await site.startBroker();
  const worker = startWorker({ broker: site.url, token: site.token, dir: site.path("one"), services: NOTHING });
  const client = await site.client();
  for (let i = 0; i < JOBS / 2; i++) {
    await (await client.submit({ recipe: CALL_NOTHING, count: 3 })).wait();
    await client.submit({ recipe: TRUE, held: true });
  }
  await site.broker.end("SIGKILL");
  for (const name of FILES) image.set(name, fs.readFileSync(join(site.data, name)));
  await worker.stop({ graceMs: 0 });
  await site.close();
});

/** A data directory with this log instead. */
function restore(data: string, damaged: Buffer | undefined): void {
  fs.mkdirSync(data, { mode: 0o700, recursive: true });
  for (const [name, bytes] of image) fs.writeFileSync(join(data, name), bytes);
  if (damaged === undefined) fs.rmSync(join(data, "store.db-wal"));
  else fs.writeFileSync(join(data, "store.db-wal"), damaged);
}

function flipped(at: number): Buffer {
  const copy = Buffer.from(log());
  copy[at] = (copy[at] ?? 0) ^ 0x01;
  return copy;
}

/** Behind it there may be space that the broker has added. */
function usedBytes(): number {
  const salts = log().subarray(16, 24);
  let end = 0;
  for (let at = 32; at + 4120 <= log().length; at += 4120) {
    if (
      log()
        .subarray(at + 8, at + 16)
        .equals(salts)
    )
      end = at + 4120;
  }
  return end;
}

const DAMAGES: readonly (readonly [string, () => Buffer | undefined])[] = [
  ["a bit flipped in the middle", () => flipped(Math.floor(usedBytes() / 2))],
  ["a bit flipped near its beginning", () => flipped(5_000)],
  ["a bit flipped in its header", () => flipped(18)],
  ["a bit flipped in its last page", () => flipped(usedBytes() - 9)],
  ["its second half cut off", () => log().subarray(0, Math.floor(usedBytes() / 2))],
  ["its last page cut off", () => log().subarray(0, usedBytes() - 4120)],
  ["its last byte cut off", () => log().subarray(0, usedBytes() - 1)],
  ["its header cut", () => log().subarray(0, 20)],
  ["nothing in it", () => Buffer.alloc(0)],
  ["no file at all", () => undefined],
];

describe("a broker with a log that has", () => {
  it.each(DAMAGES)("%s says that data is missing, in its log, in status and in doctor", async (what, damage) => {
    const dir = newSite().path("data");
    restore(dir, damage());
    const doctor = await laboro(["doctor", "--data", dir]);
    expect(doctor.code).toBe(1);
    expect(doctor.stdout).toMatch(/^FAIL {2}no broker runs there; acknowledged data is missing: \d+ commits?/m);
    const errors: string[] = [];
    const error = (fields: object, text: string): void => void errors.push(`${JSON.stringify(fields)} ${text}`);
    const broker = await startBroker({ dir, port: 0, log: { info: () => {}, warn: () => {}, error } });
    atEnd(() => broker.stop());
    expect(errors).toEqual([expect.stringMatching(/LABORO_DATA_LOST.*acknowledged data is missing/)]);
    const [, first = JOBS + 1] = /jobs? (\d+)/.exec(errors[0] ?? "") ?? [];
    const status = await laboro(["status", "--all", "--data", dir]);
    expect(status.stdout).toContain("acknowledged data is missing");
    const jobs = status.stdout.split("\n").filter((line) => /^ +\d+ /.test(line)).length;
    let results = 0;
    for (let id = 1; id <= JOBS; id++)
      results += (await broker.core.store.results(JobId(id), { from: 0, limit: 10 })).results.length;
    report({
      fault: `kill -9 of the broker, then its database log with ${what}`,
      submissionsLost: JOBS - jobs,
      resultsLost: RESULTS - results,
      outputsLost: 0,
      recordedTwice: 0,
      startedTwice: 0,
      note: "all that is lost is reported",
    });
    expect(jobs).toBe(Number(first) - 1);
    expect((await laboro(["doctor", "--data", dir])).stdout).toMatch(/^FAIL {2}acknowledged data is missing/m);
    fs.rmSync(join(dir, "damaged"), { recursive: true });
    expect((await laboro(["status", "--data", dir])).stdout).not.toContain("missing");
  });

  it("no damage, or an incomplete commit behind the last one, says nothing", async () => {
    for (const tail of [Buffer.alloc(0), log().subarray(32, 4_000), log().subarray(32, 9_000)]) {
      const dir = newSite().path("data");
      restore(dir, Buffer.concat([log().subarray(0, usedBytes()), tail]));
      const doctor = await laboro(["doctor", "--data", dir]);
      expect(doctor.stdout).toContain("no broker runs there; its database is intact");
      const errors: string[] = [];
      const error = (_: object, text: string): void => void errors.push(text);
      const broker = await startBroker({ dir, port: 0, log: { info: () => {}, warn: () => {}, error } });
      expect((await broker.core.store.jobs({ limit: 100 })).jobs).toHaveLength(JOBS);
      await broker.stop();
      expect([errors, fs.existsSync(join(dir, "damaged"))]).toEqual([[], false]);
    }
  });
});

it("laboro serve prints it, at its start and after a kill", async () => {
  const site = newSite();
  restore(site.data, undefined);
  await site.startBroker();
  expect(site.broker.said).toMatch(/LABORO_DATA_LOST.*acknowledged data is missing/);
  const [kept = ""] = fs.readdirSync(join(site.data, "damaged"));
  expect(fs.readdirSync(join(site.data, "damaged", kept))).toEqual(["report.txt"]);
  // The report stays, and what follows is whole.
  await site.broker.end("SIGKILL");
  await site.startBroker();
  expect(site.broker.said).not.toContain("LABORO_DATA_LOST");
  const client = await site.client();
  expect((await client.ask("status", {})).damage).toHaveLength(1);
  expect((await client.submit({ recipe: TRUE, held: true })).id).toBe(JOBS + 1);
});

it("laboro run prints it", async () => {
  const place = openPlace();
  const words = ["run", "--jobs", "1", "echo {} >> done; [ {} != c ] || sleep 600", ":::", "a", "b", "c"];
  const first = place.begin(words);
  await until("it is in its third task", () => place.lines("done").length === 3);
  first.child.kill("SIGKILL");
  await first.said;
  const path = place.file(".laboro/store.db-wal");
  const bytes = fs.readFileSync(path);
  fs.writeFileSync(path, bytes.subarray(0, 32 + 4120 * 24));
  fs.appendFileSync(path, Buffer.alloc(5_000));
  const { code, stderr } = await place.run("--jobs", "1", "true");
  expect([code, stderr]).toEqual([0, expect.stringContaining("laboro: acknowledged data is missing")]);
});

it("doctor finds counters that differ from the results", async () => {
  const { DatabaseSync } = await import("@photostructure/sqlite");
  const dir = newSite().path("data");
  restore(dir, log());
  const db = new DatabaseSync(join(dir, "store.db"));
  db.exec("DELETE FROM result WHERE job = 3 AND idx = 1");
  db.close();
  const { code, stdout } = await laboro(["doctor", "--data", dir]);
  expect([code, stdout]).toEqual([
    1,
    expect.stringContaining("the counters of these jobs differ from their results: 3;"),
  ]);
});
