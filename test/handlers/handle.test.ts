import { once } from "node:events";
import { setImmediate } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { connect } from "../../src/entries/client.js";
import { bytes, defineTask, type TaskHandler } from "../../src/entries/task.js";
import { startWorker, type TaskEndInfo } from "../../src/entries/worker.js";
import { openCliBroker } from "../cli/support/cli.js";
import { openTestBroker } from "../support/test-broker.js";
import { until } from "../support/wait.js";

const work = defineTask<number, number>("work");

describe("worker.handle", () => {
  it("takes a handler as a module exports it, too", async () => {
    const { client, worker } = await openTestBroker();
    const squares: TaskHandler = work.handler((n) => n * n);
    worker({ slots: 2 }).handle(squares, { concurrency: 1 });
    expect(await (await client.add(work, 12)).result()).toBe(144);
  });

  it("offers a task at any moment of the worker's start", async () => {
    const { broker, client } = await openTestBroker();
    for (let turns = 0; turns < 8; turns++) {
      const task = defineTask<number, number>(`after-${turns}`);
      const worker = startWorker({ broker });
      // A client that connects takes as many steps as the worker.
      if (turns % 2 === 1) (await connect({ broker })).close();
      for (let turn = 1; turn < turns; turn += 2) await setImmediate();
      worker.handle(task, (n) => n);
      expect(await (await client.add(task, turns)).result({ timeoutMs: 10_000 })).toBe(turns);
      await worker.stop();
    }
  });

  it.each<[string, unknown[]]>([
    ["a task without a function", [work]],
    ["a service without a function", ["work"]],
    ["a function that is none", [work, 5]],
    ["no task", [undefined, () => 1]],
    ["a name that is empty", ["", () => ""]],
    ["a name that is too long", ["x".repeat(1025), () => ""]],
    ["no calls at a time", [work, () => 1, { concurrency: 0 }]],
  ])("refuses %s, and what is offered stays", async (_what, given) => {
    const { client, worker } = await openTestBroker();
    const one = worker();
    one.handle(work, (n) => n + 1);
    const handle = one.handle as (...given: unknown[]) => void;
    expect(() => handle(...given)).toThrow(expect.objectContaining({ code: "LABORO_BAD_INPUT" }));
    one.handle("another", () => "");
    expect(await (await client.add(work, 1)).result()).toBe(2);
    await until("both are offered", async () => (await client.workers())[0]?.services.join() === "work,another");
  });

  it("handles one task of a module, in threads of its own", async () => {
    const { client, worker } = await openTestBroker();
    const module = new URL("./tasks.mjs", import.meta.url);
    const one = worker({ slots: 2 });
    const double = defineTask<number, { doubled: number }>("double");
    expect(await one.handle(double, module, { threads: 1 })).toEqual(["double"]);
    expect(await (await client.add(double, 4)).result()).toMatchObject({ doubled: 8 });
    expect((await client.workers())[0]?.services).toEqual(["double"]);
    await expect(one.handle(work, module)).rejects.toMatchObject({
      ...{ code: "LABORO_BAD_INPUT", message: expect.stringMatching(/tasks\.mjs exports no handler of the task work/) },
    });
  });

  it.each(["inline", "in a thread"])("tells a handler %s why its signal is aborted", async (where) => {
    const { client, worker } = await openTestBroker();
    const reason = defineTask<string, never>("reason");
    const one = worker({ slots: 3, cancelGraceMs: 5_000 });
    const codes: string[] = [];
    const ended = (end: TaskEndInfo) =>
      codes.push(`${end.task} ${(end.thrown as { code?: string } | undefined)?.code}`);
    const other = worker({ slots: 3, cancelGraceMs: 5_000, onTaskEnded: ended });
    await one.stop();
    if (where === "inline")
      other.handle(
        reason,
        (_input, { signal }) =>
          new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))),
      );
    else await other.handle(new URL("./tasks.mjs", import.meta.url));
    const running = async (options = {}) => {
      const job = await client.add(reason, "", options);
      await until("it runs", async () => (await job.explain(0)).startsWith("it runs"));
      return job;
    };
    await (await running()).cancel();
    await until("it has ended", () => codes.length === 1);
    await (await client.add(reason, "", { timeLimitMs: 50 })).wait();
    expect(codes).toEqual(["reason LABORO_TASK_CANCELLED", "reason LABORO_DEADLINE"]);
    const call = client.call(reason, "", { timeoutMs: 30_000 });
    await until("it runs", async () => (await client.workers()).some(({ requests }) => requests === 1));
    void other.stop({ finish: false, graceMs: 5_000 });
    await expect(call).rejects.toMatchObject({ cause: { code: "LABORO_WORKER_STOPPING" } });
  });

  it("reports each end of an attempt, whatever the report throws", async () => {
    const { client, worker } = await openTestBroker({ settings: { retryBackoffMs: 10 } });
    const ends: TaskEndInfo[] = [];
    const onTaskEnded = (end: TaskEndInfo): void => {
      ends.push(end);
      throw new Error("from the hook");
    };
    worker({ slots: 1, onTaskEnded }).handle(work, (n, { attempt }) => {
      if (attempt === 1) throw Object.assign(new TypeError("not yet"), { code: "EARLY" });
      return n;
    });
    const job = await client.addMany(work, [7], { retries: 1 });
    expect(await job.result()).toBe(7);
    const command = await client.submit({ recipe: { kind: "command", argv: ["sh", "-c", "exit 3"] } });
    expect(await command.wait()).toBe("failed");
    const common = { job: job.id, index: 0, number: 1, task: "work", ms: expect.any(Number) };
    expect(ends).toMatchObject([
      { ...common, attempt: 1, state: "failed", thrown: { name: "TypeError", message: "not yet", code: "EARLY" } },
      { ...common, attempt: 2, state: "succeeded" },
      { job: command.id, attempt: 1, state: "failed", thrown: { message: "it ended with 3" } },
    ]);
  });

  it("warns where a function blocks its process for longer than a heartbeat, also without a log", async () => {
    const { client, worker } = await openTestBroker({ heartbeatMs: 100 });
    worker().handle(work, (ms) => {
      const end = performance.now() + ms;
      while (performance.now() < end);
      return ms;
    });
    const warned = once(process, "warning");
    await (await client.add(work, 400)).result();
    const [warning] = await warned;
    expect(String(warning)).toMatch(/laboro: the event loop was blocked .* threads \(here: work\)/);
  });
});

describe("progress", () => {
  it("is shown by status while the task runs, and its last value arrives before the result", async () => {
    const setup = await openCliBroker();
    let finish = (): void => {};
    setup.worker({ name: "w" }).handle(work, async (n, { progress }) => {
      progress({ done: 1, of: n });
      await new Promise<void>((resolve) => (finish = resolve));
      for (let done = 2; done <= n; done++) progress({ done, of: n });
      return n;
    });
    const seen: unknown[] = [];
    setup.broker.core.events.onAdded((event) =>
      seen.push(event.kind === "task-progress" ? event.progress : event.kind),
    );
    const job = await setup.client.add(work, 1_000);
    const shown = async (): Promise<string> => (await setup.laboro(["status", String(job.id)])).stdout;
    await until("it is shown", async () => (await shown()).includes('{"done":1,"of":1000}'));
    expect(await shown()).toMatch(/TASK +WORKER +STATE +PROGRESS\n/);
    finish();
    expect(await job.result()).toBe(1_000);
    const last = seen.indexOf('{"done":1000,"of":1000}');
    expect(last).toBeGreaterThan(0);
    expect(seen.indexOf("tasks-ended")).toBeGreaterThan(last);
  });
});

describe("client.call", () => {
  it("asks any service that speaks JSON, and refuses an answer that is none", async () => {
    const { client, worker } = await openTestBroker();
    const one = worker();
    one.handle("json", (body) => JSON.stringify({ got: JSON.parse(body.toString()) }));
    one.handle("text", () => "no JSON");
    expect(await client.call("json", { a: [1] })).toEqual({ got: { a: [1] } });
    await expect(client.call("text", 1)).rejects.toMatchObject({ code: "LABORO_BAD_REPLY" });
    await expect(client.call("json", 1n)).rejects.toMatchObject({ code: "LABORO_BAD_INPUT" });
  });

  it("sends and returns bytes as they are, none as well", async () => {
    const { client, worker } = await openTestBroker();
    const echo = defineTask("echo", { input: bytes, output: bytes });
    worker().handle(echo, (body) => body);
    for (const given of [Buffer.alloc(0), Buffer.from([0, 255, 10])]) {
      expect(await client.call(echo, given)).toEqual(given);
      expect(await (await client.add(echo, given)).result()).toEqual(given);
    }
  });

  it("knows nothing from a line that was logged: the result of a handler that returns nothing is undefined", async () => {
    const { client, worker } = await openTestBroker();
    worker().handle(defineTask("quiet"), (_input, { log }) => log("a line"));
    expect(await (await client.add(defineTask("quiet"), 1)).result()).toBeUndefined();
  });
});
