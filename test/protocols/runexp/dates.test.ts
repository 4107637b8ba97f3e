import { execFileSync } from "node:child_process";
import { describe, expect, it } from "vitest";
import { longDate, shortDate } from "../../../src/protocols/runexp/res-text.js";

/** The system's own words for it. */
const date = (seconds: number, format: string): string =>
  execFileSync("date", ["-d", `@${seconds}`, format], {
    env: { ...process.env, LC_ALL: "C" },
    encoding: "utf8",
  }).trim();

describe("dates", () => {
  it.each([0, 1_794_770_113, 1_772_400_001, 1_785_542_399])(
    "of second %i are written as date(1) writes them",
    (second) => {
      expect(longDate(second * 1000 + 999)).toBe(date(second, "+%a %b %e %H:%M:%S %Z %Y"));
      expect(shortDate(second * 1000)).toBe(date(second, "+%b %d %T"));
    },
  );
});
