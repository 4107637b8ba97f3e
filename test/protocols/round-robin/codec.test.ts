import { readFileSync } from "node:fs";
import { deflateSync } from "node:zlib";
import * as fc from "fast-check";
import { expect, describe as group, it } from "vitest";
import { CommandServices, OTHER_SERVICE } from "../../../src/protocols/round-robin/broker/services.js";
import {
  decoder,
  describeMessage,
  makeMessage,
  makePacket,
  readMessage,
  readNumber,
  readPacket,
} from "../../../src/protocols/round-robin/frames.js";
import {
  packetsOf,
  StreamReader,
  StreamSources,
  testData,
  testDataError,
} from "../../../src/protocols/round-robin/stream.js";

interface Recorded {
  readonly kind: string;
  readonly frames: readonly string[];
}

const recorded: Recorded[] = readFileSync(new URL("../../fixtures/round-robin/frames.jsonl", import.meta.url), "utf8")
  .split("\n")
  .filter((line) => line !== "")
  .map((line) => JSON.parse(line) as Recorded);

const framesOf = ({ frames }: Recorded): Buffer[] => frames.map((frame) => Buffer.from(frame, "hex"));

group("recorded messages", () => {
  it("are all read, and made again byte for byte", () => {
    expect(recorded.length).toBeGreaterThan(200);
    for (const one of recorded) {
      const frames = framesOf(one);
      const message = readMessage(frames);
      if (typeof message === "string") throw new Error(`${message}: ${JSON.stringify(one)}`);
      expect(makeMessage(message).map((frame) => Buffer.from(frame))).toEqual(frames);
    }
  });

  it("are decoded by the names under which they were recorded", () => {
    const decode = decoder();
    for (const one of recorded) {
      const [{ name, note } = { name: "" }] = decode.push("", framesOf(one));
      expect([name.replace("STREAM", "RR_STREAM"), note]).toEqual([one.kind, undefined]);
    }
    expect(decode.end()).toEqual([]);
  });

  it("show what a person wants to know", () => {
    const first = recorded.find(({ kind }) => kind === "TRACKEXEC REGISTER");
    expect(first && describeMessage(framesOf(first)).fields).toEqual({
      to: ["tcp://127.0.0.1:6714"],
      id: "00000000",
      args: ["10"],
    });
    const packet = recorded.find(
      ({ kind, frames }) => kind === "RESPONSE" && frames.some((frame) => frame.startsWith("3052")),
    );
    expect(packet && describeMessage(framesOf(packet)).fields.args).toEqual([
      { packet: "more", packing: "raw", handle: "8877665544332211", bytes: 108 },
    ]);
  });
});

group("messages", () => {
  it("keep empty arguments, because the last empty frame ends them", () => {
    const frames = makeMessage({
      command: "TRACKEXEC",
      id: Buffer.from("i"),
      args: ["a", "", "b"].map((text) => Buffer.from(text)),
      returnPath: [Buffer.from("C")],
    }).map((frame) => Buffer.from(frame));
    const message = readMessage(frames);
    expect(typeof message === "object" && message.args.map(String)).toEqual(["a", "", "b"]);
    expect(typeof message === "object" && message.returnPath.map(String)).toEqual(["C"]);
  });

  it("of any frames are read or refused, never thrown at", () => {
    const part = fc.oneof(
      fc.constantFrom("", "LMQv100", "\u0001", "\u0004", "\u0006", "x"),
      fc.string({ maxLength: 5 }),
    );
    fc.assert(
      fc.property(fc.array(part, { maxLength: 12 }), (parts) => {
        const frames = parts.map((text) => Buffer.from(text, "latin1"));
        const message = readMessage(frames);
        if (typeof message === "string") expect(message.length).toBeGreaterThan(0);
        else expect(makeMessage(message).map((frame) => Buffer.from(frame))).toEqual(frames);
        expect(describeMessage(frames).name.length).toBeGreaterThan(0);
      }),
      { numRuns: 500 },
    );
  });

  it("have numbers in ASCII", () => {
    expect(readNumber(Buffer.from("10"), 100)).toBe(10);
    expect(readNumber(Buffer.from("10\0"), 100)).toBe(10);
    for (const bad of ["", "x", "-1", "1.5", "101", "1e1"]) expect(readNumber(Buffer.from(bad), 100)).toBeUndefined();
  });
});

group("commands as services", () => {
  it("have names that never mean two commands", () => {
    const services = new CommandServices({}, [], () => {});
    const names = ["\u0001", "\n", "foo", "0x01", "ping", "other", "mqs_more", "\u0000\u00ff", "a b"].map((command) =>
      services.serviceOf(Buffer.from(command, "latin1")),
    );
    expect(names.slice(0, 3)).toEqual(["rr.ping", "rr.stream", "rr.foo"]);
    expect(new Set(names).size).toBe(names.length);
    for (const name of names) expect(services.serviceOf(services.commandOf(name) ?? Buffer.alloc(0))).toBe(name);
  });

  it("are mapped as an operator wishes, and offered by round-robin workers where they begin with rr.", () => {
    const services = new CommandServices({ resize: "pictures", "0x0b": "rr.special", foo: "rr.foo" }, [], () => {});
    expect(services.serviceOf(Buffer.from("resize"))).toBe("pictures");
    expect(services.serviceOf(Buffer.from([0x0b]))).toBe("rr.special");
    expect(services.offered).toEqual(
      expect.arrayContaining(["rr.ping", "rr.stream", "rr.special", "rr.foo", "rr.other"]),
    );
    expect(services.offered).not.toContain("pictures");
  });

  it("are kept up to a number, whatever is sent", () => {
    let grown = 0;
    const services = new CommandServices({}, [], () => grown++);
    for (let i = 0; i < 2_000; i++) services.serviceOf(Buffer.from(`command${i}`));
    expect(services.serviceOf(Buffer.from("one more"))).toBe(OTHER_SERVICE);
    expect(services.serviceOf(Buffer.alloc(1_000, 65))).toBe(OTHER_SERVICE);
    expect(grown).toBeLessThan(300);
    expect(services.offered.length).toBeLessThan(300);
  });
});

group("streams", () => {
  it("go through packets and come out whole, raw or by zlib", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 40_000 }), fc.boolean(), (bytes, zlib) => {
        const reader = new StreamReader(1_000_000);
        const handle = Buffer.from("12345678");
        let got: Buffer | undefined;
        for (const packet of packetsOf(Buffer.from(bytes), handle, 8_192, zlib)) {
          expect(packet.length).toBeLessThanOrEqual(8_192);
          expect(got).toBeUndefined();
          const taken = reader.take(packet);
          if (taken instanceof Uint8Array) got = taken;
          else expect(taken.next).toEqual(handle);
        }
        expect(got).toEqual(Buffer.from(bytes));
      }),
      { numRuns: 50 },
    );
  });

  it("that were recorded with zlib are one zlib stream through all packets", () => {
    const data = testData(50_000);
    const packed = deflateSync(data);
    const reader = new StreamReader(1_000_000);
    const packet = (kind: "more" | "finished", part: Buffer) =>
      makePacket({ kind, zlib: true, handle: Buffer.alloc(8), data: part });
    reader.take(packet("more", packed.subarray(0, 40)));
    expect(reader.take(packet("finished", packed.subarray(40)))).toEqual(data);
  });

  it("are refused where they were aborted, are none, or too long", () => {
    const handle = Buffer.alloc(8);
    const packet = (kind: "more" | "abort" | "finished", data: Buffer, zlib = false) =>
      makePacket({ kind, zlib, handle, data });
    expect(() => new StreamReader(10).take(packet("abort", handle))).toThrow(/aborted/);
    expect(() => new StreamReader(10).take(Buffer.from("2X"))).toThrow(/not a packet/);
    expect(() => new StreamReader(10).take(undefined)).toThrow(/not a packet/);
    expect(() => new StreamReader(10).take(packet("finished", Buffer.alloc(11)))).toThrow(/more than 10/);
    const bomb = deflateSync(Buffer.alloc(1_000_000));
    expect(() => new StreamReader(10_000).take(packet("finished", bomb, true))).toThrow(/more than 10000/);
    expect(() => new StreamReader(100).take(packet("finished", Buffer.from("no zlib"), true))).toThrow(/not zlib/);
    expect(readPacket(Buffer.from("2R\u0007", "latin1"))).toBeUndefined();
  });

  it("of the test hold as many bytes of 01 as were asked for", () => {
    for (const size of [0, 1, 1024, 20_000]) expect(testDataError(testData(size), size)).toBeUndefined();
    const data = testData(1024);
    expect(testDataError(data, 1023)).toBeDefined();
    expect(testDataError(data.subarray(0, -1), 1024)).toBeDefined();
    data[data.length - 1] = 2;
    expect(testDataError(data, 1024)).toMatch(/other bytes/);
  });

  it("that nobody reads to the end are forgotten, unless their reader is ongoing", () => {
    let time = 0;
    const sources = new StreamSources(() => time);
    const host = Buffer.from("30:me");
    const handleOf = (packet: Buffer): Buffer => readPacket(packet)?.handle ?? Buffer.alloc(0);
    const first = handleOf(sources.begin(Buffer.alloc(20_000), host));
    expect(readPacket(sources.begin(Buffer.alloc(100), host))?.kind).toBe("finished");
    expect(sources.size).toBe(1);
    expect(sources.nextPacket(Buffer.from("another"), first)).toBeUndefined();
    expect(sources.keepAlive(Buffer.from("another"))).toBe(false);
    time = 50_000;
    expect(sources.keepAlive(host)).toBe(true);
    time = 100_000;
    sources.begin(Buffer.alloc(20_000), Buffer.from("other"));
    expect(readPacket(sources.nextPacket(host, first) ?? Buffer.alloc(0))?.kind).toBe("more");
    expect(readPacket(sources.nextPacket(host, first) ?? Buffer.alloc(0))?.kind).toBe("finished");
    expect(sources.nextPacket(host, first)).toBeUndefined();
    time = 200_000;
    sources.begin(Buffer.alloc(20_000), host);
    expect(sources.size).toBe(1);
  });
});
