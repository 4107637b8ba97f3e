/** Requests have a codec of their own. Whatever it writes or reads, the general codec writes and reads the same. */
import { deepStrictEqual } from "node:assert";
import fc from "fast-check";
import { expect, test } from "vitest";
import { decodeFrame, encodeFrame, encodeMessage, type Sender } from "../../../src/protocols/laboro/codec.js";
import { readRequests, requestSize } from "../../../src/protocols/laboro/codec-requests.js";
import type { LinkMessage } from "../../../src/protocols/laboro/messages.js";
import { scaled } from "../../support/scale.js";

const TYPES = { client: 41, brokerToWorker: 31, worker: 7, brokerToClient: 51 } as const;

const id = fc.oneof(fc.nat(300), fc.nat(70_000), fc.nat(2 ** 31 - 1), fc.maxSafeNat());
const service = fc.oneof(
  fc.constantFrom("echo", "a".repeat(31), "a".repeat(32), "naïve", "名"),
  fc.string({ minLength: 1 }),
);
const body = fc
  .oneof(fc.nat(300), fc.constantFrom(255, 256, 65_535, 65_536, 65_537))
  .map((size) => Buffer.alloc(size, size));
const deadline = fc.oneof(fc.nat(), fc.double({ min: 0, noNaN: true, noDefaultInfinity: true }), fc.maxSafeNat());
const noError = fc.constant({});
const error = fc.oneof(noError, noError, fc.constant({ error: "LABORO_DEADLINE" as const }));

const frame = fc.oneof(
  frameOf(
    "client",
    fc.record({ id, service, body, deadline, pool: fc.constantFrom("default", "other"), retry: fc.boolean() }),
    "REQUEST",
  ),
  frameOf(
    "client",
    fc.record({ id, service, body, deadline, pool: fc.constant("default"), retry: fc.constant(false) }),
    "REQUEST",
  ),
  frameOf("brokerToWorker", fc.record({ id, service, body, deadline }), "CALL"),
  frameOf(
    "worker",
    fc.tuple(fc.record({ id, body }), error).map(([one, failed]) => ({ ...one, ...failed })),
    "REPLY",
  ),
  frameOf(
    "brokerToClient",
    fc.tuple(fc.record({ id, body }), error).map(([one, failed]) => ({ ...one, ...failed })),
    "RESPONSE",
  ),
);

function frameOf(from: keyof typeof TYPES, fields: fc.Arbitrary<object>, type: LinkMessage["type"]) {
  const message = fields.map((one) => ({ type, ...one }) as LinkMessage);
  return fc.array(message, { minLength: 1, maxLength: 20 }).map((messages) => ({ from, messages }));
}

/** The general codec reads what is no Buffer. */
const general = (bytes: Uint8Array, from: Sender): unknown => outcome(new Uint8Array(bytes), from);
const own = (bytes: Uint8Array, from: Sender): unknown => outcome(Buffer.from(bytes), from);

function outcome(bytes: Uint8Array, from: Sender): unknown {
  try {
    return decodeFrame(bytes, from).map(withBuffers);
  } catch (cause) {
    return String(cause);
  }
}

/** Bytes are a Buffer where they were read from one. A mistake can make a message of another type, with bytes anywhere. */
function withBuffers(value: unknown): unknown {
  if (value instanceof Uint8Array) return Buffer.from(value);
  if (Array.isArray(value)) return value.map(withBuffers);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, withBuffers(one)]));
}

test("the bytes of a request are those of the general codec", () => {
  let short = 0;
  fc.assert(
    fc.property(frame, ({ messages }) => {
      short += messages.filter((message) => requestSize(message) > 0).length;
      const rows = messages.map((message) => Buffer.from(encodeMessage(message)));
      const head = messages.length < 16 ? [0x90 | messages.length] : [0xdc, 0, messages.length];
      expect(Buffer.compare(encodeFrame(messages), Buffer.concat([Buffer.from(head), ...rows]))).toBe(0);
    }),
    { numRuns: scaled(500) },
  );
  expect(short).toBeGreaterThan(scaled(500));
});

test("a frame of requests is read as by the general codec, also one with a mistake", () => {
  let read = 0;
  const mistake = fc.record({ at: fc.nat(40), byte: fc.option(fc.nat(255)), cut: fc.boolean() });
  fc.assert(
    fc.property(frame, mistake, ({ from, messages }, { at, byte, cut }) => {
      const bytes = Buffer.from(encodeFrame(messages));
      deepStrictEqual(own(bytes, from), general(bytes, from));
      if (readRequests(bytes, TYPES[from]) !== undefined) read++;
      if (byte !== null) bytes[at % bytes.length] = byte;
      const damaged = cut ? bytes.subarray(0, at % bytes.length) : bytes;
      deepStrictEqual(own(damaged, from), general(damaged, from));
    }),
    { numRuns: scaled(2_000) },
  );
  expect(read).toBeGreaterThan(scaled(100));
});
