import { describe, expect, it } from "vitest";
import { nearest, suggestion } from "../../src/cli/lib/suggest.js";

describe("a suggestion", () => {
  it("is the name that a slip of the finger leads away from", () => {
    expect(nearest("runing", ["running", "waiting"])).toEqual(["running"]);
    expect(nearest("noed17", ["node17", "node71"])).toEqual(["node17"]);
    expect(nearest("succ", ["succeeded", "failed"])).toEqual(["succeeded"]);
    expect(suggestion("w3", ["w1", "w2"])).toBe("; did you mean w1 or w2?");
  });

  it("is none where nothing is near", () => {
    expect(suggestion("abc", ["node17", "running"])).toBe("");
    expect(suggestion("abc", [])).toBe("");
  });
});
