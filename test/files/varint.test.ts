import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { encodeVarints, VarintReader, varintSize } from "../../src/base/files/records.js";

describe("varints", () => {
  it("give back every whole number up to 2^53 - 1", () => {
    fc.assert(
      fc.property(fc.array(fc.maxSafeNat()), (values) => {
        const bytes = encodeVarints(values);
        expect(bytes.length).toBe(values.reduce((sum, value) => sum + varintSize(value), 0));
        const reader = new VarintReader(bytes);
        expect(values.map(() => reader.next())).toEqual(values);
        expect(reader.done).toBe(true);
      }),
    );
  });

  it("refuse bytes that end too early or run too long", () => {
    const corrupt = expect.objectContaining({ code: "LABORO_DATA_CORRUPT" });
    expect(() => new VarintReader(Uint8Array.of(128)).next()).toThrow(corrupt);
    expect(() => new VarintReader(new Uint8Array(12).fill(255)).next()).toThrow(corrupt);
  });
});
