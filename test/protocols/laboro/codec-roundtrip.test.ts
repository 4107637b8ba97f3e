import { deepStrictEqual } from "node:assert";
import fc from "fast-check";
import { expect, test } from "vitest";
import { decodeFrame, encodeFrame, type Sender } from "../../../src/protocols/laboro/codec.js";
import type { LinkMessage } from "../../../src/protocols/laboro/messages.js";
import { fromClient, fromWorker, toClient, toWorker } from "./codec-arbitraries.js";

const DIRECTIONS: readonly [Sender, fc.Arbitrary<LinkMessage>][] = [
  ["worker", fromWorker],
  ["brokerToWorker", toWorker],
  ["client", fromClient],
  ["brokerToClient", toClient],
  ["broker", fc.oneof(toWorker, toClient)],
];

test.each(DIRECTIONS)("any message of a %s comes out of its frame as it went in", (from, message) => {
  fc.assert(
    fc.property(fc.array(message, { maxLength: 20 }), (messages) => {
      // A fresh copy, as from a socket.
      const frame = Buffer.from(encodeFrame(messages));
      // Not toStrictEqual: it takes a property named "constructor" for the type of its object.
      deepStrictEqual(decodeFrame(frame, from), messages);
    }),
    { numRuns: 600 },
  );
});

test("an input or value that is undefined stays undefined, and an undefined property is left out", () => {
  const ask = decodeFrame(encodeFrame([{ type: "OPERATION", id: 1, operation: "list", input: undefined }]), "client");
  expect(ask).toEqual([{ type: "OPERATION", id: 1, operation: "list", input: undefined }]);
  const answer = decodeFrame(encodeFrame([{ type: "RESULT", id: 1, value: { a: undefined, b: 1 } }]), "brokerToClient");
  expect(answer).toStrictEqual([{ type: "RESULT", id: 1, value: { b: 1 } }]);
});

test("bodies are views into the frame that was decoded", () => {
  const frame = Buffer.from(encodeFrame([{ type: "REPLY", id: 1, body: Buffer.alloc(1000, 7) }]));
  const [reply] = decodeFrame(frame, "worker");
  expect(reply?.type === "REPLY" && reply.body.buffer === frame.buffer).toBe(true);
});

test("what an encoded frame holds does not change when the message does, or when more is encoded", () => {
  const body = Buffer.from("before");
  const frame = encodeFrame([{ type: "REPLY", id: 1, body }]);
  body.fill(0);
  for (let i = 0; i < 1000; i++) encodeFrame([{ type: "REPLY", id: i, body: Buffer.alloc(50, i) }]);
  expect(decodeFrame(frame, "worker")).toStrictEqual([{ type: "REPLY", id: 1, body: Buffer.from("before") }]);
});
