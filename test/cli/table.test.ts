import { describe, expect, it } from "vitest";
import { formatCount, formatSize, shortDuration } from "../../src/base/format.js";
import { type Column, table } from "../../src/cli/lib/terminal/table.js";
import { detectTerminal, displayWidth, escapeControls } from "../../src/cli/lib/terminal/terminal.js";

const COLUMNS: readonly Column[] = [
  { title: "JOB", align: "right" },
  { title: "NAME", minWidth: 6 },
  { title: "STATE" },
  { title: "POOL", dropPriority: 1 },
  { title: "AGE", dropPriority: 2 },
];
const ROWS = [
  ["12", "a name that is rather long", "running", "big", "4s"],
  ["3", "short", "succeeded", "", "1h02m"],
];
const plain = { colour: false, unicode: true };

describe("a table", () => {
  it("has every column in full where nobody looks", () => {
    expect(table(COLUMNS, ROWS, plain)).toMatchInlineSnapshot(`
      [
        "JOB  NAME                        STATE      POOL  AGE",
        " 12  a name that is rather long  running    big   4s",
        "  3  short                       succeeded        1h02m",
      ]
    `);
  });

  it("keeps the end of what is told apart by its end", () => {
    const columns: readonly Column[] = [{ title: "WORKER", minWidth: 10, keepEnd: true }, { title: "STATE" }];
    const rows = [
      ["tcp://127.0.0.1:6714:1234", "ready"],
      ["tcp://127.0.0.1:6714:5678", "ready"],
    ];
    expect(table(columns, rows, { ...plain, width: 20 })).toEqual([
      "WORKER         STATE",
      "tcp://…4:1234  ready",
      "tcp://…4:5678  ready",
    ]);
  });

  it("cuts first, then leaves out, as the terminal gets narrower", () => {
    expect(table(COLUMNS, ROWS, { ...plain, width: 44 })).toMatchInlineSnapshot(`
      [
        "JOB  NAME             STATE      POOL  AGE",
        " 12  a name that is…  running    big   4s",
        "  3  short            succeeded        1h02m",
      ]
    `);
    expect(table(COLUMNS, ROWS, { ...plain, width: 30 })).toMatchInlineSnapshot(`
      [
        "JOB  NAME      STATE      POOL",
        " 12  a name …  running    big",
        "  3  short     succeeded",
      ]
    `);
    for (let width = 24; width < 80; width++) {
      for (const line of table(COLUMNS, ROWS, { ...plain, width }))
        expect(displayWidth(line)).toBeLessThanOrEqual(width);
    }
  });

  it("cuts with ASCII signs where the locale has no others", () => {
    const lines = table(COLUMNS, ROWS, { colour: false, unicode: false, width: 30 });
    expect(lines.join("\n")).toMatch(/^[\n -~]*$/);
    expect(lines[1]).toContain("..");
  });

  it("leaves out a column that says nothing", () => {
    expect(table(COLUMNS, [["1", "x", "running", "", ""]], plain)[0]).toBe("JOB  NAME  STATE");
  });

  it("shows no control characters, and knows that some letters are wide", () => {
    const [, row] = table([{ title: "NAME" }, { title: "X" }], [["\u001b[31m仕事\n", "1"]], plain);
    expect(row).toBe("\\x1b[31m仕事\\n  1");
    expect(displayWidth("仕事")).toBe(4);
    expect(displayWidth("e\u0301")).toBe(1);
    expect(escapeControls("a\u202eb")).toBe("a\\u202eb");
  });

  it("has colours only where they are wanted", () => {
    const tty = { isTTY: true, columns: 100 };
    expect(detectTerminal(tty, { LANG: "en_US.UTF-8" })).toEqual({ width: 100, colour: true, unicode: true });
    expect(detectTerminal(tty, { NO_COLOR: "1", LC_ALL: "C", LANG: "en_US.UTF-8", COLUMNS: "40" })).toEqual({
      width: 40,
      colour: false,
      unicode: false,
    });
    expect(detectTerminal({ isTTY: false }, { COLUMNS: "40" })).toEqual({ colour: false, unicode: false });
  });
});

describe("figures", () => {
  it("are short enough to read at a glance", () => {
    const times = [0, 340, 4_250, 42_000, 190_000, 3_600_000, 7_500_000, 100 * 3_600_000];
    expect(times.map(shortDuration)).toEqual(["0ms", "340ms", "4.2s", "42s", "3m10s", "1h", "2h05m", "4d04h"]);
    expect([0, 900, 1_500, 1_500_000, 2 ** 40].map(formatSize)).toEqual([
      "0 B",
      "900 B",
      "1.5 KiB",
      "1.4 MiB",
      "1.0 TiB",
    ]);
    expect([0, 999, 1_000, 1_234_567].map(formatCount)).toEqual(["0", "999", "1_000", "1_234_567"]);
  });
});
