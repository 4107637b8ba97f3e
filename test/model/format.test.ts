import { describe, expect, it } from "vitest";
import { matchesGlob, shellWord } from "../../src/base/format.js";

describe("a glob", () => {
  it("matches the whole text: * is any text, ? one character, all others are themselves", () => {
    const matching = [
      ["a.csv", "*.csv"],
      ["", "*"],
      ["", ""],
      ["a*b", "a?b"],
      ["line\nbreak", "l*k"],
      ["aab", "*ab"],
      ["data/x.tar.gz", "*/*.*z"],
      ["[a]+", "[a]+"],
    ] as const;
    for (const [text, glob] of matching) expect([text, glob, matchesGlob(text, glob)]).toEqual([text, glob, true]);
    const others = [
      ["a.csv", "*.cs"],
      ["a.csv", "csv"],
      ["", "?"],
      ["ab", "a"],
      ["axc", "a.c"],
      ["A", "a"],
    ] as const;
    for (const [text, glob] of others) expect([text, glob, matchesGlob(text, glob)]).toEqual([text, glob, false]);
  });

  it("with many * takes no exponential time", () => {
    expect(matchesGlob("a".repeat(5_000), `${"*a".repeat(50)}b`)).toBe(false);
  });
});

describe("a word for the shell", () => {
  it("has quotes where it needs them; placeholders have none", () => {
    const words = ["a-b", "", "it's", "{}", "out/{/.}.txt", "{#}", "{a,b}", "$x", "a b", "{1..3}"];
    expect(words.map(shellWord)).toEqual([
      ...["a-b", "''", "'it'\\''s'", "{}", "out/{/.}.txt", "{#}", "'{a,b}'", "'$x'", "'a b'", "'{1..3}'"],
    ]);
  });
});
