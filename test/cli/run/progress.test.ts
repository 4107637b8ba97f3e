import { describe, expect, it } from "vitest";
import { formatRemaining, progressLine } from "../../../src/cli/lib/batch/progress-bar.js";

const at = (succeeded: number, failed = 0) => ({ succeeded, failed, cancelled: 0 });

describe("the progress line", () => {
  it("says how far, how many failed, how fast, and how long still", () => {
    expect(progressLine(at(5, 1), 12, 0, 3_000, true, 12)).toBe("######------ 6/12  1 failed  2.0/s  3.0 s left");
  });

  it("promises nothing before anything has ended, nor after everything has", () => {
    expect(progressLine(at(0), 4, 0, 500, true, 4)).toBe("---- 0/4");
    expect(progressLine(at(4), 4, 0, 2_000, false, 4)).toBe("████ 4/4  2.0/s");
  });

  it("does not take what an earlier run has done for speed", () => {
    expect(progressLine(at(11), 20, 10, 1_000, true, 4)).toBe("##-- 11/20  1.0/s  9.0 s left");
  });

  it("writes lengths of time as people say them", () => {
    expect([400, 12_000, 200_000, 7_500_000].map(formatRemaining)).toEqual([
      "0.4 s",
      "12 s",
      "3 min 20 s",
      "2 h 5 min",
    ]);
  });
});
