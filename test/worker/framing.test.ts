import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { FRAMINGS, type FramingName } from "../../src/worker/programs/persistent-process.js";

const LIMIT = 1_000;

describe.each(["lines", "length"] as const satisfies readonly FramingName[])("messages as %s", (name) => {
  const framing = FRAMINGS[name];
  const forbidden = (byte: number): boolean => name === "lines" && (byte === 0x0a || byte === 0x0d);
  const message = fc
    .uint8Array({ maxLength: 50 })
    .map((bytes) => Buffer.from(bytes.filter((byte) => !forbidden(byte))));

  it("come out as they went in, however the bytes are cut", () => {
    fc.assert(
      fc.property(
        fc.array(message, { maxLength: 8 }),
        fc.infiniteStream(fc.integer({ min: 1, max: 9 })),
        (all, cuts) => {
          const bytes = Buffer.concat(all.map((one) => framing.encode(one)));
          const reader = framing.reader(LIMIT);
          const found: Buffer[] = [];
          for (let at = 0; at < bytes.length; ) {
            const size = cuts.next().value ?? 1;
            found.push(...reader.push(bytes.subarray(at, at + size)));
            at += size;
          }
          expect(found.map((one) => one.toString("hex"))).toEqual(all.map((one) => one.toString("hex")));
        },
      ),
    );
  });

  it("larger than the limit are refused before they are whole", () => {
    const large = { code: "LABORO_BODY_TOO_LARGE" };
    const reader = framing.reader(LIMIT);
    const bytes = framing.encode(Buffer.alloc(LIMIT + 1, "x"));
    expect(() => reader.push(Buffer.from(bytes.subarray(0, -1)))).toThrow(expect.objectContaining(large));
  });
});

describe("lines", () => {
  it("have no line break in them, but one at the end is no matter", () => {
    expect(() => FRAMINGS.lines.encode(Buffer.from("a\nb"))).toThrow(/several lines/);
    expect(Buffer.from(FRAMINGS.lines.encode(Buffer.from("a\n"))).toString()).toBe("a\n");
    expect(FRAMINGS.lines.reader(LIMIT).push(Buffer.from("a\r\n\nb\n"))).toEqual(
      ["a", "", "b"].map((text) => Buffer.from(text)),
    );
  });
});
