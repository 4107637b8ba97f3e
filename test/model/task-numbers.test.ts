import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  arrayFault,
  isRising,
  type Stride,
  type Strides,
  strideTotal,
  taskIndex,
  taskNumber,
  tasksNumbered,
  tasksText,
} from "../../src/model/task-numbers.js";
import { cpuMs } from "../support/cpu.js";

const TRUE = { kind: "command", argv: ["true"] } as const;
const stride: fc.Arbitrary<Stride> = fc
  .tuple(fc.nat(60), fc.nat(40), fc.integer({ min: 1, max: 9 }))
  .map(([first, length, step]) => ({ first, last: first + length, step }));
const expanded = (strides: Strides): number[] =>
  strides.flatMap(({ first, last, step }) => {
    const numbers: number[] = [];
    for (let number = first; number <= last; number += step) numbers.push(number);
    return numbers;
  });

describe("the numbers of tasks", () => {
  it("are 1 to count without an array, and there is no other", () => {
    const job = { count: 3, recipe: TRUE };
    expect([0, 1, 2].map((index) => taskNumber(job, index))).toEqual([1, 2, 3]);
    expect([0, 1, 3, 4].map((number) => taskIndex(job, number))).toEqual([undefined, 0, 2, undefined]);
  });

  it("are those of the array, or of the job where it has its own", () => {
    const array = [{ first: 5, last: 9, step: 2 }];
    expect(taskNumber({ recipe: { kind: "command", array } }, 1)).toBe(7);
    expect(taskNumber({ recipe: TRUE, numbers: [{ first: 7, last: 9, step: 1 }] }, 2)).toBe(9);
  });

  it("lead to the index and back, in any array", () => {
    const arrays = fc.array(stride, { minLength: 1, maxLength: 8 }).filter((one) => arrayFault(one) === undefined);
    fc.assert(
      fc.property(arrays, fc.nat(120), fc.nat(40), (array, first, length) => {
        const numbers = expanded(array);
        const job = { count: numbers.length, recipe: { array } };
        expect(strideTotal(array)).toBe(numbers.length);
        expect(numbers.map((_, index) => taskNumber(job, index))).toEqual(numbers);
        expect(numbers.map((number) => taskIndex(job, number))).toEqual([...numbers.keys()]);
        const last = first + length;
        const within = tasksNumbered(job, { first, last }).flatMap((range) =>
          Array.from({ length: range.last - range.first + 1 }, (_, at) => range.first + at),
        );
        expect(within).toEqual([...numbers.keys()].filter((index) => inRange(numbers[index], first, last)));
      }),
    );
  });

  it("of an array are a set: what is named twice is found, and nothing else", () => {
    fc.assert(
      fc.property(fc.array(stride, { maxLength: 4 }), (array) => {
        const numbers = expanded(array);
        const fault = arrayFault(array);
        if (fault === undefined) expect(new Set(numbers).size).toBe(numbers.length);
        else {
          const twice = Number(/^(\d+) is named twice$/.exec(fault)?.[1]);
          expect(numbers.filter((number) => number === twice).length).toBeGreaterThan(1);
        }
      }),
    );
    const [huge, other] = [1_000_000_007, 998_244_353];
    const last = Number.MAX_SAFE_INTEGER;
    const common = huge * 7;
    expect(
      arrayFault([
        { first: 0, last, step: huge },
        { first: common % other, last, step: other },
      ]),
    ).toBe(`${common} is named twice`);
  });

  it("are checked in little time, however the ranges lie", () => {
    const nested = Array.from({ length: 10_000 }, (_, i) => ({ first: i, last: 1e9 - i, step: 1e9 - 2 * i }));
    const side = Array.from({ length: 10_000 }, (_, i) => ({ first: 3 * i, last: 3 * i + 2, step: 2 }));
    const began = cpuMs();
    expect(arrayFault(nested)).toContain("ranges overlap");
    expect(arrayFault(side)).toBeUndefined();
    expect(cpuMs() - began).toBeLessThan(2_000);
  });

  it("rise or do not", () => {
    const step = 1;
    expect(isRising([])).toBe(true);
    const apart = [
      { first: 1, last: 3, step },
      { first: 5, last: 5, step },
    ];
    expect([isRising(apart), isRising([...apart].reverse())]).toEqual([true, false]);
    expect(isRising([...apart, { first: 5, last: 9, step }])).toBe(false);
  });

  it.each<[text: string, array: Strides]>([
    ["tasks 5, 7, 9", [{ first: 5, last: 10, step: 2 }]],
    ["tasks 1 to 8", [{ first: 1, last: 8, step: 1 }]],
    ["task 4 only", [{ first: 4, last: 4, step: 1 }]],
    [
      "tasks 0 to 99 in steps of 3, 200, 201",
      [
        { first: 0, last: 100, step: 3 },
        { first: 200, last: 201, step: 1 },
      ],
    ],
    [
      "tasks 0, 2, 4, 6, 8, 10, 12, 14 and 2 more",
      Array.from({ length: 10 }, (_, i) => ({ first: 2 * i, last: 2 * i, step: 1 })),
    ],
  ])("are said in words: %s", (text, array) => {
    expect(tasksText({ count: strideTotal(array), recipe: { array } })).toBe(text);
  });
});

const inRange = (number = -1, first: number, last: number): boolean => number >= first && number <= last;
