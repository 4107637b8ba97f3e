/** Callers that mean no good, at the raw listeners of a broker that is at work: they are left with a reason, and the work goes on. */
import { connect } from "node:net";
import { expect, it } from "vitest";
import { encodeMessage } from "../../../../src/protocols/fuq/codec.js";
import { SeededRandom } from "../../../support/random.js";
import { until } from "../../../support/wait.js";
import { atEnd, numbered, openRaw, openV1, openYard, rawWorker } from "./kit.js";
import { JOB, OK, pairOf, type TaskOf } from "./literal-worker.js";

/** Resolves when the listener has closed the connection, or when it was let alone for a while. */
function intrude(port: number, chunks: readonly Buffer[], patienceMs = 300): Promise<"closed" | "left open"> {
  const socket = connect(port, "127.0.0.1");
  atEnd(() => socket.destroy());
  socket.on("error", () => {});
  socket.resume();
  for (const chunk of chunks) socket.write(chunk);
  return new Promise((resolve) => {
    const patience = setTimeout(() => {
      socket.destroy();
      resolve("left open");
    }, patienceMs);
    socket.once("close", () => {
      clearTimeout(patience);
      resolve("closed");
    });
  });
}

/** Far longer than it takes to close a connection, on a busy machine too. */
const CLOSED_MS = 60_000;
const HELLO = encodeMessage({ type: "HELLO", hello: { numProcs: 1, running: [] }, seq: 0 });

it("garbage, wrong lengths and floods of messages end or are answered, and the batch does not suffer", async () => {
  const yard = await openYard();
  const port = await openRaw(yard);
  const v1 = await openV1(yard);
  const worker = await rawWorker(port);
  await worker.expect(OK);
  await worker.greet(1);
  const job = await yard.client.submit(numbered(50));
  const working = (async () => {
    for (let done = 0; done < 50; done++) {
      const frame = await worker.expect(JOB);
      worker.ok(frame.seq, 0, 1);
      worker.update(frame.seq + 1, pairOf((frame.rest as TaskOf[])[0] as TaskOf));
      await worker.expect(OK);
    }
  })();
  const random = new SeededRandom(7);
  const claims = Buffer.from(HELLO.subarray(0, 16));
  claims.writeUInt32LE(0xffff_fff0, 12);
  const closed = await Promise.all([
    intrude(port, [Buffer.from("GET / HTTP/1.1\r\nHost: x\r\n\r\n")], CLOSED_MS),
    intrude(port, [claims], CLOSED_MS),
    intrude(port, [HELLO, random.bytes(1_000)], CLOSED_MS),
    intrude(v1, [random.bytes(1_000)], CLOSED_MS),
    intrude(v1, [HELLO], CLOSED_MS),
  ]);
  expect(closed).toEqual(["closed", "closed", "closed", "closed", "closed"]);
  // A thousand UPDATEs at once, twice the same number, tasks that are nobody's, an end in the middle of a message.
  const flood = Array.from({ length: 1_000 }, (_, i) =>
    encodeMessage({
      type: "UPDATE",
      update: { jobId: 1, task: 1 + (i % 60), success: true, status: "done", newJob: null },
      seq: 2 + (i - (i % 3)) * 2,
    }),
  );
  await intrude(port, [HELLO, ...flood, HELLO.subarray(0, 20)]);
  const listing = encodeMessage({
    type: "HELLO",
    hello: {
      numProcs: 65_535,
      running: Array.from({ length: 5_000 }, (_, i) => ({
        task: i - 2_500,
        job: { jobId: i % 7, name: "", numTasks: 1, workingDir: "", loggingDir: "", command: "", status: 1 },
      })),
    },
    seq: 0,
  });
  await intrude(port, [listing]);
  for (let i = 0; i < 50; i++) void intrude(i % 2 === 0 ? port : v1, [random.bytes(random.between(1, 200))]);
  await working;
  expect(await job.wait()).toBe("succeeded");
  await until("only the worker is left", async () => (await yard.client.workers()).length === 1);
  expect((await fetch(`${yard.broker.url}/healthz`)).status).toBe(200);
  // Each address is named once with a code, however often it was there.
  expect(yard.complaints.length).toBeLessThan(10);
});
