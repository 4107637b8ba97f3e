import fc from "fast-check";
import { expect, it } from "vitest";
import { barCells } from "../../src/cli/verbs/status/job.js";

it("the bar of laboro status has an empty cell exactly while tasks are left, and shows every failure", () => {
  const some = fc.integer({ min: 0, max: 200 });
  fc.assert(
    fc.property(
      some,
      some,
      some,
      some,
      fc.integer({ min: 8, max: 60 }),
      (succeeded, failed, cancelled, left, width) => {
        const count = succeeded + failed + cancelled + left;
        fc.pre(count > 0);
        const counters = { succeeded, failed, cancelled, running: 0, waiting: left };
        const { good, bad } = barCells({ counters, count }, width);
        expect(good + bad === width).toBe(left === 0);
        expect(good + bad).toBeLessThanOrEqual(width);
        expect(bad > 0).toBe(failed + cancelled > 0);
        expect(good).toBeGreaterThanOrEqual(0);
      },
    ),
  );
});
