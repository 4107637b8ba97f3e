import { describe, expect, it } from "vitest";
import { openTestBroker, resultsOf } from "../support/test-broker.js";
import { text } from "../support/text.js";
import { until } from "../support/wait.js";

describe("a request", () => {
  it("is answered by a worker that offers the service", async () => {
    const { client, worker } = await openTestBroker();
    worker({ services: { shout: (body) => text(body).toUpperCase() } });
    expect(text(await client.request("shout", "hello"))).toBe("HELLO");
  });

  it("waits for a worker that comes later, or for a service that is offered later", async () => {
    const { client, worker } = await openTestBroker();
    const early = client.request("late", "x");
    const late = worker();
    late.handle("late", (body) => `${text(body)}!`);
    expect(text(await early)).toBe("x!");
  });

  it("carries the service's own words when it fails", async () => {
    const { client, worker } = await openTestBroker();
    worker({
      services: {
        never: () => {
          throw new Error("no paper");
        },
        rejects: () => Promise.reject(new Error("no ink")),
      },
    });
    await expect(client.request("never")).rejects.toMatchObject({ code: "LABORO_SERVICE_FAILED", message: "no paper" });
    await expect(client.request("rejects")).rejects.toMatchObject({ code: "LABORO_SERVICE_FAILED", message: "no ink" });
  });

  it("is refused at its deadline, and its handler hears that nobody waits", async () => {
    const { client, worker } = await openTestBroker();
    let aborted = false;
    const slow = (_body: Uint8Array, { signal }: { signal: AbortSignal }): Promise<string> =>
      new Promise((resolve) => {
        signal.addEventListener("abort", () => {
          aborted = true;
          resolve("too late");
        });
      });
    worker({ slots: 1, services: { slow, quick: () => "ok" } });
    await expect(client.request("slow", "", { timeoutMs: 100 })).rejects.toMatchObject({ code: "LABORO_DEADLINE" });
    await until("the handler heard of it", () => aborted);
    expect(text(await client.request("quick"))).toBe("ok");
  });

  it("is refused at once when as many wait as the broker keeps", async () => {
    const { client } = await openTestBroker({ settings: { maxWaitingRequests: 2 } });
    const waiting = [client.request("none", "", { timeoutMs: 500 }), client.request("none", "", { timeoutMs: 500 })];
    await expect(client.request("none")).rejects.toMatchObject({ code: "LABORO_QUEUE_FULL" });
    for (const one of waiting) await expect(one).rejects.toMatchObject({ code: "LABORO_DEADLINE" });
  });

  it("is refused when its worker is lost, or answered by another where it may be done twice", async () => {
    const { client, worker, broker } = await openTestBroker();
    let begun = 0;
    const hang = (): Promise<string> => {
      begun++;
      return new Promise(() => {});
    };
    const first = worker({ services: { job: hang } });
    await until("the worker has joined", () => first.joined);
    const once = client.request("job", "once");
    const twice = client.request("job", "twice", { retry: true });
    once.catch(() => {});
    await until("both are at the worker", () => begun === 2);
    worker({ services: { job: (body) => `second: ${text(body)}` } });
    await until("the other worker has joined", async () => (await client.workers()).length === 2);
    broker.core.portOf(first.id)?.close("lost for the test");
    await expect(once).rejects.toMatchObject({ code: "LABORO_WORKER_LOST" });
    expect(text(await twice)).toBe("second: twice");
  });

  it("goes to the worker that was used longest ago", async () => {
    const { client, worker } = await openTestBroker();
    for (const name of ["a", "b", "c"]) worker({ name, services: { who: () => name } });
    await until("all have joined", async () => (await client.workers()).length === 3);
    const answers: string[] = [];
    for (let i = 0; i < 9; i++) answers.push(text(await client.request("who")));
    expect(new Set(answers.slice(0, 3)).size).toBe(3);
    expect(answers.slice(3, 6)).toEqual(answers.slice(0, 3));
    expect(answers.slice(6, 9)).toEqual(answers.slice(0, 3));
  });

  it("passes a large body through untouched", async () => {
    const { client, worker } = await openTestBroker();
    worker({ services: { echo: (body) => body } });
    const body = Buffer.alloc(5_000_000, "0123456789abcdef");
    expect(Buffer.from(await client.request("echo", body)).equals(body)).toBe(true);
  });

  it("can be made durable as a batch of calls", async () => {
    const { client, worker } = await openTestBroker();
    const job = await client.submit({ recipe: { kind: "call", service: "double" }, entries: ["1", "2", "x"] });
    worker({
      services: {
        double: (body) => {
          const number = Number(text(body));
          if (Number.isNaN(number)) throw new Error("not a number");
          return String(2 * number);
        },
      },
    });
    expect(await job.wait()).toBe("failed");
    expect([await job.text(0), await job.text(1)]).toEqual(["2", "4"]);
    expect((await resultsOf(job))[2]).toMatchObject({ state: "failed", error: "not a number" });
  });
});
