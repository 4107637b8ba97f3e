/** Commits that were acknowledged and are missing from a damaged log are reported; what a kill or a power cut leaves is not. */
import * as fs from "node:fs";
import { join } from "node:path";
import * as fc from "fast-check";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { damageReports } from "../../../src/store/sqlite/damage.js";
import { Broker, chunk, results } from "../suite/kit.js";
import { type DirectoryHarness, sqliteHarness } from "./harness.js";

const HEADER = 32;
const FRAME = 24 + 4096;
const JOBS = 6;

/** The files as a kill of the process leaves them. */
interface Image {
  readonly log: Buffer;
  readonly note: Buffer;
}

let harness: DirectoryHarness;
let database: Buffer;
/** After each commit: of each job its submission and its results. */
let images: Image[];

const path = (name: string): string => join(harness.dir, name);
const image = (): Image => ({ log: fs.readFileSync(path("store.db-wal")), note: fs.readFileSync(path("last-commit")) });

beforeEach(async () => {
  harness = await sqliteHarness();
  const broker = await Broker.at(harness.handle());
  images = [];
  for (let i = 0; i < JOBS; i++) {
    const { job, taskRange } = await broker.submitAll(5);
    images.push(image());
    const claimed = await broker.claim(taskRange, 0, 4);
    await broker.write({ op: "output", chunks: [chunk(job, 0, 0, "text")] });
    await broker.settle(claimed, results(0, 4));
    images.push(image());
  }
  database = fs.readFileSync(path("store.db"));
  await broker.store.close();
});
afterEach(() => harness.dispose());

/** Opens the store as it was killed with this log and this note. Returns the reports and the jobs that are there. */
async function reopen(log: Buffer | undefined, note: Buffer | undefined): Promise<{ said: string[]; jobs: number }> {
  fs.rmSync(path("damaged"), { recursive: true, force: true });
  for (const name of ["store.db-wal", "last-commit"]) fs.rmSync(path(name), { force: true });
  fs.writeFileSync(path("store.db"), database);
  if (log !== undefined) fs.writeFileSync(path("store.db-wal"), log);
  if (note !== undefined) fs.writeFileSync(path("last-commit"), note);
  harness.reported.length = 0;
  const store = harness.handle();
  await store.open(1);
  const { jobs } = await store.jobs({ limit: 100 });
  await store.close();
  return { said: [...harness.reported], jobs: jobs.length };
}

const last = (): Image => images.at(-1) as Image;

function flipped(bytes: Buffer, at: number): Buffer {
  const copy = Buffer.from(bytes);
  copy[at] = (copy[at] ?? 0) ^ 0x10;
  return copy;
}

describe("a log after a kill", () => {
  it("that is whole, or has space behind its end, is not reported", async () => {
    const { log, note } = last();
    for (const tail of [Buffer.alloc(0), Buffer.alloc(10_000), Buffer.alloc(FRAME, 0xab)]) {
      expect(await reopen(Buffer.concat([log, tail]), note)).toEqual({ said: [], jobs: JOBS });
    }
    expect(fs.existsSync(path("damaged"))).toBe(false);
  });

  it("is not reported wherever the process was in a commit: the note is that of the commit before", async () => {
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 1, max: images.length - 1 }), fc.nat(1_000_000), async (number, at) => {
        const [before, after] = [images[number - 1] as Image, images[number] as Image];
        const cut = before.log.length + (at % (after.log.length - before.log.length + 1));
        expect((await reopen(after.log.subarray(0, cut), before.note)).said).toEqual([]);
      }),
      { numRuns: 15 },
    );
  });

  it("is not reported after a power cut that left the last commit incomplete, or an older note", async () => {
    const [before, after] = [images.at(-2) as Image, last()];
    // The claim, the output and the results are three commits.
    const commits = commitEnds(after.log);
    const begin = commits.at(-2) as number;
    expect(commits.at(-1) as number).toBeGreaterThan(begin + FRAME);
    const torn = Buffer.from(after.log);
    torn.fill(0, begin, begin + FRAME);
    expect((await reopen(torn, before.note)).said).toEqual([]);
    expect(await reopen(after.log, images[0]?.note)).toEqual({ said: [], jobs: JOBS });
  });
});

describe("a log that lost acknowledged commits", () => {
  it("is reported, with the jobs that are missing, kept aside, and the store goes on", async () => {
    const { log, note } = last();
    const middle = (images[5] as Image).log.length + 100;
    const { said, jobs } = await reopen(flipped(log, middle), note);
    expect(jobs).toBe(3);
    expect(said).toEqual([
      expect.stringMatching(
        /^LABORO_DATA_LOST: acknowledged data is missing: 12 commits up to 2023.*jobs 4 to 6, results/,
      ),
    ]);
    const [kept = ""] = fs.readdirSync(path("damaged"));
    expect(fs.readFileSync(path(`damaged/${kept}/store.db-wal`)).equals(flipped(log, middle))).toBe(true);
    expect(fs.readdirSync(path(`damaged/${kept}/output`))).toEqual(["4", "5", "6"]);
    expect(damageReports(harness.dir)).toHaveLength(1);
    // Numbers and epochs of what is missing are not given again.
    const store = harness.handle();
    const { epoch, nextJob } = await store.open(1);
    expect([epoch, nextJob]).toEqual([3, JOBS + 1]);
    await store.close();
    expect(harness.reported).toHaveLength(1);
    fs.rmSync(path("damaged"), { recursive: true });
    expect(damageReports(harness.dir)).toEqual([]);
  });

  it("is reported wherever a bit is flipped or the file is cut before the last commit, and the next kill is not", async () => {
    const { log, note } = last();
    const used = commitEnds(log).at(-1) as number;
    const original = database;
    await fc.assert(
      fc.asyncProperty(fc.nat(used - 1), fc.boolean(), async (at, cut) => {
        const damaged = cut ? log.subarray(0, at) : flipped(log, at);
        expect((await reopen(damaged, note)).said).toHaveLength(1);
        const broker = await Broker.at(harness.handle());
        await broker.submit();
        const killed = image();
        database = fs.readFileSync(path("store.db"));
        await broker.store.close();
        expect((await reopen(killed.log, killed.note)).said).toEqual([]);
        database = original;
      }),
      { numRuns: 12 },
    );
  });

  it("is reported where it is missing or empty, and where the database is missing", async () => {
    const { note } = last();
    for (const log of [undefined, Buffer.alloc(0), Buffer.alloc(100_000)]) {
      expect((await reopen(log, note)).said).toEqual([expect.stringContaining("25 commits")]);
    }
    database = Buffer.alloc(0);
    expect((await reopen(undefined, note)).said).toEqual([expect.stringContaining("jobs 1 to 6")]);
  });

  it("is reported without the note where several commits lie behind the damage", async () => {
    const { log } = last();
    const { said } = await reopen(flipped(log, HEADER + 10 * FRAME + 50), undefined);
    expect(said).toEqual([expect.stringMatching(/is missing: \d+ commits, with results/)]);
    expect((await reopen(flipped(log, 17), undefined)).said).toEqual([expect.stringContaining("damaged header")]);
    expect((await reopen(log, undefined)).said).toEqual([]);
  });

  it("cannot be told from a whole one without a note: a damaged note is reported", async () => {
    const { log, note } = last();
    for (const damaged of [Buffer.alloc(0), flipped(note, 30), note.subarray(0, 50)]) {
      expect(await reopen(log, damaged)).toEqual({
        said: [expect.stringContaining("last-commit is damaged")],
        jobs: JOBS,
      });
    }
  });
});

/** Where each commit ends, by the frames' headers. */
function commitEnds(log: Buffer): number[] {
  const ends: number[] = [];
  const salts = log.subarray(16, 24);
  for (let at = HEADER; at + FRAME <= log.length; at += FRAME) {
    if (log.readUInt32BE(at + 4) !== 0 && log.subarray(at + 8, at + 16).equals(salts)) ends.push(at + FRAME);
  }
  return ends;
}
