import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  contains,
  countOf,
  difference,
  intersection,
  normalize,
  type Range,
  rangesOf,
  union,
} from "../../src/model/ranges.js";

const range = fc.tuple(fc.nat(60), fc.nat(8)).map(([first, length]): Range => ({ first, last: first + length }));
const ranges = fc.array(range, { maxLength: 12 });

const members = (list: readonly Range[]): Set<number> => {
  const found = new Set<number>();
  for (const { first, last } of list) for (let index = first; index <= last; index++) found.add(index);
  return found;
};
const sorted = (set: Iterable<number>): number[] => [...set].sort((a, b) => a - b);

describe("ranges, held against plain sets", () => {
  it("normalize keeps the members and leaves nothing to merge", () => {
    fc.assert(
      fc.property(ranges, (list) => {
        const normal = normalize(list);
        expect(sorted(members(normal))).toEqual(sorted(members(list)));
        expect(countOf(normal)).toBe(members(list).size);
        normal.slice(1).forEach((one, i) => {
          expect(one.first).toBeGreaterThan((normal[i]?.last ?? 0) + 1);
        });
      }),
    );
  });

  it("union, within, without and contains agree with the sets", () => {
    fc.assert(
      fc.property(ranges, ranges, range, (a, b, one) => {
        const [left, right] = [normalize(a), normalize(b)];
        const set = members(left);
        expect(sorted(members(union(left, right)))).toEqual(sorted(new Set([...set, ...members(right)])));
        const asked = sorted(members([one]));
        expect(sorted(members(intersection(one, left)))).toEqual(asked.filter((index) => set.has(index)));
        expect(sorted(members(difference(one, left)))).toEqual(asked.filter((index) => !set.has(index)));
        for (let index = 0; index < 70; index++) expect(contains(left, index)).toBe(set.has(index));
      }),
    );
  });

  it("rangesOf finds the runs among sorted indices", () => {
    fc.assert(
      fc.property(fc.uniqueArray(fc.nat(60)), (indices) => {
        const list = sorted(indices);
        const runs = rangesOf(list);
        expect(sorted(members(runs))).toEqual(list);
        expect(runs).toEqual(normalize(runs));
      }),
    );
  });

  it("an empty or reversed range has no members", () => {
    expect(normalize([{ first: 3, last: 2 }])).toEqual([]);
    expect(rangesOf([])).toEqual([]);
    expect(contains([], 0)).toBe(false);
  });
});
