import { expect, it } from "vitest";
import { JobId } from "../../src/model/ids.js";
import { TaskTracker } from "../../src/worker/task-tracker.js";

const job = JobId(1);
const rangeOf = (attempt: number) => ({ job, first: 0, last: 0, attempt });
const doneOf = (attempt: number) => ({ job, index: 0, attempt, code: 0, started: 0, ended: 1, outputBytes: 0 });

it("the end of an attempt that was dropped does not count for the next attempt of its task", () => {
  const tracker = new TaskTracker();
  tracker.receive(rangeOf(1));
  tracker.startNext(() => true);
  tracker.drop([rangeOf(1)]);
  tracker.receive(rangeOf(2));
  tracker.startNext(() => true);
  expect(tracker.finish(doneOf(1))).toBe(false);
  expect(tracker.held()).toMatchObject([{ attempt: 2, state: "running" }]);
  expect(tracker.finish(doneOf(2))).toBe(true);
  expect(tracker.nextBatch()?.tasks).toEqual([doneOf(2)]);
});
