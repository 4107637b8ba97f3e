import fc from "fast-check";
import { expect, test } from "vitest";
import { LaboroError } from "../../../src/base/errors.js";
import { decodeFrame, encodeFrame, type Sender } from "../../../src/protocols/laboro/codec.js";
import type { LinkMessage } from "../../../src/protocols/laboro/messages.js";
import { scaled } from "../../support/scale.js";
import { fromClient, fromWorker, toClient, toWorker } from "./codec-arbitraries.js";

const SENDERS: readonly Sender[] = ["worker", "client", "caller", "broker", "brokerToWorker", "brokerToClient"];

/** A list of messages that can be sent on, or LABORO_BAD_MESSAGE. */
function decodesOrRefuses(bytes: Uint8Array, from: Sender): boolean {
  let messages: LinkMessage[];
  try {
    messages = decodeFrame(bytes, from);
  } catch (error) {
    if (error instanceof LaboroError && error.code === "LABORO_BAD_MESSAGE" && error.message.length < 250) return false;
    throw error;
  }
  const frame = encodeFrame(messages);
  expect(Buffer.compare(encodeFrame(decodeFrame(frame, from)), frame)).toBe(0);
  return true;
}

test("random byte strings give messages or LABORO_BAD_MESSAGE", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 64 }), fc.constantFrom(...SENDERS), (bytes, from) => {
      decodesOrRefuses(bytes, from);
    }),
    { numRuns: scaled(5_000) },
  );
});

const frames = fc.oneof(
  fc.array(fromWorker, { minLength: 1, maxLength: 3 }).map((messages) => ["worker", messages] as const),
  fc.array(toWorker, { minLength: 1, maxLength: 3 }).map((messages) => ["brokerToWorker", messages] as const),
  fc.array(fromClient, { minLength: 1, maxLength: 3 }).map((messages) => ["client", messages] as const),
  fc.array(toClient, { minLength: 1, maxLength: 3 }).map((messages) => ["brokerToClient", messages] as const),
);
const mutation = fc.record({
  at: fc.nat(),
  kind: fc.constantFrom("set", "insert", "remove", "cut"),
  byte: fc.oneof(fc.nat(255), fc.constantFrom(0x90, 0x80, 0xa0, 0xc0, 0xc1, 0xcb, 0xcf, 0xd4, 0xdd, 0xdf, 0xff)),
});

test("mutated frames give messages or LABORO_BAD_MESSAGE, and both happen", () => {
  let accepted = 0;
  let refused = 0;
  fc.assert(
    fc.property(frames, fc.array(mutation, { minLength: 1, maxLength: 3 }), ([from, messages], mutations) => {
      let bytes = [...encodeFrame(messages)];
      for (const { at, kind, byte } of mutations) {
        const position = at % (bytes.length + 1);
        if (kind === "set") bytes[position] = byte;
        else if (kind === "insert") bytes.splice(position, 0, byte);
        else if (kind === "remove") bytes.splice(position, 1);
        else bytes = bytes.slice(0, position);
      }
      if (decodesOrRefuses(Buffer.from(bytes), from)) accepted++;
      else refused++;
    }),
    { numRuns: scaled(5_000) },
  );
  expect(accepted).toBeGreaterThan(scaled(75));
  expect(refused).toBeGreaterThan(scaled(75));
});
