import * as fs from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  type Damage,
  encodeRecords,
  RECORD_HEADER,
  type ScanOptions,
  scanRecords,
} from "../../src/base/files/records.js";

import { scratch } from "./scratch.js";

interface Scanned {
  readonly payloads: string[];
  readonly positions: number[];
  readonly damage: Damage[];
  readonly goodEnd: number;
}

function scan(path: string, options?: ScanOptions): Scanned {
  const fd = fs.openSync(path, "r");
  const payloads: string[] = [];
  const positions: number[] = [];
  const damage: Damage[] = [];
  const record = (at: number, payload: Buffer): boolean => {
    payloads.push(payload.toString("latin1"));
    positions.push(at);
    return true;
  };
  const { goodEnd } = scanRecords(fd, { record, damage: (one) => damage.push(one) }, options);
  fs.closeSync(fd);
  return { payloads, positions, damage, goodEnd };
}

const bytesOf = (...texts: string[]): Buffer[] => texts.map((text) => Buffer.from(text, "latin1"));
const THREE = ["first", "", "the third one"];

describe("records", () => {
  it("gives back what was written, with positions", () => {
    const path = join(scratch(), "file");
    fs.writeFileSync(path, encodeRecords(bytesOf(...THREE)));
    const found = scan(path);
    expect(found.payloads).toEqual(THREE);
    expect(found.positions).toEqual([0, 17, 29]);
    expect(found.damage).toEqual([]);
    expect(found.goodEnd).toBe(fs.statSync(path).size);
  });

  it("finds every record before a cut, at whatever byte the file is cut", () => {
    const path = join(scratch(), "file");
    const whole = encodeRecords(bytesOf(...THREE));
    const ends = [0, 17, 29, whole.length];
    for (let cut = 0; cut <= whole.length; cut++) {
      fs.writeFileSync(path, whole.subarray(0, cut));
      const complete = ends.filter((end) => end <= cut).length - 1;
      const goodEnd = ends[complete] ?? 0;
      const found = scan(path);
      expect(found.payloads).toEqual(THREE.slice(0, complete));
      expect(found.goodEnd).toBe(goodEnd);
      expect(found.damage).toEqual(cut === goodEnd ? [] : [{ at: goodEnd, bytes: cut - goodEnd, reason: "cut off" }]);
    }
  });

  it("loses only the record hit when any one bit of the file flips", () => {
    const path = join(scratch(), "file");
    const whole = encodeRecords(bytesOf(...THREE));
    const starts = [0, 17, 29];
    for (let bit = 0; bit < whole.length * 8; bit++) {
      const flipped = Buffer.from(whole);
      flipped[bit >> 3] = (flipped[bit >> 3] ?? 0) ^ (1 << (bit & 7));
      fs.writeFileSync(path, flipped);
      const hit = starts.findLastIndex((start) => start <= bit >> 3);
      const found = scan(path);
      expect(found.payloads).toEqual(THREE.filter((_, number) => number !== hit));
      expect(found.damage).toHaveLength(1);
      expect(found.damage[0]).toMatchObject({
        at: starts[hit],
        bytes: (starts[hit + 1] ?? whole.length) - (starts[hit] ?? 0),
      });
    }
  });

  it("passes over garbage, also garbage that looks like a header, and says how much it was", () => {
    const path = join(scratch(), "file");
    const [one, two] = [encodeRecords(bytesOf("one")), encodeRecords(bytesOf("two"))];
    const lookalike = Buffer.from(one.subarray(0, 12));
    lookalike.writeUInt32LE(3_000_000_000, 4);
    const garbage = Buffer.concat([Buffer.alloc(300_000, 0xc5), lookalike, Buffer.alloc(7)]);
    fs.writeFileSync(path, Buffer.concat([one, garbage, two, Buffer.alloc(4096)]));
    const found = scan(path);
    expect(found.payloads).toEqual(["one", "two"]);
    expect(found.damage).toEqual([
      { at: one.length, bytes: garbage.length, reason: "no record" },
      { at: one.length + garbage.length + two.length, bytes: 4096, reason: "no record" },
    ]);
  });

  it("does not take a record inside the payload of a damaged one for a record of the file", () => {
    const path = join(scratch(), "file");
    const inner = encodeRecords(bytesOf("inner")).toString("latin1");
    const whole = encodeRecords(bytesOf("before", `x${inner}y`, "after"));
    whole[18 + RECORD_HEADER] = 0;
    fs.writeFileSync(path, whole);
    expect(scan(path).payloads).toEqual(["before", "after"]);
  });

  it("reads records larger than its window and keeps to the limit of a length", () => {
    const path = join(scratch(), "file");
    const large = "l".repeat(700_000);
    fs.writeFileSync(path, encodeRecords(bytesOf("a", large, "b")));
    expect(scan(path).payloads).toEqual(["a", large, "b"]);
    const limited = scan(path, { maxPayload: 1000 });
    expect(limited.payloads).toEqual(["a", "b"]);
    expect(limited.damage).toEqual([{ at: 13, bytes: 700_012, reason: "bad length" }]);
  });

  it("reads a part of a file only", () => {
    const path = join(scratch(), "file");
    fs.writeFileSync(path, encodeRecords(bytesOf("one", "two", "three")));
    expect(scan(path, { from: 15, to: 30 }).payloads).toEqual(["two"]);
  });

  it("never takes anything else for a record, whatever is overwritten", () => {
    const path = join(scratch(), "file");
    const texts = fc.array(fc.string({ unit: "binary-ascii", maxLength: 40 }), { minLength: 1, maxLength: 12 });
    const overwrites = fc.array(fc.tuple(fc.nat(600), fc.uint8Array({ minLength: 1, maxLength: 20 })), {
      maxLength: 3,
    });
    fc.assert(
      fc.property(texts, overwrites, fc.nat(700), (payloads, changes, cut) => {
        const whole = encodeRecords(bytesOf(...payloads));
        const file = Buffer.from(whole);
        for (const [at, bytes] of changes)
          file.set(bytes.subarray(0, Math.max(0, file.length - at)), Math.min(at, file.length));
        const kept = file.subarray(0, Math.min(cut, file.length));
        fs.writeFileSync(path, kept);
        const expected: string[] = [];
        let at = 0;
        for (const payload of payloads) {
          const end = at + RECORD_HEADER + payload.length;
          if (end <= kept.length && kept.subarray(at, end).equals(whole.subarray(at, end))) expected.push(payload);
          at = end;
        }
        const found = scan(path);
        expect(found.payloads).toEqual(expected);
        const covered = expected.reduce((sum, payload) => sum + RECORD_HEADER + payload.length, 0);
        expect(found.damage.reduce((sum, one) => sum + one.bytes, covered)).toBe(kept.length);
      }),
      { numRuns: 300 },
    );
  });
});

describe("encodeRecords", () => {
  it("writes magic, length, CRC-32 over length and payload, payload", () => {
    expect(encodeRecords([Buffer.from("123456789")]).toString("hex")).toBe(
      "c54c427209000000e2611ca5313233343536373839",
    );
  });
});
