import { describe, expect, it } from "vitest";
import type { Handler } from "../../src/entries/worker.js";
import { startBroker } from "../../src/server.js";
import { REQUEST_INFO, ServiceCall, type ServiceReply } from "../../src/worker/services.js";
import { atEnd } from "../support/at-end.js";
import { openTestBroker, resultsOf } from "../support/test-broker.js";
import { text } from "../support/text.js";
import { until } from "../support/wait.js";

const call = (service: string) => ({ kind: "call" as const, service });
/** What JavaScript lets a handler return. */
const returning = (value: unknown): Handler => (() => value) as unknown as Handler;
const forever: Handler = () => new Promise(() => {});

describe("a handler that never ends", () => {
  it("is settled past its time limit and grace, and its slot is free", async () => {
    const { client, worker } = await openTestBroker();
    worker({ slots: 1, cancelGraceMs: 50, services: { forever, quick: () => "ok" } });
    const job = await client.submit({ recipe: call("forever"), timeLimitMs: 50 });
    expect(await job.wait()).toBe("failed");
    expect(await resultsOf(job)).toMatchObject([{ timedOut: true, error: expect.stringContaining("forever") }]);
    expect(text(await client.request("quick"))).toBe("ok");
  });

  it("is settled past the grace of a cancel, and its late result is dropped", async () => {
    const { client, worker } = await openTestBroker();
    let finish: (value: string) => void = () => {};
    const late: Handler = () => new Promise((resolve) => (finish = resolve));
    worker({ slots: 1, cancelGraceMs: 50, services: { late, quick: () => "ok" } });
    const job = await client.submit({ recipe: call("late") });
    await until("it runs", async () => (await job.explain(0)).startsWith("it runs"));
    await job.cancel();
    expect(await job.wait()).toBe("cancelled");
    finish("late");
    expect(text(await client.request("quick"))).toBe("ok");
    expect(await job.text(0)).toBe("");
    expect((await job.info()).counters).toMatchObject({ cancelled: 1, succeeded: 0 });
  });

  it("frees its slot past the grace after its client has given up", async () => {
    const { client, worker } = await openTestBroker();
    worker({ slots: 1, cancelGraceMs: 50, services: { forever, quick: () => "ok" } });
    await expect(client.request("forever", "", { timeoutMs: 50 })).rejects.toMatchObject({ code: "LABORO_DEADLINE" });
    expect(text(await client.request("quick"))).toBe("ok");
  });

  it("is settled at the end of the first grace, however long a later one is", async () => {
    const port = { progress: () => {}, log: () => {}, results: () => Promise.reject(new Error("none")) };
    const reply = await new Promise<ServiceReply>((resolve) => {
      const call = new ServiceCall("slow", REQUEST_INFO, port, resolve);
      call.abort(1, new Error("cancelled"));
      call.abort(60_000, new Error("the worker stops"));
    });
    expect(text(reply.body)).toContain("cancelled, and the handler did not end within 1 ms");
  });

  it("does not keep stop() from returning within its grace: the task runs elsewhere, the request is lost", async () => {
    const { client, worker } = await openTestBroker();
    let begun = 0;
    const hang: Handler = (...given) => {
      begun++;
      return forever(...given);
    };
    const first = worker({ services: { hang } });
    const job = await client.submit({ recipe: call("hang") });
    const request = client.request("hang");
    request.catch(() => {});
    await until("both have begun", () => begun === 2);
    const before = performance.now();
    await first.stop({ graceMs: 200 });
    expect(performance.now() - before).toBeLessThan(20_000);
    await expect(request).rejects.toMatchObject({ code: "LABORO_WORKER_LOST" });
    worker({ services: { hang: () => "done" } });
    expect(await job.wait()).toBe("succeeded");
  });
});

describe("what a handler returns", () => {
  it.each([
    ["an object", { a: 1 }],
    ["a number", 42],
    ["null", null],
    ["an array", [1]],
    ["a promise of an object", Promise.resolve({ a: 1 })],
  ])("fails that call alone where it cannot be sent: %s", async (_what, value) => {
    const { client, worker } = await openTestBroker();
    let finish: (value: string) => void = () => {};
    const slow: Handler = () => new Promise((resolve) => (finish = resolve));
    worker({ services: { odd: returning(value), slow } });
    const beside = client.request("slow");
    const refused = { code: "LABORO_BAD_REPLY", message: expect.stringContaining("service odd") };
    await expect(client.request("odd", "", { retry: true })).rejects.toMatchObject(refused);
    const job = await client.submit({ recipe: call("odd") });
    expect(await job.wait()).toBe("failed");
    expect(await resultsOf(job)).toMatchObject([{ error: expect.stringMatching(/^LABORO_BAD_REPLY: service odd/) }]);
    finish("still here");
    expect(text(await beside)).toBe("still here");
  });

  it("is awaited where it is a thenable", async () => {
    const { client, worker } = await openTestBroker();
    // biome-ignore lint/suspicious/noThenProperty: a thenable is the subject.
    worker({ services: { lazy: returning({ then: (resolve: (value: string) => void) => resolve("at last") }) } });
    expect(text(await client.request("lazy"))).toBe("at last");
    const job = await client.submit({ recipe: call("lazy") });
    expect(await job.wait()).toBe("succeeded");
    expect(await job.text(0)).toBe("at last");
  });

  it("fails where it throws what has no text", async () => {
    const { client, worker } = await openTestBroker();
    worker({ services: { odd: () => Promise.reject(Object.create(null)) } });
    await expect(client.request("odd")).rejects.toMatchObject({ code: "LABORO_SERVICE_FAILED" });
  });

  it("is whole, or fails with a code where the job does not keep so much", async () => {
    const { client, worker } = await openTestBroker();
    worker({ services: { fill: (body) => "x".repeat(Number(text(body))) } });
    const job = await client.submit({ recipe: call("fill"), entries: ["1000", "1001"], outputCap: 1000, retries: 3 });
    expect(await job.wait()).toBe("failed");
    expect(await job.text(0)).toBe("x".repeat(1000));
    const [, over] = await resultsOf(job);
    // Another try would not make it smaller.
    expect(over).toMatchObject({
      attempt: 1,
      state: "failed",
      error: expect.stringMatching(/^LABORO_BODY_TOO_LARGE: .*fill/),
    });
  });
});

describe("stop()", () => {
  it("lets a handler finish, and its result is recorded", async () => {
    const { client, worker } = await openTestBroker();
    let finish: (value: string) => void = () => {};
    let calls = 0;
    const slow: Handler = () => {
      calls++;
      return new Promise((resolve) => (finish = resolve));
    };
    const first = worker({ services: { slow } });
    const job = await client.submit({ recipe: call("slow") });
    await until("it runs", () => calls === 1);
    const stopped = first.stop();
    worker({ services: { slow } });
    finish("mail sent");
    await stopped;
    expect(await job.wait()).toBe("succeeded");
    expect([calls, await job.text(0)]).toEqual([1, "mail sent"]);
  });

  it("stops tasks at once with finish: false, and lets a request be answered within the grace", async () => {
    const { client, worker } = await openTestBroker();
    let finish: (value: string) => void = () => {};
    let begun = false;
    let aborted = false;
    const slow: Handler = (_body, { signal }) => {
      begun = true;
      signal.addEventListener("abort", () => (aborted = true));
      return new Promise((resolve) => (finish = resolve));
    };
    const first = worker({ services: { slow } });
    const answer = client.request("slow");
    await until("it runs", () => begun);
    const stopped = first.stop({ finish: false });
    await until("the broker knows", async () => (await client.workers())[0]?.draining === true);
    finish("in time");
    expect(text(await answer)).toBe("in time");
    await stopped;
    expect(aborted).toBe(false);
  });

  it("records what a handler returns after its abort, within the grace", async () => {
    const { client, worker } = await openTestBroker();
    let calls = 0;
    const careful: Handler = (_body, { signal }) => {
      calls++;
      return new Promise((resolve) => signal.addEventListener("abort", () => resolve("done all the same")));
    };
    const first = worker({ services: { careful } });
    const job = await client.submit({ recipe: call("careful") });
    await until("it runs", () => calls === 1);
    await first.stop({ finish: false });
    expect(await job.wait()).toBe("succeeded");
    expect([calls, await job.text(0)]).toEqual([1, "done all the same"]);
  });

  it("waits for a broker that comes back within the grace, and delivers the result", async () => {
    const { broker, client, dir, worker } = await openTestBroker();
    let finish: (value: string) => void = () => {};
    let calls = 0;
    const slow: Handler = () => {
      calls++;
      return new Promise((resolve) => (finish = resolve));
    };
    const first = worker({ services: { slow } });
    const job = await client.submit({ recipe: call("slow") });
    await until("it runs", () => calls === 1);
    await broker.stop();
    await until("the link is down", () => !first.joined);
    finish("mail sent");
    const stopped = first.stop();
    const again = await startBroker({ dir: `${dir}/data`, port: Number(new URL(broker.url).port) });
    atEnd(() => again.stop());
    await stopped;
    expect(await job.wait()).toBe("succeeded");
    expect([calls, await job.text(0)]).toEqual([1, "mail sent"]);
  });

  it("returns at the end of the grace where no broker comes back", async () => {
    const { broker, client, worker } = await openTestBroker();
    let finish: (value: string) => void = () => {};
    let calls = 0;
    const slow: Handler = () => {
      calls++;
      return new Promise((resolve) => (finish = resolve));
    };
    const first = worker({ services: { slow } });
    await client.submit({ recipe: call("slow") });
    await until("it runs", () => calls === 1);
    await broker.stop();
    finish("in vain");
    await first.stop({ graceMs: 200 });
  });

  it("ends a program that ignores SIGTERM within the grace, at work or not", async () => {
    const { client, worker } = await openTestBroker();
    const command =
      "trap '' TERM; while read line; do case $line in hang) while :; do sleep 0.05; done;; esac; echo $line; done; sleep 60";
    const first = worker({ slots: 2, programs: { stubborn: { command, mode: "lines" } } });
    expect(text(await client.request("stubborn", "hello"))).toBe("hello");
    const hanging = client.request("stubborn", "hang");
    const job = await client.submit({ recipe: call("stubborn"), entries: ["hang"] });
    await until("both slots are used", async () => (await job.explain(0)).startsWith("it runs"));
    const before = performance.now();
    await Promise.all([
      first.stop({ graceMs: 400 }),
      expect(hanging).rejects.toMatchObject({ code: "LABORO_WORKER_LOST" }),
    ]);
    expect(performance.now() - before).toBeLessThan(20_000);
  });
});
