import * as fs from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { JobId } from "../../../src/model/ids.js";
import { OutputSegments } from "../../../src/store/output/output-segments.js";
import { fill, NO_MOUNT, scratch, smallDisk } from "../../files/scratch.js";
import { chunk, JOB, readAll } from "./chunks.js";

describe("OutputSegments", () => {
  it("gives back what was stored, in order of offset, both streams or one", () => {
    const output = new OutputSegments(scratch());
    output.append([chunk(0, 0, "out "), chunk(1, 0, "other"), chunk(0, 4, "err ", "stderr"), chunk(0, 8, "out again")]);
    output.sync();
    const of = { job: JOB, index: 0, attempt: 1 };
    expect(readAll(output, of).text).toBe("out err out again");
    expect(readAll(output, of).pieces.map(({ stream, offset }) => [stream, offset])).toEqual([
      ["stdout", 0],
      ["stderr", 4],
      ["stdout", 8],
    ]);
    expect(readAll(output, of, 3, "stdout").text).toBe("out out again");
    expect(output.read(of, { from: 6, limit: 4 })).toMatchObject({ gaps: [], next: 10 });
    expect(output.storedEnd(JOB, 0, 1)).toBe(17);
    output.close();
  });

  it("keeps attempts apart", () => {
    const output = new OutputSegments(scratch());
    output.append([chunk(0, 0, "first"), chunk(0, 0, "second try", "stdout", 2)]);
    expect(readAll(output, { job: JOB, index: 0, attempt: 1 }).text).toBe("first");
    expect(readAll(output, { job: JOB, index: 0, attempt: 2 }).text).toBe("second try");
    expect(output.storedEnd(JOB, 0, 3)).toBe(0);
  });

  it("skips what it has, trims what overlaps, and marks what was left out", () => {
    const output = new OutputSegments(scratch());
    output.append([chunk(0, 0, "abcdef"), chunk(0, 2, "cd"), chunk(0, 4, "efgh")]);
    output.append([chunk(0, 0, "abc"), chunk(0, 6, "ghij"), chunk(0, 5, "f"), chunk(0, 20, "tail")]);
    const { text, gaps } = readAll(output, { job: JOB, index: 0, attempt: 1 });
    expect(text).toBe("abcdefghijtail");
    expect(gaps).toEqual([{ offset: 10, length: 10, reason: "not stored" }]);
    expect(output.storedEnd(JOB, 0, 1)).toBe(24);
  });

  it("reads by reference once an attempt is released, also after a restart", () => {
    const directory = scratch();
    const output = new OutputSegments(directory, { segmentBytes: 200 });
    for (let offset = 0; offset < 500; offset += 10)
      output.append([chunk(3, offset, "0123456789"), chunk(4, offset, "x".repeat(10))]);
    const reference = output.reference(JOB, 3, 1);
    output.release(JOB, 3, 1);
    expect(output.storedEnd(JOB, 3, 1)).toBe(0);
    expect(fs.readdirSync(join(directory, "7")).length).toBeGreaterThan(5);
    output.sync();
    output.close();
    const again = new OutputSegments(directory);
    expect(again.bytesUsed).toBe(output.bytesUsed);
    const of = { job: JOB, index: 3, attempt: 1, ...(reference && { reference }) };
    expect(readAll(again, of, 33)).toMatchObject({ text: "0123456789".repeat(50), gaps: [] });
  });

  it("makes a reference of a few bytes for an attempt in one piece", () => {
    const output = new OutputSegments(scratch());
    for (let offset = 0; offset < 60_000; offset += 100) output.append([chunk(3, offset, "x".repeat(100))]);
    expect(output.reference(JOB, 3, 1)?.length).toBeLessThan(16);
    expect(output.reference(JOB, 5, 1)).toBeUndefined();
  });

  it("bounds the reference of an attempt that trickles between others", () => {
    const output = new OutputSegments(scratch());
    for (let offset = 0; offset < 50_000; offset += 5) {
      output.append([chunk(0, offset, "trick"), chunk(1, offset, "other"), chunk(2, offset * 3, "third")]);
    }
    const reference = output.reference(JOB, 0, 1);
    expect(reference?.length).toBeLessThan(16_000);
    const of = { job: JOB, index: 0, attempt: 1, ...(reference && { reference }) };
    const found = readAll(output, of, 4096);
    expect(found.gaps).toEqual([]);
    expect(found.text).toBe("trick".repeat(10_000));
    // Gaps that were there before are still told from damage.
    expect(readAll(output, { job: JOB, index: 2, attempt: 1 }).gaps).toHaveLength(9999);
  });

  it("stores chunks larger than a record may be", () => {
    const output = new OutputSegments(scratch());
    output.append([chunk(0, 0, "ab".repeat(1_500_000))]);
    expect(readAll(output, { job: JOB, index: 0, attempt: 1 }).text).toBe("ab".repeat(1_500_000));
  });

  it("keeps few files open however many jobs write, and removes a job's files", () => {
    const directory = scratch();
    const output = new OutputSegments(directory, { openFiles: 8 });
    const before = fs.readdirSync("/proc/self/fd").length;
    const jobs = Array.from({ length: 300 }, (_, job) => ({ ...chunk(0, 0, "text"), job: JobId(job) }));
    output.append(jobs);
    output.append(jobs.map((one) => ({ ...one, offset: 4 })));
    output.sync();
    expect(output.openFiles).toBe(8);
    expect(fs.readdirSync("/proc/self/fd").length - before).toBeLessThanOrEqual(8);
    expect(readAll(output, { job: JobId(17), index: 0, attempt: 1 }).text).toBe("texttext");
    for (const { job } of jobs) output.remove(job);
    expect(fs.readdirSync(directory)).toEqual([]);
    expect(output.bytesUsed).toBe(0);
    expect(output.openFiles).toBe(0);
    output.append([{ ...chunk(0, 0, "anew"), job: JobId(17) }]);
    expect(readAll(output, { job: JobId(17), index: 0, attempt: 1 }).text).toBe("anew");
    output.close();
  });

  it("reports a segment that is gone as a gap", () => {
    const directory = scratch();
    const output = new OutputSegments(directory);
    output.append([chunk(0, 0, "gone")]);
    output.close();
    fs.rmSync(join(directory, "7/0.seg"));
    const { text, gaps } = readAll(output, { job: JOB, index: 0, attempt: 1 });
    expect(text).toBe("");
    expect(gaps).toEqual([{ offset: 0, length: 4, reason: "damaged", detail: "segment 0 is not there" }]);
  });

  it("believes nothing any more after a sync that failed", () => {
    const directory = scratch();
    const output = new OutputSegments(directory);
    output.append([chunk(0, 0, "text")]);
    output.close();
    fs.rmSync(join(directory, "7/0.seg"));
    const failed = expect.objectContaining({ code: "LABORO_STORE_FAILED" });
    expect(() => output.sync()).toThrow(failed);
    expect(() => output.append([chunk(0, 4, "more")])).toThrow(failed);
    expect(() => output.sync()).toThrow(failed);
  });

  it("refuses numbers that are none", () => {
    const output = new OutputSegments(scratch());
    for (const bad of [chunk(-1, 0, "x"), chunk(0, 1.5, "x"), chunk(0, Number.NaN, "x"), chunk(2 ** 33, 0, "x")]) {
      expect(() => output.append([bad])).toThrow(expect.objectContaining({ code: "LABORO_BAD_INPUT" }));
    }
  });

  it("leaves file and extents as they were when the disk is full, and goes on when there is room", (context) => {
    const disk = smallDisk(256 * 1024);
    if (disk === undefined) return context.skip(NO_MOUNT);
    const output = new OutputSegments(join(disk, "output"));
    output.append([chunk(0, 0, "before")]);
    const size = output.bytesUsed;
    const filler = fill(disk);
    const large = chunk(0, 6, "x".repeat(100_000));
    expect(() => output.append([large])).toThrow(expect.objectContaining({ code: "LABORO_DISK_FULL" }));
    expect(() => output.append([{ ...large, job: JobId(8) }])).toThrow(
      expect.objectContaining({ code: "LABORO_DISK_FULL" }),
    );
    expect(output.storedEnd(JOB, 0, 1)).toBe(6);
    expect(fs.statSync(join(disk, "output/7/0.seg")).size).toBe(size);
    fs.rmSync(filler);
    output.append([large]);
    output.sync();
    expect(readAll(output, { job: JOB, index: 0, attempt: 1 }).text).toBe(`before${"x".repeat(100_000)}`);
    output.close();
  });
});
