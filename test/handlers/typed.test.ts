import { type } from "arktype";
import * as v from "valibot";
import { describe, expect, expectTypeOf, it } from "vitest";
import { z } from "zod";
import type { TaskFailed } from "../../src/entries/client.js";
import { defineTask, json, NoRetry, RetryAfter, type TaskOutcome } from "../../src/entries/task.js";
import { openTestBroker, resultsOf } from "../support/test-broker.js";
import { sleep, until } from "../support/wait.js";

const thumb = defineTask("thumb", {
  input: z.object({ file: z.string().min(1), width: z.number().default(100) }),
  output: json<{ out: string }>(),
});
const work = defineTask<number, { square: number }>("work");

describe("a typed task", () => {
  it("has the types of its schemas: of what is given, of what the handler gets, of the result", async () => {
    const { client, worker } = await openTestBroker();
    const one = worker();
    one.handle(thumb, (input) => {
      expectTypeOf(input).toEqualTypeOf<{ file: string; width: number }>();
      return { out: `${input.file}@${input.width}` };
    });
    const job = await client.add(thumb, { file: "a.png" });
    const result = await job.result();
    expectTypeOf(result).toEqualTypeOf<{ out: string }>();
    expect(result).toEqual({ out: "a.png@100" });
    expect(await client.call(thumb, { file: "b.png", width: 5 })).toEqual({ out: "b.png@5" });
    // @ts-expect-error: a number is no file.
    await expect(client.add(thumb, { file: 5 })).rejects.toMatchObject({
      ...{ code: "LABORO_BAD_INPUT", message: expect.stringMatching(/^task thumb: the input: file: /) },
    });
    // @ts-expect-error: the handler has to return what the definition says.
    one.handle(thumb, () => ({ wrong: true }));
  });

  it.each([
    ["zod", z.object({ n: z.number().int() })],
    ["valibot", v.object({ n: v.pipe(v.number(), v.integer()) })],
    ["arktype", type({ n: "number.integer" })],
  ])("is checked by a schema of %s when it is added, and again before the handler", async (_library, input) => {
    const { client, worker } = await openTestBroker();
    const task = defineTask("checked", { input, output: json<number>() });
    let calls = 0;
    worker().handle(task, ({ n }) => {
      calls++;
      return n + 1;
    });
    expect(await (await client.add(task, { n: 1 })).result()).toBe(2);
    const refused = { code: "LABORO_BAD_INPUT", message: expect.stringContaining("task checked: the input: n") };
    await expect(client.add(task, { n: 1.5 })).rejects.toMatchObject(refused);
    await expect(client.addMany(task, [{ n: 1 }, { n: 1.5 }])).rejects.toMatchObject(refused);
    await expect(client.addMany(task, "abc" as unknown as [])).rejects.toMatchObject({ code: "LABORO_BAD_INPUT" });
    await expect(client.call(task, { n: 1.5 })).rejects.toMatchObject(refused);
    // Another client may know nothing of the schema.
    const recipe = { kind: "call" as const, service: "checked" };
    const job = await client.submit({ recipe, entries: ['{"n":1.5}', "no json"], retries: 3 });
    expect(await job.wait()).toBe("failed");
    for (const { attempt, error } of await resultsOf(job)) {
      expect([attempt, error]).toEqual([1, expect.stringMatching(/^LABORO_BAD_INPUT: task checked: the input/)]);
    }
    await expect(client.request("checked", '{"n":1.5}')).rejects.toMatchObject(refused);
    expect(calls).toBe(1);
  });

  it("keeps its result apart from its output", async () => {
    const { client, worker } = await openTestBroker();
    worker().handle(work, (n, { log }) => {
      log("squaring", n);
      return { square: n * n };
    });
    const job = await client.add(work, 12);
    expect(await job.result()).toEqual({ square: 144 });
    expect(await job.text(0)).toBe("squaring 12\n");
    expect(await resultsOf(client.job(job.id, work))).toMatchObject([{ state: "succeeded", value: { square: 144 } }]);
  });

  it.each([
    ["undefined", undefined, ""],
    ["null", null, "null"],
    ["text", "hello", '"hello"'],
    ["a value of 100 kB", "x".repeat(100_000), `"${"x".repeat(100_000)}"`],
  ])("returns %s", async (_what, value, text) => {
    const { client, worker } = await openTestBroker();
    const task = defineTask<null, unknown>("any");
    worker().handle(task, () => value);
    const job = await client.add(task, null);
    expect(await job.result()).toEqual(value);
    expect(await resultsOf(job)).toMatchObject([{ value }]);
    for await (const result of job.results({ follow: true })) expect(result.value).toEqual(value);
    expect((await client.job(job.id).result()).toString()).toBe(text);
  });

  it.each([
    ["cannot be JSON", () => 1n, /^(LABORO_BAD_REPLY): task odd.*BigInt/],
    ["is a function", () => () => 1, /^(LABORO_BAD_REPLY): task odd.*function/],
    ["is too large", () => "x".repeat(2 ** 20), /^(LABORO_BODY_TOO_LARGE): .*odd has 1048578 bytes.* 1048576/],
  ])("fails alone, with a code, where its result %s", async (_what, handler: () => unknown, message) => {
    const { client, worker } = await openTestBroker();
    worker().handle(defineTask<null, unknown>("odd"), handler);
    const job = await client.add(defineTask<null, unknown>("odd"), null);
    // The stack names the line that waits for the result.
    const stack = expect.stringContaining(import.meta.filename);
    const error = (await job.result().catch((thrown) => thrown)) as TaskFailed;
    expect(error).toMatchObject({ code: "LABORO_TASK_FAILED", message, stack });
    expect(error.cause).toMatchObject({ name: "LaboroError", code: message.exec(error.message)?.[1] });
  });

  it("yields results as tasks end, to the end of the job", async () => {
    const { client, worker } = await openTestBroker();
    const finish = new Map<number, () => void>();
    worker({ slots: 3 }).handle(work, async (n) => {
      await new Promise<void>((resolve) => finish.set(n, resolve));
      return { square: n * n };
    });
    const job = await client.addMany(work, [0, 1, 2]);
    const results = job.results({ follow: true });
    const seen: unknown[] = [];
    for (const n of [2, 0, 1]) {
      await until("it runs", () => finish.has(n));
      finish.get(n)?.();
      seen.push((await results.next()).value);
    }
    expect(seen).toMatchObject([{ value: { square: 4 } }, { value: { square: 0 } }, { value: { square: 1 } }]);
    expect((await results.next()).done).toBe(true);
    expect(await job.result({ index: 2 })).toEqual({ square: 4 });
    await expect(job.result({ index: 3 })).rejects.toMatchObject({ code: "LABORO_BAD_INPUT" });
  });

  it("is waited for in any number of jobs at a time", async () => {
    const { client, worker } = await openTestBroker();
    worker({ slots: 8 }).handle(work, (n) => ({ square: n * n }));
    const numbers = Array.from({ length: 1_000 }, (_, n) => n);
    const jobs = await Promise.all(numbers.map((n) => client.add(work, n, { held: true })));
    const results = Promise.all(jobs.map((job) => job.result({ timeoutMs: 60_000 })));
    await Promise.all(jobs.map((job) => job.release()));
    expect((await results).map(({ square }) => square)).toEqual(numbers.map((n) => n * n));
  });

  it("runs at most `concurrency` at a time", async () => {
    const { client, worker } = await openTestBroker();
    let running = 0;
    let most = 0;
    worker({ slots: 4 }).handle(
      work,
      async (n) => {
        most = Math.max(most, ++running);
        await new Promise((resolve) => setImmediate(resolve));
        running--;
        return { square: n };
      },
      { concurrency: 2 },
    );
    expect(await (await client.addMany(work, [1, 2, 3, 4, 5, 6, 7, 8])).wait()).toBe("succeeded");
    expect(most).toBe(2);
  });
});

describe("retries of a handler", () => {
  it("end with NoRetry, and wait as long as RetryAfter says", async () => {
    const { client, worker } = await openTestBroker({ settings: { retryBackoffMs: 60_000 } });
    const begun: number[] = [];
    worker().handle(work, (n, { attempt }) => {
      begun.push(attempt);
      if (attempt === 1) throw new RetryAfter(20);
      throw new NoRetry(`not ${n} again`);
    });
    const job = await client.add(work, 7, { retries: 9 });
    await expect(job.result()).rejects.toMatchObject({ message: "not 7 again", cause: { name: "NoRetry" } });
    expect(begun).toEqual([1, 2]);
    const { earlierAttempts } = await client.ask("task", { job: job.id, index: 0 });
    expect(earlierAttempts).toMatchObject([{ attempt: 1, error: "to be tried again after 20 ms" }]);
  });

  it("wait a hundred years at most, which every store holds", async () => {
    const { client, worker } = await openTestBroker();
    worker().handle(work, () => {
      throw new RetryAfter(1e300);
    });
    const job = await client.add(work, 7, { retries: 1 });
    const find = () => client.ask("task", { job: job.id, index: 0 });
    await until("it has failed once", async () => (await find()).earlierAttempts.length === 1);
    expect((await find()).reason).toMatch(/the next try is in 3649\dd|the next try is in 36500d/);
  });
});

describe("a job that comes after others", () => {
  const total = defineTask<null, number>("total");

  it("reads their results, whatever their number and size", async () => {
    const { client, worker } = await openTestBroker();
    const one = worker({ slots: 4 });
    const part = defineTask<number, string>("part");
    one.handle(part, (n) => "x".repeat(n));
    one.handle(total, async (_input, { results, after }) => {
      let sum = 0;
      for await (const { value = "" } of results(part)) sum += value.length;
      for await (const { value = "" } of results(part, after[1])) sum += value.length;
      return sum;
    });
    const small = await client.addMany(
      part,
      Array.from({ length: 600 }, (_, n) => n % 10),
    );
    const large = await client.addMany(part, [5_000, 100_000]);
    const job = await client.add(total, null, { after: [small, large.id] });
    expect(await job.result()).toBe(600 * 4.5 + 2 * 105_000);
  });

  it("fails with the reason where one of them fails, or decides itself", async () => {
    const { client, worker } = await openTestBroker();
    const one = worker({ slots: 4 });
    one.handle(work, async (n) => {
      await sleep(20);
      if (n === 1) throw Object.assign(new TypeError("no square of one"), { code: "EONE" });
      return { square: n };
    });
    const seen: TaskOutcome<{ square: number }>[] = [];
    one.handle(total, async (_input, { results }) => {
      for await (const outcome of results(work)) seen.push(outcome);
      return seen.filter(({ state }) => state === "failed").length;
    });
    const parts = await client.addMany(work, [0, 1, 2]);
    const strict = await client.add(total, null, { after: parts });
    const lenient = await client.add(total, null, { after: { job: parts, any: true } });
    const cancelled = (job: number) => ({
      code: "LABORO_TASK_CANCELLED",
      message: `a task of job ${job} was cancelled before it ran: task 2 of job 1 failed: no square of one`,
      cause: expect.objectContaining({ job: 1, number: 2, cause: expect.objectContaining({ code: "EONE" }) }),
    });
    await expect(strict.result()).rejects.toMatchObject(cancelled(strict.id));
    expect(await lenient.result()).toBe(1);
    expect(seen.map(({ index, value, thrown }) => [index, value?.square, thrown])).toEqual([
      [0, 0, undefined],
      [1, undefined, expect.objectContaining({ name: "TypeError", message: "no square of one", code: "EONE" })],
      [2, 2, undefined],
    ]);
    // One that is added later ends in the same way, and so does what comes after a cancelled one.
    const late = await client.add(total, null, { after: parts });
    await expect(late.result()).rejects.toMatchObject(cancelled(late.id));
    const next = await client.add(total, null, { after: late });
    await expect(next.result()).rejects.toMatchObject({
      ...{ code: "LABORO_TASK_CANCELLED", cause: expect.objectContaining(cancelled(late.id)) },
    });
  });

  it("gets the results of the jobs of one task, each with the type of that task", async () => {
    const { client, worker } = await openTestBroker();
    const one = worker({ slots: 4 });
    const name = defineTask<string, string>("name");
    one.handle(work, (n) => ({ square: n * n }));
    one.handle(name, (text) => text.toUpperCase());
    one.handle(total, async (_input, { results }) => {
      let sum = 0;
      for await (const one of results(work)) if (one.state === "succeeded") sum += one.value.square;
      for await (const one of results(name)) if (one.state === "succeeded") sum += one.value.length;
      for await (const _ of results(defineTask("none"))) sum = Number.NaN;
      return sum;
    });
    const after = [
      await client.add(name, "abc"),
      await client.addMany(work, [1, 2]),
      await client.submit({ recipe: { kind: "command", argv: ["true"] } }),
    ];
    expect(await (await client.add(total, null, { after })).result()).toBe(5 + 3);
  });

  it("of which one task comes after one of each other job fails with the reason of that one", async () => {
    const { client, worker } = await openTestBroker();
    const one = worker({ slots: 4 });
    one.handle(work, (n) => {
      if (n > 0) throw new RangeError(`no square of ${n}`);
      return { square: 0 };
    });
    one.handle(total, () => 7);
    const parts = await client.addMany(work, [0, 1, 2]);
    const job = await client.addMany(total, [null, null, null], { after: { job: parts, each: true } });
    expect(await job.result({ index: 0 })).toBe(7);
    await expect(job.result({ index: 2 })).rejects.toMatchObject({
      ...{ message: expect.stringContaining("task 3 of job 1 failed: no square of 2"), cause: { index: 2 } },
    });
  });

  it("cannot read the results of jobs that it did not come after", async () => {
    const { client, worker } = await openTestBroker();
    const one = worker();
    one.handle(work, () => ({ square: 1 }));
    one.handle(total, async (_input, { results }) => {
      for await (const _ of results(work, 1));
      return 0;
    });
    await (await client.add(work, 1)).result();
    await expect((await client.add(total, null)).result()).rejects.toMatchObject({
      message: /does not depend on job 1/,
    });
  });
});
