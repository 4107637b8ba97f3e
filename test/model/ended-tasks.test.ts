import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { EndedTasks, RangeSet, rangesOf } from "../../src/model/ranges.js";

const sorted = (numbers: Iterable<number>): number[] => [...new Set(numbers)].sort((a, b) => a - b);

describe("a set of indices as ranges", () => {
  it("is the same as a set, in whatever order they are added", () => {
    const index = fc.nat({ max: 40 });
    fc.assert(
      fc.property(fc.array(index), fc.array(index), index, (first, more, from) => {
        const ranges = new RangeSet(rangesOf(sorted(first)));
        for (const one of more) ranges.add(one);
        const all = new Set([...first, ...more]);
        expect(ranges.ranges).toEqual(rangesOf(sorted(all)));
        let missing = from;
        while (all.has(missing)) missing++;
        expect(ranges.firstMissing(from)).toBe(missing);
        for (let at = 0; at <= 41; at++) expect(ranges.has(at)).toBe(all.has(at));
      }),
    );
  });
});

describe("the ends of tasks that are known", () => {
  it("do not include a later attempt of a task that was run again", () => {
    const ended = new EndedTasks([{ first: 0, last: 9 }]);
    expect(ended.has({ index: 3, attempt: 1 })).toBe(true);
    expect(ended.has({ index: 3, attempt: 2 })).toBe(false);
    ended.add({ index: 3, attempt: 2 });
    expect(ended.has({ index: 3, attempt: 2 })).toBe(true);
    expect(ended.has({ index: 3, attempt: 3 })).toBe(false);
    expect(ended.has({ index: 10, attempt: 1 })).toBe(false);
    expect([ended.firstMissing(0), ended.ranges]).toEqual([10, [{ first: 0, last: 9 }]]);
  });
});
