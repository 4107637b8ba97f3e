import { describe, expect, it } from "vitest";
import { formatRanges, parseJobSelector, parseSelector, parseTaskSelector } from "../../src/cli/lib/select-jobs.js";

describe("a selector", () => {
  it("names jobs by number, range, last and all", () => {
    expect(parseSelector("last")).toEqual({ jobs: { kind: "last" } });
    expect(parseSelector("all")).toEqual({ jobs: { kind: "all" } });
    expect(parseSelector("3")).toEqual({ jobs: { kind: "some", ids: [{ first: 3, last: 3 }] } });
    expect(parseSelector("7,1-4")).toEqual({
      jobs: {
        kind: "some",
        ids: [
          { first: 1, last: 4 },
          { first: 7, last: 7 },
        ],
      },
    });
    expect(parseSelector("1000-2000")).toEqual({ jobs: { kind: "some", ids: [{ first: 1000, last: 2000 }] } });
  });

  it("names tasks of one job", () => {
    expect(parseSelector("3.1-10,12").tasks).toEqual([
      { first: 1, last: 10 },
      { first: 12, last: 12 },
    ]);
    expect(parseSelector("last.0")).toEqual({ jobs: { kind: "last" }, tasks: [{ first: 0, last: 0 }] });
    expect(parseTaskSelector("3.12")).toMatchObject({ number: 12 });
    expect(parseTaskSelector("last")).toEqual({ job: { kind: "last" } });
  });

  it("is written back as it was meant", () => {
    expect(formatRanges(parseSelector("1.5,1-3,4,9").tasks ?? [])).toBe("5,1-3,4,9");
  });

  it.each([
    ["", "last, all, or numbers"],
    ["x", "last, all, or numbers"],
    ["0", "job numbers from 1"],
    ["4-1", "the smaller number first, 1-4"],
    ["7_3", "7.3 where Slurm has 7_3"],
    ["7_[3-9]", "7.3 where Slurm has 7_3"],
    ["-1", "last, all, or numbers"],
    ["1.", "JOB.TASKS"],
    ["1.2.3", "JOB.TASKS"],
    ["1-4.2", "tasks of one job"],
    ["all.1", "tasks of one job"],
    ["99999999999999999999", "smaller numbers"],
  ])("refuses %j and says what it expects", (text, expected) => {
    expect(() => parseSelector(text)).toThrow(expected);
  });

  it("of a whole job has no tasks, and of a task only one", () => {
    expect(() => parseJobSelector("3.1")).toThrow("a job without tasks");
    expect(() => parseTaskSelector("3.1-2")).toThrow("one task, as 3.12");
    expect(() => parseTaskSelector("all")).toThrow("one task, as 3.12");
  });
});
