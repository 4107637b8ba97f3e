/** What every engine must do: one suite, run unchanged against each. */
import { afterEach, beforeEach, describe } from "vitest";
import { describeCancel } from "./suite/cancel.js";
import { describeEdit } from "./suite/edit.js";
import { describeFilters } from "./suite/filters.js";
import { describeDelays, describeKeep, describeKeys } from "./suite/job-times.js";
import { describeJobs } from "./suite/jobs.js";
import { describeKept } from "./suite/key-values.js";
import { Broker, type MakeStore, type StoreHarness } from "./suite/kit.js";
import { describeLimitStarts, describeSharedLimits } from "./suite/limits.js";
import { describeOutput } from "./suite/output.js";
import { describeRefusals } from "./suite/refusals.js";
import { describeRemove } from "./suite/remove.js";
import { describeReopen } from "./suite/reopen.js";
import { describeRerun } from "./suite/rerun.js";
import { describeResults } from "./suite/results.js";
import { describeSchedules, describeSharedSchedules } from "./suite/schedules.js";
import { describeShared } from "./suite/shared.js";
import { describeTaskRanges } from "./suite/task-ranges.js";

export type { MakeStore, StoreHarness } from "./suite/kit.js";

export function describeStore(name: string, make: MakeStore, options: { readonly shared: boolean }): void {
  describe(name, () => {
    describe("one broker", () => {
      let harness: StoreHarness;
      let broker: Broker;
      beforeEach(async () => {
        harness = await make();
        broker = await Broker.at(harness.handle());
      });
      afterEach(async () => {
        await broker.store.close();
        harness.check?.();
        await harness.dispose();
      });
      describe("jobs", () => describeJobs(() => broker));
      describe("task ranges", () => describeTaskRanges(() => broker));
      describe("results", () => describeResults(() => broker));
      describe("cancel", () => describeCancel(() => broker));
      describe("edit", () => describeEdit(() => broker));
      describe("output", () => describeOutput(() => broker));
      describe("filters", () => describeFilters(() => broker));
      describe("rerun", () => describeRerun(() => broker));
      describe("schedules", () => describeSchedules(() => broker));
      describe("delays", () => describeDelays(() => broker));
      describe("keys", () => describeKeys(() => broker));
      describe("how long jobs are kept", () => describeKeep(() => broker));
    });
    describe("opening again", () => describeReopen(make));
    describe("remove", () => describeRemove(make));
    describe("kept texts", () => describeKept(make));
    describe("refusals", () => describeRefusals(make));
    describe("starts of limits", () => describeLimitStarts(make));
    if (options.shared) describe("two brokers", () => describeShared(make));
    if (options.shared) describe("schedules of several brokers", () => describeSharedSchedules(make));
    if (options.shared) describe("limits of two brokers", () => describeSharedLimits(make));
  });
}
