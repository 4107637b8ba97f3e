/** Commits that were acknowledged and are missing from a damaged log are reported; what a kill or a power cut leaves is not. */
import * as fs from "node:fs";
import { join } from "node:path";
import * as fc from "fast-check";
import { beforeAll, describe, expect, it } from "vitest";
import { damageReports } from "../../../src/store/sqlite/damage.js";
import { Engine } from "../../../src/store/sqlite/engine.js";
import type { RecoveredRows } from "../../../src/store/sqlite/thread-calls.js";
import { scratch } from "../../files/scratch.js";
import { Broker, results } from "../suite/kit.js";
import { sqliteHarness } from "./harness.js";

const HEADER = 32;
const FRAME = 24 + 4096;
const JOBS = 6;

/** The files as a kill of the process leaves them. */
interface Image {
  readonly database: Buffer;
  readonly log: Buffer;
  readonly note: Buffer;
}

/** After each commit of a job's submission, and of its results. */
const images: Image[] = [];
const last = (): Image => images.at(-1) as Image;

const imageOf = (dir: string): Image => ({
  database: fs.readFileSync(join(dir, "store.db")),
  log: fs.readFileSync(join(dir, "store.db-wal")),
  note: fs.readFileSync(join(dir, "last-commit")),
});

beforeAll(async () => {
  const { dir, handle, dispose } = await sqliteHarness();
  const broker = await Broker.at(handle());
  for (let i = 0; i < JOBS; i++) {
    const { taskRange } = await broker.submitAll(5);
    images.push(imageOf(dir));
    await broker.settle(await broker.claim(taskRange, 0, 4), results(0, 4));
    images.push(imageOf(dir));
  }
  await broker.store.close();
  await dispose();
});

interface Reopened {
  /** Log lines with a code. */
  readonly said: readonly string[];
  readonly jobs: number;
  readonly opened: RecoveredRows;
  readonly dir: string;
  /** As a kill after one more commit would leave it. */
  readonly killed: Image;
}

/** Opens these files, in this process and in a directory of their own. */
function reopen({ database, log, note }: { [Name in keyof Image]: Buffer | undefined }): Reopened {
  const dir = scratch();
  for (const [name, bytes] of Object.entries({ "store.db": database, "store.db-wal": log, "last-commit": note })) {
    if (bytes !== undefined) fs.writeFileSync(join(dir, name), bytes);
  }
  for (let job = 1; job <= JOBS; job++) fs.mkdirSync(join(dir, "output", String(job)), { recursive: true });
  const said: string[] = [];
  const engine = new Engine(dir);
  const opened = engine.begin(1, (line, code) => void (code !== undefined && said.push(`${code}: ${line}`)));
  const jobs = engine.jobs.page(undefined, 100).length;
  engine.commit([{ op: "put", bucket: "b", key: "k", value: "v" }], 1);
  const killed = imageOf(dir);
  engine.close();
  return { said, jobs, opened, dir, killed };
}

function flipped(bytes: Buffer, at: number): Buffer {
  const copy = Buffer.from(bytes);
  copy[at] = (copy[at] ?? 0) ^ 0x10;
  return copy;
}

/** Where each commit ends, by the frames' headers. */
function commitEnds(log: Buffer): number[] {
  const ends: number[] = [];
  for (let at = HEADER; at + FRAME <= log.length; at += FRAME) {
    const isOfThisLog = log.subarray(at + 8, at + 16).equals(log.subarray(16, 24));
    if (isOfThisLog && log.readUInt32BE(at + 4) !== 0) ends.push(at + FRAME);
  }
  return ends;
}

describe("a log after a kill", () => {
  it("that is whole, or has space behind its end, is not reported", () => {
    for (const tail of [Buffer.alloc(0), Buffer.alloc(10_000), Buffer.alloc(FRAME, 0xab)]) {
      const { said, jobs, dir } = reopen({ ...last(), log: Buffer.concat([last().log, tail]) });
      expect([said, jobs, fs.existsSync(join(dir, "damaged"))]).toEqual([[], JOBS, false]);
    }
  });

  it("is not reported wherever the process was in a commit: the note is that of the commit before", () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: images.length - 1 }), fc.nat(1_000_000), (number, at) => {
        const [before, after] = [images[number - 1] as Image, images[number] as Image];
        const cut = before.log.length + (at % (after.log.length - before.log.length + 1));
        expect(reopen({ ...after, log: after.log.subarray(0, cut), note: before.note }).said).toEqual([]);
      }),
      { numRuns: 30 },
    );
  });

  it("is not reported after a power cut that left the last commit incomplete, or an older note", () => {
    const begin = commitEnds(last().log).at(-2) as number;
    expect(last().log.length).toBeGreaterThan(begin + FRAME);
    const torn = Buffer.from(last().log);
    torn.fill(0, begin, begin + FRAME);
    const older = images[0]?.note;
    expect(reopen({ ...last(), log: torn, note: older }).said).toEqual([]);
    expect(reopen({ ...last(), note: older })).toMatchObject({ said: [], jobs: JOBS });
  });
});

describe("a log that lost acknowledged commits", () => {
  it("is reported, with the jobs that are missing, kept aside, and the store goes on", () => {
    const log = flipped(last().log, (images[5] as Image).log.length + 100);
    const { said, jobs, opened, dir, killed } = reopen({ ...last(), log });
    expect(jobs).toBe(3);
    expect(said).toEqual([
      expect.stringMatching(
        /^LABORO_DATA_LOST: acknowledged data is missing: 9 commits up to 2023.*jobs 4 to 6, results/,
      ),
    ]);
    const [kept = ""] = fs.readdirSync(join(dir, "damaged"));
    expect(fs.readFileSync(join(dir, "damaged", kept, "store.db-wal")).equals(log)).toBe(true);
    const [unknown = ""] = fs.readdirSync(dir).filter((name) => name.startsWith("unknown-output-"));
    expect(fs.readdirSync(join(dir, unknown))).toEqual(["4", "5", "6"]);
    // Numbers and epochs of what is missing are not given again.
    expect([opened.epoch, opened.nextJob]).toEqual([2, JOBS + 1]);
    expect(reopen(killed)).toMatchObject({ said: [], opened: { epoch: 3, nextJob: JOBS + 1 } });
    expect(damageReports(dir)).toHaveLength(1);
    fs.rmSync(join(dir, "damaged"), { recursive: true });
    expect(damageReports(dir)).toEqual([]);
  });

  it("is reported wherever a bit is flipped or the file is cut before its last commit, and the next kill is not", () => {
    const { log } = last();
    fc.assert(
      fc.property(fc.nat((commitEnds(log).at(-1) as number) - 1), fc.boolean(), (at, cut) => {
        const { said, killed } = reopen({ ...last(), log: cut ? log.subarray(0, at) : flipped(log, at) });
        expect([said.length, reopen(killed).said]).toEqual([1, []]);
      }),
      { numRuns: 25 },
    );
  });

  it("is reported where it is missing or empty, and where the database is missing", () => {
    for (const log of [undefined, Buffer.alloc(0), Buffer.alloc(100_000)]) {
      expect(reopen({ ...last(), log }).said).toEqual([expect.stringContaining("19 commits")]);
    }
    const { said } = reopen({ ...last(), database: undefined, log: undefined });
    expect(said).toEqual([expect.stringContaining("jobs 1 to 6")]);
  });

  it("is reported without the note where several commits lie behind the damage", () => {
    const { log } = last();
    const damaged = (bytes: Buffer): readonly string[] => reopen({ ...last(), log: bytes, note: undefined }).said;
    expect(damaged(flipped(log, HEADER + 10 * FRAME + 50))).toEqual([
      expect.stringMatching(/is missing: \d+ commits, with results/),
    ]);
    expect(damaged(flipped(log, 17))).toEqual([expect.stringContaining("damaged header")]);
    expect(damaged(log)).toEqual([]);
  });

  it("cannot be told from a whole one by a damaged note, which is reported", () => {
    const { note } = last();
    for (const damaged of [Buffer.alloc(0), flipped(note, 30), note.subarray(0, 50)]) {
      const { said, jobs } = reopen({ ...last(), note: damaged });
      expect([said, jobs]).toEqual([[expect.stringContaining("last-commit is damaged")], JOBS]);
    }
  });
});
