/** Version 1, byte by byte as its text has it. */
import fc from "fast-check";
import { expect, it } from "vitest";
import { LaboroError } from "../../../src/base/errors.js";
import { decodeMessageV1, encodeMessageV1, Framer, STREAM_LAYOUT_V1 } from "../../../src/protocols/fuq/codec.js";

import type { MessageV1 } from "../../../src/protocols/fuq/messages.js";
import { scaled } from "../../support/scale.js";

const TASK = {
  task: 2,
  job: {
    jobId: 1,
    name: "two",
    numTasks: 2,
    workingDir: "/tmp",
    loggingDir: "/log",
    command: "/bin/true",
    status: 1,
  },
};
const UPDATE = { jobId: 1, task: 2, success: true, status: "done", newJob: null };

it("a header has 12 bytes: magic, type, padding, argument", () => {
  const bytes = (message: MessageV1): string => encodeMessageV1(message).toString("hex");
  expect(bytes({ type: "OK", nproc: 4 })).toBe("47c001000000000004000000");
  expect(bytes({ type: "STOP", count: 0xffff_ffff })).toBe("47c0070000000000ffffffff");
  expect(bytes({ type: "ERROR", code: 5 })).toBe("47c008000000000005000000");
  expect(bytes({ type: "UPDATE", update: UPDATE })).toMatch(/^47c00400000000002b00000085a54a6f62496401/);
  expect(bytes({ type: "JOB", task: TASK })).toMatch(/^47c0030000000000[0-9a-f]{2}00000082a45461736b02ae/);
});

it("what is written is read back, from a stream as from a message", () => {
  const messages: MessageV1[] = [
    { type: "OK", nproc: 0 },
    { type: "JOB", task: TASK },
    { type: "UPDATE", update: UPDATE },
    { type: "STOP", count: 1 },
    { type: "ERROR", code: 77 },
  ];
  const framer = new Framer(STREAM_LAYOUT_V1, 10_000);
  const stream = Buffer.concat(messages.map(encodeMessageV1));
  const cuts = [...stream].flatMap((byte) => framer.push(Buffer.from([byte])).messages);
  expect(cuts.map((bytes) => decodeMessageV1(bytes))).toEqual(messages);
});

it("types of version 2 are none of its own, and lengths have a limit", () => {
  for (const type of [0, 2, 5, 6, 9, 258]) {
    const bytes = encodeMessageV1({ type: "OK", nproc: 1 });
    bytes.writeUInt16LE(type, 2);
    expect(() => decodeMessageV1(bytes)).toThrow(`${type} is not a message type`);
    expect(new Framer(STREAM_LAYOUT_V1, 1_000).push(bytes).failure?.message).toMatch(`${type} is not a message type`);
  }
  const long = encodeMessageV1({ type: "JOB", task: TASK }).subarray(0, 12);
  long.writeUInt32LE(0xffff_fff0, 8);
  expect(new Framer(STREAM_LAYOUT_V1, 1_000).push(long).failure?.message).toMatch(/the limit is 1000/);
});

it("damaged messages are read or refused", () => {
  const good = [encodeMessageV1({ type: "JOB", task: TASK }), encodeMessageV1({ type: "UPDATE", update: UPDATE })];
  const change = fc.tuple(fc.nat(200), fc.nat(255));
  fc.assert(
    fc.property(fc.constantFrom(...good), fc.array(change, { minLength: 1, maxLength: 4 }), (bytes, changes) => {
      const damaged = Buffer.from(bytes);
      for (const [at, byte] of changes) damaged[at % damaged.length] = byte;
      try {
        decodeMessageV1(damaged);
      } catch (cause) {
        if (!(cause instanceof LaboroError)) throw cause;
      }
    }),
    { numRuns: scaled(3_000) },
  );
});
