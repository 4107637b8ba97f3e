import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { LaboroError } from "../../../src/base/errors.js";
import {
  encodeCommand,
  encodeGreeting,
  encodeMessage,
  FrameReader,
  type Incoming,
  makeCommand,
  makeProperties,
  pongTo,
  readCommand,
  readGreeting,
  readProperties,
} from "../../../src/protocols/zeromq/zmtp-codec.js";

const LIMITS = { frames: 100, messageBytes: 100_000 };

function readAll(bytes: Buffer, cuts: readonly number[], limits = LIMITS): Incoming[] {
  const reader = new FrameReader(limits);
  const found: Incoming[] = [];
  const ends = [...new Set(cuts.map((cut) => cut % (bytes.length + 1)))].sort((a, b) => a - b);
  let from = 0;
  for (const to of [...ends, bytes.length]) {
    reader.push(bytes.subarray(from, to), (incoming) => found.push(incoming));
    from = to;
  }
  return found;
}

describe("frames", () => {
  it("have one byte of length up to 255, eight from 256 on, and MORE on all but the last", () => {
    const small = encodeMessage([Buffer.from("ab"), Buffer.alloc(0)]);
    expect(small.toString("hex")).toBe("0102616200" + "00");
    const long = encodeMessage([Buffer.alloc(256, 7)]);
    expect(long.subarray(0, 9).toString("hex")).toBe("020000000000000100");
    expect(encodeCommand(Buffer.from("\u0004PING\0\0", "latin1")).toString("hex")).toBe("04070450494e470000");
  });

  it("come out as they went in, wherever the stream is cut", () => {
    const frame = fc.uint8Array({ maxLength: 600 }).map((bytes) => Buffer.from(bytes));
    const message = fc.array(frame, { minLength: 1, maxLength: 5 });
    fc.assert(
      fc.property(fc.array(message, { maxLength: 6 }), fc.array(fc.nat(), { maxLength: 20 }), (messages, cuts) => {
        const found = readAll(Buffer.concat(messages.map(encodeMessage)), cuts);
        expect(found).toEqual(messages.map((frames) => ({ kind: "message", frames })));
      }),
      { numRuns: 200 },
    );
  });

  it("of a message with too many are dropped, and the next message is read", () => {
    const many = Array.from({ length: 101 }, () => Buffer.from("x"));
    const bytes = Buffer.concat([encodeMessage(many), encodeMessage([Buffer.from("next")])]);
    expect(readAll(bytes, [3, 50, 150])).toEqual([
      { kind: "dropped", why: "a message of more than 100 frames", head: many.slice(0, 8) },
      { kind: "message", frames: [Buffer.from("next")] },
    ]);
  });

  it("of a message that is too large are dropped, and the next message is read", () => {
    const head = Buffer.from("head");
    const next = Buffer.from("next");
    for (const sizes of [[100_001], [60_000, 60_000, 5], [99_000, 500_000, 0, 700_000]]) {
      const large = encodeMessage([head, ...sizes.map((size) => Buffer.alloc(size, 1))]);
      const bytes = Buffer.concat([large, encodeCommand(Buffer.from("\u0001X")), encodeMessage([next])]);
      for (const cuts of [[], [5, 20, 100_020, 100_030], [large.length - 1, large.length, large.length + 1]]) {
        const [dropped, ...others] = readAll(bytes, cuts);
        expect(dropped).toMatchObject({ kind: "dropped", why: "a message of more than 100000 bytes" });
        expect(dropped?.kind === "dropped" && dropped.head[0]).toEqual(head);
        expect(others).toEqual([
          { kind: "command", body: Buffer.from("\u0001X") },
          { kind: "message", frames: [next] },
        ]);
      }
    }
  });

  it("are refused by their header where a message is larger still, and of a command where it is too large", () => {
    expect(() => readAll(Buffer.from("02ffffffffffffffff", "hex"), [])).toThrow(/bytes or more/);
    const parts = encodeMessage(Array.from({ length: 17 }, () => Buffer.alloc(99_000)));
    expect(() => readAll(parts, [])).toThrow(/bytes or more/);
    expect(() => readAll(encodeCommand(Buffer.alloc(100_001)), [])).toThrow(/bytes or more/);
  });

  it("with unknown flags are refused", () => {
    for (const flags of [5, 7, 8, 0x16, 0xff]) {
      expect(() => readAll(Buffer.from([flags, 0]), [])).toThrow(`flags ${flags}`);
    }
  });

  it("never make the reader throw anything but a coded error, whatever the bytes", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), fc.array(fc.nat(), { maxLength: 5 }), (bytes, cuts) => {
        try {
          readAll(Buffer.from(bytes), cuts);
        } catch (cause) {
          expect(cause).toHaveProperty("code", "LABORO_BAD_MESSAGE");
        }
      }),
    );
  });
});

describe("the greeting", () => {
  it("is read back, and waited for until it is whole", () => {
    const bytes = encodeGreeting();
    expect(bytes.length).toBe(64);
    for (let length = 0; length < 64; length++) expect(readGreeting(bytes.subarray(0, length))).toBeUndefined();
    expect(readGreeting(bytes)).toEqual({ minor: 1, mechanism: "NULL", isServer: false });
  });

  it("of another protocol is refused at the first byte that shows it", () => {
    expect(() => readGreeting(Buffer.from("G"))).toThrow(/not FF/);
    expect(() => readGreeting(Buffer.from("ff000000000000000100", "hex"))).toThrow(/7F/);
    expect(() => readGreeting(Buffer.from("ff00000000000000017f01", "hex"))).toThrow(/revision 1/);
  });
});

describe("commands", () => {
  it("carry properties, whose names are read without regard to case", () => {
    const made = makeCommand(
      "READY",
      makeProperties({ "Socket-Type": Buffer.from("DEALER"), Identity: Buffer.from("me") }),
    );
    const { name, body } = readCommand(made);
    expect(name).toBe("READY");
    const properties = readProperties(body);
    expect(properties.get("socket-type")?.toString()).toBe("DEALER");
    expect(properties.get("identity")?.toString()).toBe("me");
  });

  it("that are cut are refused", () => {
    const body = makeProperties({ Identity: Buffer.from("me") });
    for (let length = 1; length < body.length; length++) {
      expect(() => readProperties(body.subarray(0, length))).toThrow(LaboroError);
    }
    expect(() => readCommand(Buffer.alloc(0))).toThrow();
    expect(() => readCommand(Buffer.from([9, 65]))).toThrow();
  });

  it("PING is answered with its context, up to 16 bytes of it", () => {
    expect(pongTo(Buffer.from("\0\u000aabc", "latin1"))).toEqual(makeCommand("PONG", Buffer.from("abc")));
    expect(pongTo(Buffer.alloc(40)).length).toBe(5 + 16);
  });
});
