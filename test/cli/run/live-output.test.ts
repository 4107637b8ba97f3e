import { expect, it } from "vitest";
import { LaboroError } from "../../../src/base/errors.js";
import { LiveTasks } from "../../../src/cli/lib/batch/live-output.js";
import { JobId } from "../../../src/model/ids.js";

it("a task whose output cannot be read fails the run, and holds up nobody who relays output", async () => {
  const refused = new LaboroError("LABORO_QUEUE_FULL", "too many operations");
  const live = new LiveTasks({
    ...{ enabled: true, job: 1 },
    withRetry: () => Promise.reject(refused),
    writerOf: () => ({ stopped: false, write: async () => {} }),
    onPrinted: () => {},
  });
  // The bytes before the relayed ones are to be read from the broker.
  const taken = live.take({
    job: JobId(1),
    index: 0,
    attempt: 1,
    stream: "stdout",
    offset: 10,
    bytes: Buffer.from("x"),
  });
  live.outputStored([{ index: 0 }]);
  await taken;
  const task = { index: 0, attempt: 1, outputBytes: 11, state: "succeeded" } as Parameters<
    LiveTasks["finish"]
  >[0][number];
  await expect(live.finish([task])).rejects.toBe(refused);
});
