import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { describe, expect, it } from "vitest";
import { type BrokerEvent, bytes, defineTask, type TaskFailed } from "../../src/entries/client.js";
import type { ThreadOptions, Worker, WorkerOptions } from "../../src/entries/worker.js";
import { ownBytes } from "../../src/worker/threads/index.js";
import { isRunning } from "../support/process-table.js";
import { openTestBroker, resultsOf, type TestBroker } from "../support/test-broker.js";
import { until } from "../support/wait.js";

const MODULE = new URL("./tasks.mjs", import.meta.url);
const double = defineTask<number, { doubled: number; at: string }>("double");
const block = defineTask<{ ms: number; marker?: string }, string>("block");
const untilAborted = defineTask<null, string>("untilAborted");
const eat = defineTask<string, never>("eat");
const pid = defineTask<null, number>("pid");
const crash = defineTask<null, never>("crash");
const exit = defineTask<null, never>("exit");
const fail = defineTask<null, never>("fail");
const report = defineTask<null, object>("report");
const late = defineTask<null, string>("late");
const spread = defineTask<null, object>("spread");
const invert = defineTask("invert", { input: bytes, output: bytes });
const sum = defineTask<null, number>("sum");

async function threads(
  options: Partial<WorkerOptions> = {},
  more: ThreadOptions = {},
): Promise<TestBroker & { started: Worker }> {
  const setup = await openTestBroker({ heartbeatMs: 100 });
  const started = setup.worker({ cancelGraceMs: 100, ...options });
  await started.handle(MODULE, more);
  return { ...setup, started };
}

describe.each([
  ["threads", {}],
  ["processes", { memoryMb: 128 }],
])("handlers in %s", (where, more) => {
  const open = (options: Partial<WorkerOptions> = {}): ReturnType<typeof threads> => threads(options, more);

  it("run the module's handlers, as many at a time as there are slots, each in one of its own", async () => {
    const { client, started } = await open({ slots: 2 });
    await until("the worker has joined", () => started.joined);
    const job = await client.addMany(double, [1, 2, 3, 4]);
    const results = await resultsOf(await ended(job));
    expect(results.map(({ value }) => value?.doubled)).toEqual([2, 4, 6, 8]);
    expect(new Set(results.map(({ value }) => value?.at)).size).toBeLessThanOrEqual(2);
    expect(results.every(({ value }) => (value?.at.split(".")[0] === `${process.pid}`) === (where === "threads"))).toBe(
      true,
    );
  });

  it("keep the worker connected while one blocks for many heartbeats, and it runs once", async () => {
    const { client, dir, broker } = await open();
    const marker = join(dir, "marker");
    const lost: string[] = [];
    broker.core.events.onAdded(({ kind }) => lost.push(kind));
    const job = await client.add(block, { ms: 1_500, marker });
    expect(await job.result()).toBe("unblocked");
    expect(readFileSync(marker, "utf8")).toBe("begun");
    expect(lost).not.toContain("worker-disconnected");
  });

  it("end one that never ends with its thread, past the time limit and the grace; its slot is free", async () => {
    const { client } = await open({ slots: 1 });
    const job = await client.add(block, { ms: 600_000 }, { timeLimitMs: 50 });
    await expect(job.result()).rejects.toMatchObject({
      code: "LABORO_TASK_FAILED",
      message: /past its time limit, and the handler did not end within 100/,
    });
    expect((await (await client.add(double, 4)).result()).doubled).toBe(8);
  });

  it("get a context that can be spread into another object", async () => {
    const { client } = await open();
    const job = await client.add(spread, null);
    expect(await job.result()).toEqual({ job: job.id, attempt: 1, aborted: false });
    expect(await job.text(0)).toBe("with its own log\n");
  });

  it("abort the signal of one that is cancelled", async () => {
    const { client } = await open();
    const job = await client.add(untilAborted, null);
    await until("it runs", async () => (await job.explain(0)).startsWith("it runs"));
    await job.cancel();
    await expect(job.result()).rejects.toMatchObject({ code: "LABORO_TASK_CANCELLED" });
    expect((await (await client.add(double, 4)).result()).doubled).toBe(8);
  });

  it.each([
    ["throws where nobody catches it", crash, /nobody catches this/],
    ["ends its thread or process", exit, /exit code 7/],
  ])("fail alone where one %s", async (_what, task, message) => {
    const { client } = await open({ slots: 2 });
    const beside = await client.add(block, { ms: 300 });
    const job = await client.add(task, null);
    await expect(job.result()).rejects.toMatchObject({ code: "LABORO_TASK_FAILED", message });
    expect(await beside.result()).toBe("unblocked");
    expect((await (await client.add(double, 4)).result()).doubled).toBe(8);
  });

  it("keep name, message, stack, code and cause of an error, and are not tried again after NoRetry", async () => {
    const { client } = await open();
    const job = await client.add(fail, null, { retries: 5 });
    const error: TaskFailed = await job.result().catch((thrown) => thrown);
    expect(error).toMatchObject({ name: "LaboroError", code: "LABORO_TASK_FAILED", message: "not again", index: 0 });
    const { cause } = error as { cause: Error };
    expect(cause).toMatchObject({ name: "NoRetry", message: "not again", code: 17 });
    expect(cause.stack).toContain("tasks.mjs");
    expect(cause.cause).toMatchObject({ name: "RangeError", message: "the disk", code: "EDISK" });
    expect(await resultsOf(job)).toMatchObject([{ attempt: 1, state: "failed", error: "not again" }]);
  });

  it("know their task, report progress and write to its output", async () => {
    const { client } = await open();
    const before = await client.add(double, 1);
    const events = client.events();
    const first = events.next();
    const job = await client.add(report, null, { key: "mine", timeLimitMs: 60_000, after: before });
    const context = {
      job: job.id,
      index: 0,
      number: 1,
      attempt: 1,
      key: "mine",
      deadline: "number",
      after: [before.id],
    };
    expect(await job.result()).toEqual(context);
    expect(await job.text(0)).toBe("half of { it: 1 }\n");
    const seen = [(await first).value];
    const ended = (event: BrokerEvent | undefined) => event?.kind === "job-ended" && event.job === job.id;
    while (!ended(seen.at(-1) ?? undefined)) seen.push((await events.next()).value);
    expect(seen).toContainEqual(
      expect.objectContaining({ kind: "task-progress", job: job.id, number: 1, progress: { done: 0.5 } }),
    );
  });

  it("take and return bytes", async () => {
    const { client } = await open();
    const result = await (await client.add(invert, Buffer.from([0, 1, 255]))).result();
    expect(Buffer.isBuffer(result) && [...result]).toEqual([255, 254, 0]);
    expect([...(await client.call(invert, Buffer.from([7])))]).toEqual([248]);
  });

  it("read the results of the jobs that theirs came after", async () => {
    const { client } = await open();
    const parts = await client.addMany(
      double,
      Array.from({ length: 300 }, (_, i) => i),
    );
    const job = await client.add(sum, null, { after: parts });
    expect(await job.result()).toBe(299 * 300);
  });
});

describe("a module with handlers", () => {
  it("is sent the bytes of a call alone, not the frame that it came in", () => {
    const frame = Buffer.alloc(1_000_000);
    expect(ownBytes(frame.subarray(10, 20)).buffer.byteLength).toBe(10);
    expect(ownBytes(frame)).toBe(frame);
  });

  it("is refused where it cannot be loaded or exports none", async () => {
    const { worker, dir } = await openTestBroker();
    const started = worker();
    await expect(started.handle(new URL("./missing.mjs", import.meta.url))).rejects.toThrow(/missing/);
    await expect(started.handle(new URL("data:text/javascript,export const a = 1"))).rejects.toThrow(/no handler/);
    const typescript = join(dir, "handlers.ts");
    writeFileSync(typescript, "export const a: number = 1;");
    // Newer releases of Node load it, and find no handler.
    const loads = Boolean((process.features as { readonly typescript?: unknown }).typescript);
    const why = loads ? /no handler/ : /is TypeScript.* compile it first/;
    await expect(started.handle(pathToFileURL(typescript))).rejects.toThrow(why);
    for (const memoryMb of [0, 1.5, Number.NaN])
      await expect(started.handle(MODULE, { memoryMb })).rejects.toMatchObject({
        ...{ code: "LABORO_BAD_INPUT", message: expect.stringMatching(/^memoryMb: /) },
      });
  });

  it.each([{}, { memoryMb: 128 }])("is refused where it does not load in time: %j", async (more) => {
    const { worker } = await openTestBroker();
    const endless = new URL("data:text/javascript,setInterval(() => {}, 1000); await new Promise(() => {})");
    await expect(worker().handle(endless, { loadTimeoutMs: 200, ...more })).rejects.toMatchObject({
      ...{ code: "LABORO_DEADLINE", message: expect.stringMatching(/has not loaded within 200 ms/) },
    });
  });
});

describe("an error after the result", () => {
  it("ends the thread, and is a warning of the process with its stack", async () => {
    const { client } = await threads({ slots: 1 });
    const warned = once(process, "warning");
    expect(await (await client.add(late, null)).result()).toBe("done");
    const [warning] = await warned;
    expect(String(warning)).toMatch(/laboro: a thread of .*tasks\.mjs has ended between two calls: after the result/);
    expect(warning.detail).toContain("RangeError");
    expect((await (await client.add(double, 4)).result()).doubled).toBe(8);
  });
});

describe("a handler with a memory limit", () => {
  it.each(["numbers", "a set", "an object", "one large array"])(
    "that fills its memory with %s fails alone, with the reason",
    async (what) => {
      const { client } = await threads({ slots: 2 }, { memoryMb: 128 });
      const beside = await client.add(block, { ms: 1_000 });
      const job = await client.add(eat, what);
      await expect(job.result()).rejects.toMatchObject({
        ...{ code: "LABORO_TASK_FAILED", message: "the handler needs more than 128 MiB of memory" },
      });
      expect(await beside.result()).toBe("unblocked");
      expect((await (await client.add(double, 4)).result()).doubled).toBe(8);
    },
  );

  it("leaves no process when its worker stops", async () => {
    const { client, started } = await threads({ slots: 1 }, { memoryMb: 128 });
    const id = await (await client.add(pid, null)).result();
    expect(isRunning(id)).toBe(true);
    await started.stop();
    expect(isRunning(id)).toBe(false);
  });
});

async function ended<Job extends { wait(): Promise<string> }>(job: Job): Promise<Job> {
  expect(await job.wait()).toBe("succeeded");
  return job;
}
