import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { AnsiLines, type Style, type StyledLine, xtermColour } from "../../web/src/ansi.js";

const ESC = "\u001b";

function read(...texts: readonly string[]): AnsiLines {
  const lines = new AnsiLines();
  for (const text of texts) lines.feed(text);
  return lines;
}

const plain = (lines: readonly StyledLine[]): string[] => lines.map((line) => line.map(({ text }) => text).join(""));
/** The runs of the first line, as [text, style]. */
const runs = (...texts: readonly string[]): [string, Style][] =>
  (read(...texts).lines[0] ?? []).map(({ text, style }) => [text, style]);

describe("output as lines", () => {
  it("ends a line at a line feed, with or without a carriage return before it", () => {
    expect(plain(read("a\nb\r\nc").lines)).toEqual(["a", "b", "c"]);
    expect(plain(read("a\n\n").lines)).toEqual(["a", "", ""]);
  });

  it("writes over a line after a carriage return", () => {
    expect(plain(read("10%\r50%\r100%\ndone").lines)).toEqual(["100%", "done"]);
    expect(plain(read("10%", "\r", "50%").lines)).toEqual(["50%"]);
    expect(plain(read(`old text\r${ESC}[Knew`).lines)).toEqual(["new"]);
  });

  it("has colours and styles as SGR says, until they are reset", () => {
    expect(runs(`a${ESC}[31mb${ESC}[1mc${ESC}[0md`)).toEqual([
      ["a", {}],
      ["b", { colour: 1 }],
      ["c", { colour: 1, bold: true }],
      ["d", {}],
    ]);
    expect(runs(`${ESC}[1;4;97;44mx${ESC}[22;24;39;49my`)).toEqual([
      ["x", { bold: true, underline: true, colour: 15, background: 4 }],
      ["y", {}],
    ]);
    expect(runs(`${ESC}[mx`)).toEqual([["x", {}]]);
  });

  it("has the colours of xterm and those of 24 bits", () => {
    expect(runs(`${ESC}[38;5;208mx${ESC}[48;2;1;2;255my`)).toEqual([
      ["x", { colour: 208 }],
      ["y", { colour: 208, background: "#0102ff" }],
    ]);
    expect(runs(`${ESC}[38;5;999;48;2;300;0;0;1mx`)).toEqual([["x", { bold: true }]]);
    expect([xtermColour(16), xtermColour(231), xtermColour(196), xtermColour(232), xtermColour(255)]).toEqual([
      "#000000",
      "#ffffff",
      "#ff0000",
      "#080808",
      "#eeeeee",
    ]);
  });

  it("keeps a style over the end of a line, and over the end of a piece", () => {
    const { lines } = read(`${ESC}[3`, "2ma\nb");
    expect(lines.map((line) => line[0]?.style)).toEqual([{ colour: 2 }, { colour: 2 }]);
  });

  it("drops every other sequence, whatever is in it", () => {
    const link = `${ESC}]8;;javascript:alert(1)${ESC}\\click${ESC}]8;;\u0007`;
    expect(plain(read(`${ESC}[2J${ESC}[10;5Ha${link}${ESC}(B${ESC}[?25lb\u0007\u0000c`).lines)).toEqual(["aclickbc"]);
  });

  it("marks what came from the error stream", () => {
    const lines = new AnsiLines();
    lines.feed("out ");
    lines.feed("err", true);
    expect(lines.lines[0]).toEqual([
      { text: "out ", style: {} },
      { text: "err", style: { error: true } },
    ]);
  });

  it("keeps the last lines and says how many are gone; a line is cut where it is too long", () => {
    const lines = new AnsiLines(100);
    for (let at = 0; at < 1_000; at++) lines.feed(`${at}\n`);
    expect(lines.lines.length).toBeLessThanOrEqual(100);
    expect(lines.dropped + lines.lines.length).toBe(1_001);
    expect(plain(lines.lines)[0]).toBe(String(lines.dropped));
    const long = read("x".repeat(50_000), "y");
    expect(plain(long.lines)[0]?.length).toBe(20_001);
  });

  it("says from which line on it has changed", () => {
    const lines = read("a\nb\n");
    lines.changedFrom = 99;
    lines.feed("c");
    expect(lines.changedFrom).toBe(2);
    lines.changedFrom = 99;
    lines.note("left out");
    expect(lines.changedFrom).toBe(2);
    expect(plain(lines.lines)).toEqual(["a", "b", "c", "left out", ""]);
  });

  it("is the same however the text is cut into pieces, and never holds a control character", () => {
    const piece = fc.oneof(
      fc.string({ unit: "binary" }),
      fc.constantFrom(`${ESC}[`, "31", ";", "m", "\r", "\n", `${ESC}]`, "\u0007", "K", "text", `${ESC}[38;5;`),
    );
    fc.assert(
      fc.property(fc.array(piece), (pieces) => {
        const whole = read(pieces.join(""));
        expect(read(...pieces).lines).toEqual(whole.lines);
        const odd = [...plain(whole.lines).join("")].filter((one) => (one < " " && one !== "\t") || one === "\u007f");
        expect(odd).toEqual([]);
      }),
    );
  });
});
