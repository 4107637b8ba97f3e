import { describe, expect, it } from "vitest";
import { progressLine, usageReader } from "../../../src/cli/lib/batch/progress-bar.js";

const at = (succeeded: number, failed = 0) => ({ succeeded, failed, cancelled: 0 });

describe("the progress line", () => {
  it("says how far, how many failed, how fast, and how long still", () => {
    expect(progressLine(at(5, 1), 12, 0, 3_000, true, 12)).toBe("######------ 6/12  1 failed  2.0/s  3.0s left");
  });

  it("promises nothing before anything has ended, nor after everything has", () => {
    expect(progressLine(at(0), 4, 0, 500, true, 4)).toBe("---- 0/4");
    expect(progressLine(at(4), 4, 0, 2_000, false, 4)).toBe("████ 4/4  2.0/s");
  });

  it("does not take what an earlier run has done for speed", () => {
    expect(progressLine(at(11), 20, 10, 1_000, true, 4)).toBe("##-- 11/20  1.0/s  9.0s left");
  });
});

describe("the usage of a job that is watched", () => {
  it("is asked for again after ten times what the answer took", async () => {
    let now = 0;
    const asked: number[] = [];
    const usageOf = usageReader(
      async () => {
        asked.push(now);
        now += 300;
        return { tasks: asked.length, runMs: 0, cpuMs: 0, peakMemory: 0, firstStart: 0, durations: [] };
      },
      () => now,
    );
    const seen: number[] = [];
    for (; now < 9_000; now += 1_000) seen.push((await usageOf(1)).tasks);
    expect(asked).toEqual([0, 3_300, 6_600]);
    expect(seen).toEqual([1, 1, 1, 2, 2, 2, 3, 3, 3]);
  });
});
