import { describe, expect, it } from "vitest";
import { encodeMessage, Framer, MESSAGE_LIMIT, STREAM_LAYOUT } from "../../../src/protocols/fuq/codec.js";

import type { Message } from "../../../src/protocols/fuq/messages.js";

const MESSAGES: readonly Message[] = [
  { type: "OK", nproc: 2, nrun: 1, seq: 0 },
  { type: "UPDATE", update: { jobId: 1, task: 2, success: true, status: "done", newJob: null }, seq: 4 },
  { type: "STOP", count: 2, seq: 5 },
  { type: "HELLO", hello: { numProcs: 2, running: [] }, seq: 6 },
  { type: "HELLO", seq: 8 },
];
const BYTES = MESSAGES.map(encodeMessage);
const hex = (cuts: readonly Buffer[]): string[] => cuts.map((bytes) => bytes.toString("hex"));

describe("a stream of messages", () => {
  it("is the same however it is cut into chunks", () => {
    const stream = Buffer.concat(BYTES);
    for (const size of [1, 2, 3, 7, 15, 16, 17, 33, stream.length]) {
      const framer = new Framer(STREAM_LAYOUT, MESSAGE_LIMIT);
      const found: string[] = [];
      for (let at = 0; at < stream.length; at += size) {
        const { messages, failure } = framer.push(Buffer.from(stream.subarray(at, at + size)));
        expect(failure).toBeUndefined();
        found.push(...hex(messages));
      }
      expect(found).toEqual(hex(BYTES));
      expect(framer.pending).toBe(0);
    }
  });

  it("gives what came before the fault, and then nothing more", () => {
    const framer = new Framer(STREAM_LAYOUT, MESSAGE_LIMIT);
    const good = Buffer.concat(BYTES.slice(0, 2));
    const { messages, failure } = framer.push(Buffer.concat([good, Buffer.from("GET / HTTP/1.1\r\n\r\n")]));
    expect(hex(messages)).toEqual(hex(BYTES.slice(0, 2)));
    expect(failure?.code).toBe("LABORO_BAD_MESSAGE");
    expect(framer.push(good)).toEqual({ messages: [], failure });
  });

  it("is refused at a type that nobody can tell the length of", () => {
    for (const type of [0, 6, 10, 255]) {
      const bytes = Buffer.from(BYTES[0] as Buffer);
      bytes[2] = type;
      expect(new Framer(STREAM_LAYOUT, MESSAGE_LIMIT).push(bytes).failure?.message).toMatch(
        `${type} is not a message type`,
      );
    }
  });
});

describe("a length", () => {
  const claiming = (length: number): Buffer => {
    const bytes = Buffer.from(BYTES[4] as Buffer);
    bytes.writeUInt32LE(length, 12);
    return bytes;
  };

  it("past the limit is refused with the header alone", () => {
    const framer = new Framer(STREAM_LAYOUT, 1_000);
    expect(framer.push(claiming(985)).failure?.message).toMatch(/claims 1001 bytes, the limit is 1000/);
    expect(new Framer(STREAM_LAYOUT, 1_000).push(claiming(984)).failure).toBeUndefined();
    expect(new Framer(STREAM_LAYOUT, MESSAGE_LIMIT).push(claiming(0xffff_ffff)).failure).toBeDefined();
  });

  it("within the limit costs what has come, not what is claimed", () => {
    const before = process.memoryUsage().arrayBuffers;
    const framers = Array.from({ length: 200 }, () => {
      const framer = new Framer(STREAM_LAYOUT, MESSAGE_LIMIT);
      framer.push(claiming(MESSAGE_LIMIT - 16));
      for (let i = 0; i < 100; i++) framer.push(Buffer.from([0x80]));
      return framer;
    });
    expect(framers.every(({ pending }) => pending === 116)).toBe(true);
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(20 * 1024 * 1024);
  });
});
