import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { decodeFrame, encodeFrame, type Sender } from "../../../src/protocols/laboro/codec.js";
import type { LinkMessage } from "../../../src/protocols/laboro/messages.js";

interface Vector {
  readonly meaning: string;
  readonly from: Sender;
  readonly hex: string;
  readonly messages: readonly LinkMessage[];
}

/** In the file, bytes are `{ "$bytes": hex }`. */
const bytesAgain = (_key: string, value: unknown): unknown =>
  typeof value === "object" && value !== null && "$bytes" in value && typeof value.$bytes === "string"
    ? Buffer.from(value.$bytes, "hex")
    : value;

const file = new URL("../../fixtures/laboro-link-vectors.json", import.meta.url);
const vectors = JSON.parse(readFileSync(file, "utf8"), bytesAgain) as readonly Vector[];

describe("the bytes on the wire do not change", () => {
  test.each(vectors.map((vector) => [vector.meaning, vector] as const))("%s", (_meaning, vector) => {
    expect(Buffer.from(encodeFrame(vector.messages)).toString("hex")).toBe(vector.hex);
    expect(decodeFrame(Buffer.from(vector.hex, "hex"), vector.from)).toStrictEqual(vector.messages);
  });
});

test("every message of the link has a vector", () => {
  const seen = new Set(vectors.flatMap((vector) => vector.messages.map((message) => message.type)));
  expect(seen.size).toBe(41);
});
