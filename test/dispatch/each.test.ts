import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { rangesOf } from "../../src/model/ranges.js";
import { scaled } from "../support/scale.js";
import { Workbench } from "./workbench.js";

const one = (index: number) => [{ first: index, last: index }];

describe("tasks that come after the tasks of another job, one by one", () => {
  it("start each when its own has succeeded, and are cancelled when it has not", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 10 });
    const first = broker.submit({ count: 4, held: true });
    const second = broker.submit({ count: 4, after: [{ job: first, each: true }] });
    expect(broker.at("a")).toEqual([]);
    expect(broker.why(`${second}.2`)).toBe(`it waits for the task in place 3 of job ${first}`);
    broker.eachEnded(first, { succeeded: one(2), failed: [], final: false });
    expect(broker.at("a")).toEqual([`${second}.2`]);
    broker.eachEnded(first, { succeeded: one(0), failed: one(1), final: false });
    expect(broker.at("a").sort()).toEqual([`${second}.0`, `${second}.2`]);
    expect(broker.job(second).counters.cancelled).toBe(1);
    broker.finish("a");
    broker.eachEnded(first, { succeeded: [], failed: [], final: true });
    expect(broker.job(second)).toMatchObject({
      counters: { succeeded: 2, cancelled: 2 },
      ended: { state: "cancelled" },
    });
  });

  it("wait for all that they come after", () => {
    const broker = new Workbench();
    broker.join("a", { slots: 10 });
    const [first, other] = [broker.submit({ count: 2, held: true }), broker.submit({ count: 2, held: true })];
    const job = broker.submit({ count: 2, after: [first, other].map((job) => ({ job, each: true as const })) });
    broker.eachEnded(first, { succeeded: [{ first: 0, last: 1 }], failed: [], final: true });
    expect(broker.at("a")).toEqual([]);
    broker.eachEnded(other, { succeeded: one(1), failed: [], final: false });
    expect(broker.at("a")).toEqual([`${job}.1`]);
  });

  it("all run once or are cancelled, in whatever order the others end", () => {
    const ends = fc.shuffledSubarray(
      Array.from({ length: 40 }, (_, index) => index),
      { minLength: 40, maxLength: 40 },
    );
    fc.assert(
      fc.property(ends, fc.array(fc.nat(39)), fc.nat(6), (order, failing, step) => {
        const broker = new Workbench({ maxLeaseTasks: 7 });
        broker.join("a", { slots: 3 });
        const first = broker.submit({ count: 40, held: true });
        const job = broker.submit({ count: 40, after: [{ job: first, each: true }], retries: 1 });
        const failed = new Set(failing);
        for (let at = 0; at < order.length; at += step + 1) {
          const some = order.slice(at, at + step + 1).sort((a, b) => a - b);
          broker.eachEnded(first, {
            succeeded: rangesOf(some.filter((index) => !failed.has(index))),
            failed: rangesOf(some.filter((index) => failed.has(index))),
            final: false,
          });
          if (at % 3 === 0) broker.finish("a");
          else broker.fail("a", ...broker.at("a").slice(0, 1));
          broker.pass(5_000);
        }
        broker.eachEnded(first, { succeeded: [], failed: [], final: true });
        for (let round = 0; round < 100 && broker.job(job).ended === undefined; round++) {
          broker.finish("a");
          broker.pass(5_000);
        }
        expect(broker.job(job).counters.cancelled).toBe(failed.size);
        expect(broker.job(job).ended).toBeDefined();
      }),
      { numRuns: scaled(40) },
    );
  });
});
