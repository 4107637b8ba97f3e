/** STOP_REQ(n) and STOP_IMMED of the text: `laboro stop` with and without --slots and --now, at literal workers. */
import { describe, expect, it } from "vitest";
import { until } from "../../../support/wait.js";
import { nodeNamed, numbered, openRaw, openWeb, openYard, rawWorker, webWorker, type Yard } from "./kit.js";
import { counts, ERROR, JOB, OK, STOP } from "./literal-worker.js";

const AT_ONCE = 0xffff_ffff;

const stopOnly = async (yard: Yard, how: { slots?: number; now?: boolean } = {}): Promise<void> => {
  const [{ id } = { id: "" }] = await yard.client.workers();
  await yard.client.stopWorker(id, how);
};

describe("STOP", () => {
  it("of a busy worker: it ends what it runs, gets nothing new, and the connection ends with its last UPDATE", async () => {
    const yard = await openYard();
    const worker = await rawWorker(await openRaw(yard));
    await worker.expect(OK);
    await worker.greet(2);
    const job = await yard.client.submit(numbered(3));
    await worker.take(2, 2);
    const [{ id } = { id: "" }] = await yard.client.workers();
    await yard.client.stopWorker(id);
    const stop = await worker.expect(STOP);
    expect(stop.arg0).toBe(2);
    worker.ok(stop.seq, 0, 2);
    worker.update(stop.seq + 1, { JobId: job.id, Task: 1 });
    expect(counts(await worker.expect(OK))).toBe("0|1");
    worker.update(stop.seq + 3, { JobId: job.id, Task: 2 });
    expect(counts(await worker.expect(OK))).toBe("0|0");
    await until("it is closed", () => worker.closed !== undefined);
    await until("it is gone", async () => (await yard.client.workers()).length === 0);
    expect(await job.info()).toMatchObject({ state: "waiting", counters: { succeeded: 2, failed: 0 } });
  });

  it("of an idle worker lets it go by itself", async () => {
    const yard = await openYard();
    const worker = await rawWorker(await openRaw(yard));
    await worker.expect(OK);
    await worker.greet(3);
    const [{ id } = { id: "" }] = await yard.client.workers();
    await yard.client.stopWorker(id);
    const stop = await worker.expect(STOP);
    expect(stop).toMatchObject({ seq: 3, arg0: 3 });
    worker.ok(3, 0, 0);
    worker.cut();
    await until("it is gone", async () => (await yard.client.workers()).length === 0);
  });
});

describe("STOP(n)", () => {
  it("takes so many slots, and the rest works on", async () => {
    const yard = await openYard();
    const worker = await rawWorker(await openRaw(yard));
    await worker.expect(OK);
    await worker.greet(3);
    await stopOnly(yard, { slots: 2 });
    const stop = await worker.expect(STOP);
    expect(stop.arg0).toBe(2);
    worker.ok(stop.seq, 1, 0);
    await until("one slot is left", async () => (await yard.client.workers())[0]?.total.slots === 1);
    const job = await yard.client.submit(numbered(2));
    for (let task = 1; task <= 2; task++) {
      const { seq } = await worker.expect(JOB);
      worker.ok(seq, 0, 1);
      worker.update(seq + 1, { JobId: job.id, Task: task });
      expect(counts(await worker.expect(OK))).toBe("1|0");
    }
    expect(await job.wait()).toBe("succeeded");
    expect((await yard.client.workers())[0]?.draining).toBe(false);
  });

  it("of as many as there are, or more, is the end of the worker", async () => {
    const yard = await openYard();
    const worker = await webWorker(await openWeb(yard, nodeNamed("vm:7:1")));
    await worker.greet(2);
    await stopOnly(yard, { slots: 5 });
    expect((await yard.client.workers())[0]?.draining).toBe(true);
    const stop = await worker.expect(STOP);
    expect(stop.arg0).toBe(2);
    worker.ok(stop.seq, 0, 0);
    worker.cut();
    await until("it is gone", async () => (await yard.client.workers()).length === 0);
  });

  it("that is answered with ERROR is sent again", async () => {
    const yard = await openYard();
    const worker = await rawWorker(await openRaw(yard, { retryMs: 20 }));
    await worker.expect(OK);
    await worker.greet(3);
    await stopOnly(yard, { slots: 1 });
    const refused = await worker.expect(STOP);
    worker.send(ERROR, refused.seq, 0, 6);
    const again = await worker.expect(STOP);
    expect(again).toMatchObject({ seq: refused.seq + 2, arg0: 1 });
    worker.ok(again.seq, 2, 0);
    await until("two slots are left", async () => (await yard.client.workers())[0]?.total.slots === 2);
  });
});

describe("STOP(immed)", () => {
  it("goes out beside a JOB that has no reply yet; a worker that stays is left", async () => {
    const yard = await openYard();
    const worker = await rawWorker(await openRaw(yard, { missingMs: 50 }));
    await worker.expect(OK);
    await worker.greet(1);
    await yard.client.submit(numbered(1));
    await worker.expect(JOB);
    await stopOnly(yard, { now: true });
    const stop = await worker.expect(STOP);
    expect(stop).toMatchObject({ seq: 5, arg0: AT_ONCE });
    worker.ok(5, 0, 0);
    await until("it is left, if it does not leave", () => worker.closed !== undefined);
  });

  it.each(["raw stream", "WebSocket"])(
    "on the %s: its tasks go to others at no cost, also where it exits without a reply",
    async (way) => {
      const yard = await openYard();
      const raw = await openRaw(yard);
      const worker =
        way === "WebSocket" ? await webWorker(await openWeb(yard, nodeNamed("vm:7:1"))) : await rawWorker(raw);
      if (way !== "WebSocket") await worker.expect(OK);
      await worker.greet(2);
      // A crash would be the end of the task.
      const job = await yard.client.submit(numbered(1, { crashLimit: 1 }));
      await worker.take(1, 2);
      await stopOnly(yard, { now: true });
      expect((await worker.expect(STOP)).arg0).toBe(AT_ONCE);
      worker.cut();
      const other = await rawWorker(raw);
      await other.expect(OK);
      await other.greet(1);
      const [again] = await other.take(1, 1);
      expect(again?.task.Task).toBe(1);
      other.update(4, { JobId: job.id, Task: 1 });
      expect(await job.wait()).toBe("succeeded");
    },
  );
});
