import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { LaboroError } from "../../src/base/errors.js";
import { METRICS } from "../../src/broker/api/metrics.js";
import { Histogram } from "../../src/broker/stats/counters.js";
import { until } from "../support/wait.js";
import { ask, openListener, openTestBroker } from "./kit.js";

/** The value of each series, as `name{labels}`. */
function series(text: string): Map<string, number> {
  const lines = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  return new Map(
    lines.map((line) => {
      const found = /^(\w+(?:\{[^}]*\})?) (\S+)$/.exec(line);
      if (found === null) throw new Error(`not a sample: ${line}`);
      return [found[1] ?? "", Number(found[2])];
    }),
  );
}

describe("/metrics", () => {
  it("counts what was done, in the text that Prometheus reads", async () => {
    const { broker, client, worker } = await openTestBroker();
    worker({ name: "one", slots: 3, services: { shout: (body) => Buffer.from(body).toString().toUpperCase() } });
    const recipe = { kind: "command" as const, argv: ["/bin/sh", "-c", "exit $((LABORO_TASK - 1))"] };
    await (await client.submit({ recipe, count: 3 })).wait();
    const held = await client.submit({ recipe, count: 5, held: true });
    await client.submit({ recipe, delayMs: 3_600_000 });
    await client.submit({ recipe, delayMs: 3_600_000, after: [{ job: held.id, any: true }] });
    await client.request("shout", "hey");
    const answer = await ask(`${broker.url}/metrics`, { token: broker.tokenOf("read") });
    expect([answer.status, answer.headers["content-type"]]).toEqual([200, "text/plain; version=0.0.4; charset=utf-8"]);
    const found = series(answer.text);
    expect(found.get('laboro_tasks_ended_total{state="succeeded"}')).toBe(1);
    expect(found.get('laboro_tasks_ended_total{state="failed"}')).toBe(2);
    expect(found.get("laboro_tasks_assigned_total")).toBe(3);
    expect(found.get('laboro_jobs{state="held"}')).toBe(1);
    expect(found.get('laboro_jobs{state="blocked"}')).toBe(1);
    expect(found.get('laboro_jobs{state="delayed"}')).toBe(1);
    expect((await client.ask("status", {})).jobs).toMatchObject({ held: 1, blocked: 1, delayed: 1 });
    expect(found.get('laboro_tasks{state="waiting"}')).toBe(6);
    expect(found.get('laboro_workers{state="connected"}')).toBe(1);
    expect(found.get('laboro_slots{state="free"}')).toBe(3);
    expect(found.get('laboro_requests_completed_total{outcome="ok"}')).toBe(1);
    expect(found.get('laboro_service_requests_completed_total{service="shout",pool="default"}')).toBe(1);
    expect(found.get("laboro_refusing")).toBe(0);
    expect(found.get("laboro_task_duration_seconds_count")).toBe(3);
    expect(found.get('laboro_task_duration_seconds_bucket{le="+Inf"}')).toBe(3);
    expect(found.get("laboro_process_resident_bytes")).toBeGreaterThan(1e6);
    // Buckets hold all that is below them.
    const buckets = [...found].filter(([name]) => name.startsWith("laboro_task_wait_seconds_bucket"));
    expect(buckets.length).toBeGreaterThan(10);
    const counts = buckets.map(([, value]) => value);
    expect(counts).toEqual([...counts].sort((a, b) => a - b));
  });

  it("shows what is used of each limit, and what waits for it", async () => {
    const { broker, client, worker } = await openTestBroker();
    await client.ask("limitSet", { name: "api", running: 1, rate: { starts: 3, intervalMs: 3_600_000 } });
    await client.ask("limitSet", { name: "disk", running: 7 });
    worker({ name: "one", slots: 3 });
    const job = await client.submit({
      recipe: { kind: "command", argv: ["sleep", "60"] },
      count: 5,
      limits: ["api", "disk"],
    });
    await client.submit({ recipe: { kind: "command", argv: ["true"] }, held: true, limits: ["api"] });
    await until("one runs", async () => (await job.info()).counters.running === 1);
    const found = series((await ask(`${broker.url}/metrics`, { token: broker.tokenOf("read") })).text);
    const of = (name: string, limit: string): number | undefined => found.get(`laboro_limit_${name}{limit="${limit}"}`);
    expect(
      ["tasks_running", "max_running", "tasks_waiting", "starts", "max_starts"].map((name) => of(name, "api")),
    ).toEqual([1, 1, 4, 1, 3]);
    expect(["tasks_running", "max_running", "tasks_waiting", "starts"].map((name) => of(name, "disk"))).toEqual([
      ...[1, 7, 4, undefined],
    ]);
    await job.cancel();
  });

  it("has a name, a type and a help for every metric, and no series twice", async () => {
    const { broker } = await openListener();
    const { text } = await ask(`${broker.url}/metrics`, { token: broker.token });
    for (const { name, type, help } of METRICS) {
      expect(text).toContain(`# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`);
    }
    const names = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
    expect(new Set(names.map((line) => line.split(" ")[0])).size).toBe(names.length);
  });

  it("needs a token that may look", async () => {
    const { broker } = await openListener();
    const status = async (token?: string): Promise<number> => (await ask(`${broker.url}/metrics`, { token })).status;
    expect(await status()).toBe(401);
    expect(await status("guess-guess-guess")).toBe(401);
    expect(await status(broker.tokenOf("worker"))).toBe(403);
    expect(await status(broker.tokenOf("read"))).toBe(200);
    const elsewhere = { token: broker.token, headers: { host: "evil.example" } };
    expect((await ask(`${broker.url}/metrics`, elsewhere)).status).toBe(421);
  });

  it("says that nothing is taken while it is so", async () => {
    const { broker } = await openListener();
    Object.defineProperty(broker.core, "refusing", { get: () => new LaboroError("LABORO_DISK_FULL", "full") });
    const { text } = await ask(`${broker.url}/metrics`, { token: broker.token });
    expect(series(text).get("laboro_refusing")).toBe(1);
    expect((await ask(`${broker.url}/healthz`)).status).toBe(200);
    expect((await ask(`${broker.url}/readyz`)).status).toBe(503);
  });
});

describe("docs/reference/metrics.md", () => {
  it("has every metric as it is in the code", () => {
    const page = readFileSync(new URL("../../docs/reference/metrics.md", import.meta.url), "utf8");
    const rows = Array.from(page.matchAll(/^\| `(laboro_\w+)` \| (\w+) \| .* \| (.+) \|$/gm), ([, ...row]) => row);
    expect(rows).toEqual(METRICS.map(({ name, type, help }) => [name, type, help]));
  });
});

describe("a spread of times", () => {
  it("counts each in the bucket whose bound it does not exceed", () => {
    const spread = new Histogram();
    for (const ms of [0, 0.5, 1, 1.5, 2, 2.1, 1024, 1025, 2 ** 40]) spread.add(ms);
    expect([...spread.counts.slice(0, 3), spread.counts[10], spread.counts[11], spread.counts[28]]).toEqual([
      3, 2, 1, 1, 1, 1,
    ]);
    expect(spread.count).toBe(9);
  });

  it("tells a quantile within a factor of two, and of what came since", () => {
    const spread = new Histogram();
    for (let ms = 1; ms <= 1000; ms++) spread.add(ms);
    expect(spread.quantile(0.5)).toBeGreaterThan(300);
    expect(spread.quantile(0.5)).toBeLessThan(800);
    const before = spread.copy();
    spread.add(8, 100);
    const news = spread.since(before);
    expect([news.count, news.sum]).toEqual([100, 800]);
    expect(news.quantile(0.95)).toBeLessThanOrEqual(8);
    expect(new Histogram().quantile(0.5)).toBe(0);
  });
});
