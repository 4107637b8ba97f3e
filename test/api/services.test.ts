import { describe, expect, it } from "vitest";
import { ServiceStats } from "../../src/broker/stats/counters.js";
import { until } from "../support/wait.js";
import { apiOf, codeOf, messageOf, openTestBroker } from "./kit.js";

const message = (body: string | Buffer, headers: Readonly<Record<string, string>> = {}) => ({
  method: "POST",
  body,
  headers: { "content-type": "text/plain", ...headers },
});

describe("a request over HTTP", () => {
  it("is refused with a status that fits", async () => {
    const { broker, worker } = await openTestBroker({ settings: { maxWaitingRequests: 1 } });
    const api = apiOf(broker);
    const one = worker({
      slots: 1,
      services: {
        breaks: () => {
          throw new Error("no paper");
        },
        hangs: () => new Promise(() => {}),
      },
    });
    await until("the worker has joined", () => one.joined);
    const broken = await api("/services/breaks", message("x"));
    expect([broken.status, codeOf(broken), messageOf(broken)]).toEqual([502, "LABORO_SERVICE_FAILED", "no paper"]);
    const slow = await api("/services/hangs?timeoutMs=50", message("x"));
    expect([slow.status, codeOf(slow)]).toEqual([504, "LABORO_DEADLINE"]);
    const byHeader = await api("/services/nobody", message("x", { "laboro-timeout-ms": "30" }));
    expect([byHeader.status, codeOf(byHeader)]).toEqual([504, "LABORO_DEADLINE"]);
    const first = api("/services/none?timeoutMs=300", message("x"));
    await until(
      "one waits",
      async () => ((await api("/status")).json as { requests: { waiting: number } }).requests.waiting === 1,
    );
    const full = await api("/services/none", message("x"));
    expect([full.status, codeOf(full)]).toEqual([503, "LABORO_QUEUE_FULL"]);
    await first;
  });

  it("is forgotten when its asker goes away", async () => {
    const { broker } = await openTestBroker();
    const api = apiOf(broker);
    const stop = new AbortController();
    const cut = api("/services/none", { ...message("x"), signal: stop.signal }).catch(() => "cut");
    const waiting = async (): Promise<number> =>
      ((await api("/status")).json as { requests: { waiting: number } }).requests.waiting;
    await until("it waits", async () => (await waiting()) === 1);
    stop.abort();
    await cut;
    await until("it is forgotten", async () => (await waiting()) === 0);
  });

  it("of a name with all kinds of letters reaches its service, in its pool", async () => {
    const { broker, worker } = await openTestBroker();
    worker({ pool: "other", services: { "a/b ü?": () => "there" } });
    const answer = await apiOf(broker)(`/services/${encodeURIComponent("a/b ü?")}?pool=other`, message(""));
    expect([answer.status, answer.text, answer.headers["content-type"]]).toEqual([
      200,
      "there",
      "application/octet-stream",
    ]);
  });
});

describe("the figures of services", () => {
  it("have rate and latency of a bounded window", () => {
    const figures = new ServiceStats();
    const start = 1_000_000;
    for (let i = 0; i < 5_000; i++) figures.add("s", "p", start + i, i < 4_000 ? 999 : i % 100, false);
    const { completed, rate, latencyMs } = figures.of("s", "p", start + 5_000);
    expect([completed, rate]).toEqual([5_000, 5_000 / 60]);
    expect(latencyMs?.p50).toBeLessThan(60);
    expect(latencyMs?.p99).toBeGreaterThan(90);
    expect(figures.of("s", "p", start + 120_000).rate).toBe(0);
    for (let i = 0; i < 3_000; i++) figures.add(`s${i}`, "p", start, 1, true);
    expect(figures.names()).toHaveLength(1_000);
    expect(figures.of("never", "p", start)).toEqual({ completed: 0, failed: 0, rate: 0 });
  });
});
