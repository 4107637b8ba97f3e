/** CANCEL on a raw stream, as the text has it: one TaskPair, an OK with the counts after it, and no UPDATE. */
import { expect, it } from "vitest";
import { resultsOf } from "../../../support/test-broker.js";
import { until } from "../../../support/wait.js";
import { numbered, openRaw, openYard, rawWorker } from "./kit.js";
import { CANCEL, counts, ERROR, JOB, OK } from "./literal-worker.js";

it("has one TaskPair a task, also for a whole job; with its OK the task is over and its slot is free", async () => {
  const yard = await openYard();
  const worker = await rawWorker(await openRaw(yard));
  await worker.expect(OK);
  await worker.greet(3);
  const job = await yard.client.submit(numbered(4));
  await worker.take(3, 3);
  await yard.client.ask("cancel", { job: job.id, tasks: [{ first: 1, last: 1 }] });
  const one = await worker.expect(CANCEL);
  expect(one.rest).toEqual({ JobId: job.id, Task: 2 });
  worker.ok(one.seq, 1, 2);
  // No UPDATE came, and the slot is used.
  const next = await worker.expect(JOB);
  expect(next.rest).toMatchObject([{ Task: 4 }]);
  worker.ok(next.seq, 0, 3);
  worker.update(next.seq + 1, { JobId: job.id, Task: 1 });
  expect(counts(await worker.expect(OK))).toBe("1|2");
  await yard.client.ask("cancel", { job: job.id });
  for (const [Task, nrun] of [
    [3, 1],
    [4, 0],
  ] as const) {
    const cancel = await worker.expect(CANCEL);
    expect(cancel.rest).toEqual({ JobId: job.id, Task });
    worker.ok(cancel.seq, 3 - nrun, nrun);
  }
  expect(await job.wait()).toBe("cancelled");
  expect((await resultsOf(job)).map(({ state }) => state)).toEqual([
    "succeeded",
    "cancelled",
    "cancelled",
    "cancelled",
  ]);
  expect((await yard.client.workers())[0]?.free.slots).toBe(3);
});

it("that is answered ERROR(no_such_job) crossed the task's UPDATE, which counts; without one it is put right", async () => {
  const yard = await openYard();
  const worker = await rawWorker(await openRaw(yard, { missingMs: 200 }));
  await worker.expect(OK);
  await worker.greet(2);
  const job = await yard.client.submit(numbered(2));
  await worker.take(2, 2);
  await yard.client.ask("cancel", { job: job.id });
  const first = await worker.expect(CANCEL);
  worker.send(ERROR, first.seq, 0, 4);
  worker.update(first.seq + 1, { JobId: job.id, Task: 1 }, false, "error encountered: exit status 3");
  const second = await worker.next();
  // The OK to the UPDATE and the next CANCEL may come in either order.
  const cancel = second.type === CANCEL ? second : await worker.expect(CANCEL);
  worker.send(ERROR, cancel.seq, 0, 4);
  expect(await job.wait()).toBe("cancelled");
  expect(await resultsOf(job)).toMatchObject([{ index: 0, state: "cancelled", code: 3 }]);
  await until("both slots are free", async () => (await yard.client.workers())[0]?.free.slots === 2);
});

it("is what a time limit comes to", async () => {
  const yard = await openYard();
  const worker = await rawWorker(await openRaw(yard));
  await worker.expect(OK);
  await worker.greet(1);
  const job = await yard.client.submit(numbered(1, { timeLimitMs: 100 }));
  await worker.take(1, 1);
  const cancel = await worker.expect(CANCEL);
  expect(cancel.rest).toEqual({ JobId: job.id, Task: 1 });
  worker.ok(cancel.seq, 1, 0);
  expect(await job.wait()).toBe("failed");
  expect((await resultsOf(job))[0]).toMatchObject({ state: "failed", timedOut: true });
});
