import * as fs from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { OutputChunk } from "../../../src/model/store.js";
import { OutputSegments } from "../../../src/store/output/output-segments.js";
import { scratch } from "../../files/scratch.js";
import { chunk, JOB, readAll } from "./chunks.js";

const attempt = (index: number, reference?: Uint8Array) => ({
  job: JOB,
  index,
  attempt: 1,
  ...(reference && { reference }),
});

describe("after a restart", () => {
  it("every attempt is found again and goes on where it was", () => {
    const directory = scratch();
    const before = new OutputSegments(directory, { segmentBytes: 100 });
    for (let offset = 0; offset < 60; offset += 6)
      before.append([chunk(0, offset, "zero.."), chunk(9, offset, "nine..")]);
    before.close();
    const after = new OutputSegments(directory, { segmentBytes: 100 });
    expect(after.recover(JOB)).toEqual([]);
    expect(after.unreleased(JOB)).toEqual([
      { index: 0, attempt: 1 },
      { index: 9, attempt: 1 },
    ]);
    after.append([chunk(0, 54, "zero..more")]);
    expect(readAll(after, attempt(0)).text).toBe(`${"zero..".repeat(10)}more`);
    expect(after.reference(JOB, 9, 1)).toEqual(before.reference(JOB, 9, 1));
    expect(after.bytesUsed).toBe(before.bytesUsed + 12 + 4 + 4);
  });

  it("a cut at any byte costs only what was cut, and appending goes on behind the last good record", () => {
    const directory = scratch();
    const path = join(directory, "7/0.seg");
    const output = new OutputSegments(directory);
    output.append([chunk(0, 0, "aaaa"), chunk(1, 0, "bbb", "stderr"), chunk(0, 4, "cc")]);
    output.close();
    const whole = fs.readFileSync(path);
    const ends = [20, 39, 57];
    expect(whole.length).toBe(57);
    for (let cut = 0; cut <= whole.length; cut++) {
      fs.writeFileSync(path, whole.subarray(0, cut));
      const again = new OutputSegments(directory);
      const damage = again.recover(JOB);
      const kept = ends.filter((end) => end <= cut).length;
      expect(damage.length).toBe(cut === 0 || ends.includes(cut) ? 0 : 1);
      expect(again.storedEnd(JOB, 0, 1)).toBe([0, 4, 4, 6][kept]);
      again.append([chunk(0, 0, "aaaa"), chunk(0, 4, "cc"), chunk(0, 6, "dd"), chunk(1, 0, "bbb", "stderr")]);
      again.close();
      const last = new OutputSegments(directory);
      expect(last.recover(JOB)).toEqual([]);
      expect(readAll(last, attempt(0))).toMatchObject({ text: "aaaaccdd", gaps: [] });
      expect(readAll(last, attempt(1)).text).toBe("bbb");
      last.close();
    }
  });

  it("a flip of any bit is reported as a gap with its reason, by reference and after recovery", () => {
    const directory = scratch();
    const path = join(directory, "7/0.seg");
    const output = new OutputSegments(directory);
    output.append([chunk(0, 0, "aa"), chunk(0, 2, "bb"), chunk(1, 0, "other"), chunk(0, 4, "cc")]);
    const reference = output.reference(JOB, 0, 1);
    output.close();
    const whole = fs.readFileSync(path);
    // Records of 18, 18, 21 and 18 bytes; what each gap is in the output of task 0.
    const expected = (byte: number): [string, number] | undefined =>
      byte < 18 ? ["bbcc", 0] : byte < 36 ? ["aacc", 2] : byte < 57 ? undefined : ["aabb", 4];
    for (let bit = 0; bit < whole.length * 8; bit++) {
      const flipped = Buffer.from(whole);
      flipped[bit >> 3] = (flipped[bit >> 3] ?? 0) ^ (1 << (bit & 7));
      fs.writeFileSync(path, flipped);
      const again = new OutputSegments(directory);
      const [text, offset] = expected(bit >> 3) ?? ["aabbcc", -1];
      const gaps = offset < 0 ? [] : [expect.objectContaining({ offset, length: 2, reason: "damaged" })];
      const byReference = readAll(again, attempt(0, reference));
      expect(byReference.text).toBe(text);
      expect(byReference.gaps).toEqual(gaps);
      expect(again.recover(JOB)).toHaveLength(1);
      const recovered = readAll(again, attempt(0));
      expect(recovered.text).toBe(text);
      // The last record is cut off with its damage: the worker sends it again.
      expect(recovered.gaps).toEqual(offset === 4 ? [] : gaps);
      again.close();
    }
  });

  it("a job that is appended to without recovery begins a new segment", () => {
    const directory = scratch();
    const output = new OutputSegments(directory);
    output.append([chunk(0, 0, "whole")]);
    output.close();
    fs.appendFileSync(join(directory, "7/0.seg"), "half a rec");
    const again = new OutputSegments(directory);
    again.append([chunk(1, 0, "new")]);
    expect(fs.readdirSync(join(directory, "7")).sort()).toEqual(["0.seg", "1.seg"]);
    expect(readAll(again, attempt(1)).text).toBe("new");
  });

  it("agrees with a simple model, whatever is sent, cut and sent again", () => {
    const root = scratch();
    const task = fc.record({
      index: fc.nat(2),
      from: fc.nat(80),
      length: fc.integer({ min: 1, max: 30 }),
      err: fc.boolean(),
    });
    const step = fc.oneof(
      {
        weight: 5,
        arbitrary: fc.record({ kind: fc.constant("append" as const), tasks: fc.array(task, { maxLength: 5 }) }),
      },
      { weight: 1, arbitrary: fc.record({ kind: fc.constant("crash" as const), cut: fc.nat(40) }) },
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 15 }), fc.integer({ min: 60, max: 300 }), (steps, segmentBytes) => {
        const directory = fs.mkdtempSync(join(root, "run-"));
        // The byte at an offset is known, so what is read can be told from what is not there.
        const content = (index: number, from: number, length: number): string =>
          Array.from({ length }, (_, at) => String.fromCharCode(97 + ((index * 7 + from + at) % 26))).join("");
        let output = new OutputSegments(directory, { segmentBytes, openFiles: 2 });
        const stored = [new Set<number>(), new Set<number>(), new Set<number>()];
        for (const one of steps) {
          if (one.kind === "append") {
            const chunks: OutputChunk[] = [];
            const ends = stored.map((offsets) => Math.max(-1, ...offsets) + 1);
            for (const { index, from, length, err } of one.tasks) {
              chunks.push(chunk(index, from, content(index, from, length), err ? "stderr" : "stdout"));
              for (let at = Math.max(from, ends[index] ?? 0); at < from + length; at++) stored[index]?.add(at);
              ends[index] = Math.max(ends[index] ?? 0, from + length);
            }
            output.append(chunks);
          } else {
            output.close();
            const segments = fs.existsSync(join(directory, "7")) ? fs.readdirSync(join(directory, "7")) : [];
            const last = segments.sort((a, b) => Number.parseInt(a, 10) - Number.parseInt(b, 10)).at(-1);
            if (last !== undefined) {
              const path = join(directory, "7", last);
              fs.truncateSync(path, Math.max(0, fs.statSync(path).size - one.cut));
            }
            output = new OutputSegments(directory, { segmentBytes, openFiles: 2 });
            output.recover(JOB);
            for (const [index, offsets] of stored.entries()) {
              const end = output.storedEnd(JOB, index, 1);
              for (const offset of offsets) if (offset >= end) offsets.delete(offset);
            }
          }
          for (const [index, offsets] of stored.entries()) {
            const { pieces, gaps } = readAll(output, attempt(index), 17);
            const found = pieces.flatMap(({ offset, bytes }) => Array.from(bytes, (_, at) => offset + at));
            expect(found).toEqual([...offsets].sort((a, b) => a - b));
            for (const { offset, bytes } of pieces)
              expect(Buffer.from(bytes).toString()).toBe(content(index, offset, bytes.length));
            expect(gaps.every(({ reason }) => reason === "not stored")).toBe(true);
          }
        }
        output.close();
        fs.rmSync(directory, { recursive: true });
      }),
      { numRuns: 150 },
    );
  });
});
