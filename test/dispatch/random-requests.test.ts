import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { RequestId } from "../../src/model/ids.js";
import { scaled } from "../support/scale.js";
import { leastRecentlyUsedIsChosen, MixedHistory } from "./mixed-history.js";
import { livelyWorkers, steps } from "./mixed-steps.js";

const RUNS = scaled(500);

describe("requests and tasks in any order, on one broker", () => {
  it("every request is answered exactly once, every task is recorded, and nothing waits beside free room", () => {
    let requests = 0;
    let tasks = 0;
    fc.assert(
      fc.property(livelyWorkers, steps, fc.boolean(), (workers, history, standing) => {
        const mixed = new MixedHistory(workers, standing);
        for (const step of history) mixed.take(step);
        mixed.settle();
        const silent = mixed.asked.filter((id: RequestId) => mixed.answers(id) !== 1);
        expect(silent).toEqual([]);
        expect(mixed.broker.state.requests.size).toBe(0);
        for (const { job } of mixed.broker.world.jobs.values()) {
          expect(job.ended, `job ${job.id}`).toBeDefined();
          tasks += job.count;
        }
        expect(mixed.broker.state.jobs.size).toBe(0);
        expect(mixed.broker.state.active.size).toBe(0);
        requests += mixed.asked.length;
      }),
      { numRuns: RUNS },
    );
    console.log(`${RUNS} histories, ${requests} requests, ${tasks} tasks; silent: 0, lost: 0`);
    expect(requests).toBeGreaterThan(RUNS);
    expect(tasks).toBeGreaterThan(RUNS);
  });

  it("the least recently used of the workers with room is chosen, as a slow model sees it", () => {
    fc.assert(
      fc.property(livelyWorkers, steps, (workers, history) => {
        const mixed = new MixedHistory(workers);
        for (const step of history) leastRecentlyUsedIsChosen(mixed, step);
      }),
      { numRuns: scaled(200) },
    );
  });
});
