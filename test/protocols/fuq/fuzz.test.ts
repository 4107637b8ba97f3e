/** Whatever comes: a message, a reason, or the end of the stream; nothing is thrown, and little is kept. */
import fc from "fast-check";
import { expect, it } from "vitest";
import { LaboroError } from "../../../src/base/errors.js";
import {
  decodeMessage,
  encodeMessage,
  Framer,
  MESSAGE_LIMIT,
  STREAM_LAYOUT,
} from "../../../src/protocols/fuq/codec.js";

import type { Message, Task } from "../../../src/protocols/fuq/messages.js";
import { scaled } from "../../support/scale.js";

const count = fc.integer({ min: 0, max: 0xffff });
const seq = fc.integer({ min: 0, max: 0xffff_ffff });
const integer = fc.oneof(fc.integer(), fc.maxSafeInteger());
const text = fc.oneof(fc.string({ unit: "grapheme", maxLength: 40 }), fc.string({ minLength: 30, maxLength: 300 }));
const task: fc.Arbitrary<Task> = fc.record({
  task: integer,
  job: fc.record({
    jobId: integer,
    name: text,
    numTasks: integer,
    workingDir: text,
    loggingDir: text,
    command: text,
    status: integer,
  }),
});
const message: fc.Arbitrary<Message> = fc.oneof(
  fc.record({ type: fc.constant("OK" as const), nproc: count, nrun: count, seq }),
  fc.record({
    type: fc.constant("HELLO" as const),
    hello: fc.record({ numProcs: count, running: fc.option(fc.array(task, { maxLength: 20 })) }),
    seq,
  }),
  fc.record({ type: fc.constant("JOB" as const), tasks: fc.array(task, { maxLength: 20 }), seq }),
  fc.record({
    type: fc.constant("UPDATE" as const),
    update: fc.record({
      jobId: integer,
      task: integer,
      success: fc.boolean(),
      status: text,
      newJob: fc.option(fc.record({ numProc: integer })),
    }),
    seq,
  }),
  fc.record({
    type: fc.constant("CANCEL" as const),
    pairs: fc.array(fc.record({ jobId: integer, task: integer }), { maxLength: 20 }),
    seq,
  }),
  fc.record({ type: fc.constant("STOP" as const), count: seq, seq }),
  fc.record({ type: fc.constant("ERROR" as const), code: fc.integer({ min: 0, max: 255 }), arg0: seq, seq }),
  fc.record({ type: fc.constant("RESET" as const), lastReply: seq, seq }),
);

it("what is written is read back", () => {
  fc.assert(
    fc.property(message, (one) => {
      expect(decodeMessage(encodeMessage(one))).toEqual(one);
    }),
    { numRuns: 500 },
  );
});

const mutation = fc.record({
  at: fc.nat(100_000),
  kind: fc.constantFrom("set", "insert", "remove", "cut" as const),
  byte: fc.integer({ min: 0, max: 255 }),
});

it("damaged messages are read or refused, with a reason", () => {
  let read = 0;
  let refused = 0;
  fc.assert(
    fc.property(message, fc.array(mutation, { minLength: 1, maxLength: 4 }), (one, mutations) => {
      let bytes = [...encodeMessage(one)];
      for (const { at, kind, byte } of mutations) {
        const position = at % (bytes.length + 1);
        if (kind === "set") bytes[position] = byte;
        else if (kind === "insert") bytes.splice(position, 0, byte);
        else if (kind === "remove") bytes.splice(position, 1);
        else bytes = bytes.slice(0, position);
      }
      try {
        const found = decodeMessage(Buffer.from(bytes));
        if (found.type === "?") {
          refused++;
          expect(found.why.length).toBeGreaterThan(5);
        } else {
          read++;
        }
      } catch (cause) {
        refused++;
        if (!(cause instanceof LaboroError)) throw cause;
        expect(cause.code).toBe("LABORO_BAD_MESSAGE");
      }
    }),
    { numRuns: scaled(3_000) },
  );
  expect(read).toBeGreaterThan(500);
  expect(refused).toBeGreaterThan(500);
});

it("streams of anything at all end in a reason, or go on", () => {
  fc.assert(
    fc.property(fc.array(fc.uint8Array({ maxLength: 200 }), { maxLength: 10 }), message, (chunks, good) => {
      const framer = new Framer(STREAM_LAYOUT, MESSAGE_LIMIT);
      expect(framer.push(encodeMessage(good)).messages).toHaveLength(1);
      for (const chunk of chunks) {
        const { messages, failure } = framer.push(Buffer.from(chunk));
        for (const bytes of messages) decodeMessage(bytes);
        if (failure !== undefined) expect(failure.code).toBe("LABORO_BAD_MESSAGE");
      }
      expect(framer.pending).toBeLessThanOrEqual(2_100);
    }),
    { numRuns: scaled(1_000) },
  );
});

it("a payload of nothing but beginnings costs no more than it is long", () => {
  for (const token of [0x81, 0x91, 0xde, 0xdc, 0xdd, 0xdf, 0x9f, 0x8f, 0xc7, 0xd9]) {
    for (const type of [2, 3, 4, 5]) {
      const bytes = Buffer.alloc(1_000_016, token);
      bytes.write("47c0", "hex");
      bytes[2] = type;
      bytes.writeUInt32LE(1_000_000, 12);
      expect(decodeMessage(bytes).type).toBe("?");
    }
  }
});
