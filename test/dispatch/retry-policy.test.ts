import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { isRetried, retryWaitMs } from "../../src/dispatch/results.js";
import { DEFAULT_SETTINGS } from "../../src/dispatch/settings.js";
import { JobId } from "../../src/model/ids.js";
import { Workbench } from "./workbench.js";

const end = (over: object) => ({ started: 0, ended: 1, outputBytes: 0, ...over });
const thrown = (details: object) => end({ error: "it threw", value: Buffer.from(JSON.stringify(details)) });

describe("the retry policy of a job", () => {
  it("says how long each wait is, whatever the broker's settings", () => {
    const broker = new Workbench({ retryBackoffMs: 7, maxRetryBackoffMs: 9 });
    broker.join("a");
    broker.submit({ retries: 4, retry: { waitMs: 100, factor: 3, maxMs: 500 } });
    for (const wait of [100, 300, 500, 500]) {
      broker.fail("a", "1.0");
      broker.pass(wait - 1);
      expect(broker.at("a")).toEqual([]);
      broker.pass(1);
      expect(broker.at("a")).toEqual(["1.0"]);
    }
  });

  it("leaves to the broker's settings what it does not say", () => {
    const broker = new Workbench({ retryBackoffMs: 100, maxRetryBackoffMs: 150 });
    broker.join("a");
    broker.submit({ retries: 2, retry: { never: [99] } });
    for (const wait of [100, 150]) {
      broker.fail("a", "1.0");
      broker.pass(wait - 1);
      expect(broker.at("a")).toEqual([]);
      broker.pass(1);
      expect(broker.at("a")).toEqual(["1.0"]);
    }
  });

  it("retries only the ends that it names, and never those that it excludes", () => {
    const broker = new Workbench({ retryBackoffMs: 0 });
    broker.join("a", { slots: 4 });
    broker.submit({ count: 4, retries: 1, retry: { on: [75, 137, 2], never: [2] } });
    broker.finish("a", ["1.0"], { code: 75 });
    broker.finish("a", ["1.1"], { code: 1 });
    broker.finish("a", ["1.2"], { code: 2 });
    expect(broker.attempt("a", "1.0")).toBe(2);
    expect(["1.1", "1.2"].map((task) => broker.result(task)?.attempt)).toEqual([1, 1]);
  });

  it.each([
    [{ on: [137] }, end({ signal: "SIGKILL" }), true],
    [{ on: [137] }, end({ signal: "SIGTERM" }), false],
    [{ never: [143] }, end({ signal: "SIGTERM" }), false],
    [{ on: ["timeout"] }, end({ code: 0, timedOut: true }), true],
    [{ on: [1] }, end({ code: 1, timedOut: true }), false],
    [{ never: [143] }, end({ signal: "SIGTERM", timedOut: true }), true],
    [{ never: ["TypeError"] }, thrown({ name: "TypeError", message: "x" }), false],
    [{ on: ["ECONNRESET"] }, thrown({ name: "Error", message: "x", code: "ECONNRESET" }), true],
    [{ on: ["ECONNRESET"] }, thrown({ name: "Error", message: "x" }), false],
    [{ never: ["Error"] }, end({ error: "no such program" }), true],
    [{}, end({ code: 1 }), true],
  ])("%j of %j: %s", (policy, outcome, expected) => {
    expect(isRetried(policy, outcome)).toBe(expected);
  });

  it("draws the random part of a wait within its bounds, differently for each task, and always the same for one", () => {
    const waits = fc.record({
      waitMs: fc.integer({ min: 1, max: 10_000 }),
      jitter: fc.double({ min: 0, max: 1, noNaN: true }),
      failures: fc.integer({ min: 1, max: 20 }),
      index: fc.nat(1e9),
    });
    fc.assert(
      fc.property(waits, ({ waitMs, jitter, failures, index }) => {
        const task = { job: JobId(1), index };
        const longest = Math.min(60_000, waitMs * 2 ** (failures - 1));
        const wait = retryWaitMs(DEFAULT_SETTINGS, { waitMs, jitter }, failures, task);
        expect(wait).toBeGreaterThanOrEqual(Math.floor(longest * (1 - jitter)));
        expect(wait).toBeLessThanOrEqual(Math.ceil(longest));
        expect(retryWaitMs(DEFAULT_SETTINGS, { waitMs, jitter }, failures, task)).toBe(wait);
      }),
    );
    const spread = Array.from({ length: 1_000 }, (_, index) =>
      retryWaitMs(DEFAULT_SETTINGS, { waitMs: 1_000, jitter: 1 }, 1, { job: JobId(1), index }),
    );
    const mean = spread.reduce((sum, wait) => sum + wait, 0) / spread.length;
    expect(Math.abs(mean - 500)).toBeLessThan(50);
    expect(new Set(spread).size).toBeGreaterThan(500);
  });

  it("of a handler's own time to wait holds after a start of the broker, also where it is longer than any other", () => {
    const before = new Workbench({ retryBackoffMs: 10, maxRetryBackoffMs: 10 });
    before.join("a");
    before.submit({ retries: 1 });
    before.finish("a", ["1.0"], { code: 1, retryAfterMs: 5_000 });
    before.leave("a");
    const broker = before.reopened();
    broker.join("a");
    broker.pass(4_999);
    expect(broker.at("a")).toEqual([]);
    broker.pass(1);
    expect(broker.at("a")).toEqual(["1.0"]);
  });
});
