import { describe, expect, it } from "vitest";
import type { ScheduleTimes } from "../../src/model/schedule.js";
import { checkTimes, nextPoint, nextPoints } from "../../src/model/schedule-times.js";

const at = (text: string): number => Date.parse(text);
const points = (times: Partial<ScheduleTimes>, from: string, count: number): string[] =>
  nextPoints({ jitterMs: 0, ...times }, at(from), at(from), count).map((ms) =>
    new Date(ms).toISOString().replace(":00.000Z", "Z"),
  );
const PRAGUE = { timeZone: "Europe/Prague" };

describe("a cron expression", () => {
  it("is meant in its time zone, UTC if it has none", () => {
    expect(points({ cron: "0 3 * * *", ...PRAGUE }, "2026-11-18T10:00Z", 2)).toEqual([
      "2026-11-19T02:00Z",
      "2026-11-20T02:00Z",
    ]);
    expect(points({ cron: "0 3 * * *" }, "2026-11-18T10:00Z", 1)).toEqual(["2026-11-19T03:00Z"]);
  });

  it("may have seconds before its five fields, or be a word", () => {
    const ms = nextPoints({ cron: "*/20 * * * * *", jitterMs: 0 }, 0, at("2026-11-18T10:00:05Z"), 3);
    expect(ms.map((one) => new Date(one).toISOString().slice(14, 19))).toEqual(["00:20", "00:40", "01:00"]);
    expect(points({ cron: "@monthly" }, "2026-11-18T10:00Z", 1)).toEqual(["2026-12-01T00:00Z"]);
  });

  it("whose time does not exist in spring runs when the gap has passed", () => {
    expect(points({ cron: "30 2 * * *", ...PRAGUE }, "2026-03-28T12:00Z", 3)).toEqual([
      "2026-03-29T01:00Z",
      "2026-03-30T00:30Z",
      "2026-03-31T00:30Z",
    ]);
  });

  it("whose time comes twice in autumn runs once, the first time", () => {
    expect(points({ cron: "30 2 * * *", ...PRAGUE }, "2026-10-24T12:00Z", 2)).toEqual([
      "2026-10-25T00:30Z",
      "2026-10-26T01:30Z",
    ]);
  });

  it("that runs in every hour runs in the hour that comes twice, too, and never twice at one time in spring", () => {
    expect(points({ cron: "*/30 * * * *", ...PRAGUE }, "2026-10-24T23:59Z", 6)).toEqual([
      "2026-10-25T00:00Z",
      "2026-10-25T00:30Z",
      "2026-10-25T01:00Z",
      "2026-10-25T01:30Z",
      "2026-10-25T02:00Z",
      "2026-10-25T02:30Z",
    ]);
    expect(points({ cron: "*/30 * * * *", ...PRAGUE }, "2026-03-29T00:00Z", 4)).toEqual([
      "2026-03-29T00:30Z",
      "2026-03-29T01:00Z",
      "2026-03-29T01:30Z",
      "2026-03-29T02:00Z",
    ]);
  });

  it("gives the same times one by one as in a row, over both changes of a year", () => {
    const times = { cron: "15 */2 * * *", timeZone: "America/New_York", jitterMs: 0 };
    for (const day of ["2026-03-07T12:00Z", "2026-10-31T12:00Z"]) {
      let last = at(day);
      const single = Array.from({ length: 30 }, () => {
        last = nextPoint(times, 0, last) ?? 0;
        return last;
      });
      expect(single).toEqual(nextPoints(times, 0, at(day), 30));
      expect(single).toEqual([...new Set(single)].sort((a, b) => a - b));
    }
  });
});

describe("every N", () => {
  it("counts from where it began, and does not drift", () => {
    expect(points({ everyMs: 600_000 }, "2026-11-18T10:00Z", 2)).toEqual(["2026-11-18T10:10Z", "2026-11-18T10:20Z"]);
    const anchor = at("2026-11-18T10:00Z");
    expect(nextPoint({ everyMs: 600_000, jitterMs: 0 }, anchor, anchor + 600_001)).toBe(anchor + 1_200_000);
  });

  it("begins at its start, and is over at its end", () => {
    const times = { everyMs: 600_000, start: at("2026-12-24T18:00Z"), end: at("2026-12-24T18:10Z") };
    expect(points(times, "2026-11-18T10:03Z", 9)).toEqual(["2026-12-24T18:00Z", "2026-12-24T18:10Z"]);
  });
});

describe("start and end", () => {
  it("bound a cron expression, both included", () => {
    const times = { cron: "0 3 * * *", start: at("2026-11-20T03:00Z"), end: at("2026-11-21T03:00Z") };
    expect(points(times, "2026-11-18T10:00Z", 9)).toEqual(["2026-11-20T03:00Z", "2026-11-21T03:00Z"]);
  });
});

describe("what is wrong is refused with its name, its value and an example", () => {
  const refusal = (times: Partial<ScheduleTimes>): string => {
    try {
      checkTimes({ jitterMs: 0, ...times }, at("2026-11-18T10:00Z"));
    } catch (cause) {
      return String(cause).replace("LaboroError: ", "");
    }
    return "accepted";
  };

  it.each([
    [{ cron: "61 * * * *" }, /^cron "61 \* \* \* \*": .*such as 0 3 \* \* \*.*minute: 61/],
    [{ cron: "0 3 * *" }, /^cron "0 3 \* \*": expected five fields, or six with seconds first, such as/],
    [{ cron: "0 0 0 1 1 * 2027" }, /^cron .*five fields/],
    [{ cron: "2026-12-24T18:00" }, /^cron .*five fields/],
    [{ cron: "@reboot" }, /^cron "@reboot"/],
    [{ cron: "0 0 30 2 *" }, /^cron "0 0 30 2 \*": .*never/],
    [{ cron: "0 0 31 2,4,6,9,11 *" }, /^cron .*never/],
    [{ cron: "0 3 * * *", timeZone: "Europe/Prag" }, /^timeZone "Europe\/Prag": .*such as Europe\/Prague/],
    [{}, /^give either cron, such as "0 3 \* \* \*", or everyMs/],
    [{ cron: "0 3 * * *", everyMs: 1_000 }, /^give either cron/],
    [{ everyMs: 600_000, timeZone: "UTC" }, /^timeZone goes with cron only/],
    [{ everyMs: 10 }, /^everyMs "10ms": expected one second or more, such as 10m/],
    [{ everyMs: 600_000, jitterMs: 600_000 }, /^jitterMs "10m": expected less than the 10m between two runs/],
    [{ cron: "* * * * *", jitterMs: 60_000 }, /^jitterMs "1m": expected less than the 1m/],
    [{ cron: "0 3 * * *", end: 0 }, /^end "1970-01-01T00:00:00.000Z": expected a time after the first run/],
    [{ cron: "0 3 * * *", start: 2e12, end: 1.9e12 }, /^end .*after start/],
  ])("%j", (times, message) => {
    expect(refusal(times)).toMatch(message);
  });

  it("and what is right is accepted", () => {
    expect(refusal({ cron: "0 3 * * MON-FRI", timeZone: "America/New_York", jitterMs: 60_000 })).toBe("accepted");
    expect(refusal({ cron: "0 0 29 2 *" })).toBe("accepted");
  });
});
