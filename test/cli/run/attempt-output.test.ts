import { expect, it } from "vitest";
import { LaboroError } from "../../../src/base/errors.js";
import { RelaySpool } from "../../../src/cli/lib/task-output/attempt-output.js";
import { OutputPrinter } from "../../../src/cli/lib/task-output/output-printer.js";
import { OutputWriter } from "../../../src/cli/lib/task-output/output-writer.js";
import { JobId } from "../../../src/model/ids.js";

it("a task whose output cannot be read fails the run, and holds up nobody who relays output", async () => {
  const refused = new LaboroError("LABORO_QUEUE_FULL", "too many operations");
  const printer = new OutputPrinter({
    ...{ job: 1, live: true, relayed: new RelaySpool(), writer: new OutputWriter() },
    withRetry: () => Promise.reject(refused),
    writerOf: () => ({ stopped: false, write: async () => {} }),
  });
  // The bytes before the relayed ones are to be read from the broker.
  const taken = printer.take({
    job: JobId(1),
    index: 0,
    attempt: 1,
    stream: "stdout",
    offset: 10,
    bytes: Buffer.from("x"),
  });
  printer.outputStored([{ index: 0, attempt: 1 }]);
  await taken;
  await expect(printer.add([{ index: 0, attempt: 1, outputBytes: 11 }])).rejects.toBe(refused);
});
