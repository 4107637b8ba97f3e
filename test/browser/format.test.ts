import { describe, expect, it } from "vitest";
import { timesOfDay } from "../../web/src/format.js";

const at = (hours: number, minutes: number, seconds = 0): number =>
  new Date(2026, 10, 18, hours, minutes, seconds).getTime() / 1000;

describe("the labels of a time axis", () => {
  it("are hours and minutes where they lie a minute or more apart", () => {
    expect(timesOfDay([at(9, 5), at(9, 6), at(9, 7)])).toEqual(["09:05", "09:06", "09:07"]);
  });

  it("have seconds where they lie closer, so that none repeats", () => {
    expect(timesOfDay([at(9, 5), at(9, 5, 15), at(9, 5, 30)])).toEqual(["09:05:00", "09:05:15", "09:05:30"]);
  });

  it("are hours and minutes where there is only one, and none where there is none", () => {
    expect([timesOfDay([at(0, 0, 7)]), timesOfDay([])]).toEqual([["00:00"], []]);
  });
});
