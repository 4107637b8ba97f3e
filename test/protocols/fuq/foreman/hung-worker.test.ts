/** A worker whose process hangs: its connection stays open, and it answers no request. */
import { describe, expect, it } from "vitest";
import { until } from "../../../support/wait.js";
import { nodeNamed, numbered, openRaw, openWeb, openYard, rawWorker, webWorker, type Yard } from "./kit.js";
import { counts, JOB, OK, RESET, STOP } from "./literal-worker.js";

const WAYS = ["raw stream", "WebSocket"] as const;

async function hungWorker(yard: Yard, way: (typeof WAYS)[number], slots: number) {
  // How long a request may be unanswered.
  const options = { answerMs: 50 };
  const raw = await openRaw(yard, options);
  const isRaw = way === "raw stream";
  const worker = isRaw ? await rawWorker(raw) : await webWorker(await openWeb(yard, nodeNamed("vm:7:1"), options));
  if (isRaw) await worker.expect(OK);
  await worker.greet(slots);
  return { raw, worker };
}

describe.each(WAYS)("a worker that hangs, on the %s", (way) => {
  it("keeps no task behind an unanswered JOB: they go to others", async () => {
    const yard = await openYard();
    const { raw, worker } = await hungWorker(yard, way, 3);
    const job = await yard.client.submit(numbered(3));
    const unanswered = await worker.expect(JOB);
    const other = await rawWorker(raw);
    await other.expect(OK);
    await other.greet(3);
    expect((await other.take(2, 3)).map(({ task }) => task.Task)).toEqual([2, 3]);
    // It gets tasks again as soon as it answers.
    worker.ok(unanswered.seq, 2, 1);
    other.update(6, { JobId: job.id, Task: 2 });
    await other.expect(OK);
    other.update(8, { JobId: job.id, Task: 3 });
    await other.expect(OK);
    other.cut();
    await yard.client.submit(numbered(1));
    expect(await worker.expect(JOB)).toMatchObject({ rest: [{ Task: 1, JobDescription: { JobId: job.id + 1 } }] });
  });

  it("is left after STOP(immed), and all its tasks go to others", async () => {
    const yard = await openYard();
    const { raw, worker } = await hungWorker(yard, way, 2);
    const job = await yard.client.submit(numbered(2));
    await worker.take(1, 2);
    await worker.expect(JOB);
    const [{ id } = { id: "" }] = await yard.client.workers();
    await yard.client.stopWorker(id, { now: true });
    await worker.expect(STOP);
    await until("it is left", () => worker.closed !== undefined);
    const other = await rawWorker(raw);
    await other.expect(OK);
    await other.greet(2);
    for (const { task, seq } of await other.take(2, 2)) {
      other.update(seq + 5, { JobId: job.id, Task: task.Task });
      expect(counts(await other.expect(OK))).toMatch(/\|[01]$/);
    }
    expect(await job.wait()).toBe("succeeded");
  });
});

it("a worker that says no HELLO after its RESET keeps no task that was not sent to it", async () => {
  const yard = await openYard();
  const { raw, worker } = await hungWorker(yard, "raw stream", 1);
  worker.send(RESET, 2, 0);
  await worker.expect(RESET);
  await worker.expect(OK);
  const job = await yard.client.submit(numbered(1));
  const other = await rawWorker(raw);
  await other.expect(OK);
  await other.greet(1);
  await other.take(1, 1);
  other.update(4, { JobId: job.id, Task: 1 });
  expect(await job.wait()).toBe("succeeded");
  // With the HELLO it gets tasks again.
  await other.expect(OK);
  other.cut();
  await worker.greet(1);
  await yard.client.submit(numbered(1));
  await worker.expect(JOB);
});
