/** Operations that are made for looking: the overview, its past, the picture of a job, pages of workers. */
import { describe, expect, it } from "vitest";
import type { RunningBroker } from "../../src/broker/options.js";
import { BUCKET, HISTORY_FIELDS, KEPT_MS } from "../../src/broker/stats/history.js";
import type { Client } from "../../src/entries/client.js";
import { atEnd } from "../support/at-end.js";
import { proxyTo } from "../support/proxy.js";
import { sh, TRUE } from "../support/recipes.js";
import { until } from "../support/wait.js";
import { openTestBroker } from "./kit.js";

describe("the picture of a job", () => {
  /** Each run as `state count`. */
  async function pictureOf(client: Client, input: { job: number; first?: number; last?: number; cells?: number }) {
    const { runs, states, tasksPerCell } = await client.ask("taskMap", input);
    const shown: string[] = [];
    for (let at = 0; at < runs.length; at += 2) shown.push(`${states[runs[at] ?? 0]} ${runs[at + 1]}`);
    return { shown, tasksPerCell };
  }

  it("has each task where it stands: failed, running, prefetched, waiting, cancelled, succeeded", async () => {
    const { client, worker } = await openTestBroker();
    worker({ slots: 2 });
    const line = 'case "$LABORO_TASK" in 1|2) exit 0;; 3) exit 1;; *) sleep 600;; esac';
    const job = await client.submit({ recipe: sh(line), count: 9 });
    await until("three have ended and two run", async () => {
      const { failed, succeeded, running } = (await job.info()).counters;
      return failed === 1 && succeeded === 2 && running === 2;
    });
    expect((await client.ask("running", { job: job.id })).tasks.map(({ index }) => index)).toEqual([3, 4]);
    expect((await client.ask("status", {})).tasks).toEqual({ running: 2, waiting: 4 });
    expect(await client.ask("task", { job: job.id, index: 4 })).toMatchObject({ state: "running" });
    expect(await client.ask("task", { job: job.id, index: 5 })).toMatchObject({ state: "waiting" });
    const [{ tasks = 0, prefetched = 0 } = {}] = await client.workers();
    expect(tasks - prefetched).toBe(2);
    await client.ask("cancel", { job: job.id, tasks: [{ first: 8, last: 8 }] });
    const { shown } = await pictureOf(client, { job: job.id });
    expect(shown.slice(0, 3)).toEqual(["succeeded 2", "failed 1", "running 2"]);
    expect(shown.at(-1)).toBe("cancelled 1");
    expect(shown.slice(3, -1).join()).toMatch(/^(waiting|prefetched) \d/);
    expect((await pictureOf(client, { job: job.id, first: 1, last: 2 })).shown).toEqual(["succeeded 1", "failed 1"]);
    const cancelled = (more = {}) => client.ask("cancelled", { job: job.id, ...more });
    expect(await cancelled()).toEqual({ tasks: [{ index: 8, number: 9 }] });
    await job.cancel();
    await job.wait();
    expect((await pictureOf(client, { job: job.id })).shown).toEqual(["succeeded 2", "failed 1", "cancelled 6"]);
    const { tasks: some, next = 0 } = await cancelled({ limit: 3 });
    expect([...some, ...(await cancelled({ from: next })).tasks]).toMatchObject([
      ...[3, 4].map((index) => ({ index, result: { state: "cancelled", attempt: 1, number: index + 1 } })),
      ...[5, 6, 7, 8].map((index) => ({ index, number: index + 1 })),
    ]);
    expect((await cancelled({ from: 5 })).tasks.filter(({ result }) => result !== undefined)).toEqual([]);
  });

  it("has of many tasks as many cells as are asked for, and hides no failure", async () => {
    const { client, worker } = await openTestBroker();
    worker({ slots: 4 });
    const job = await client.submit({ recipe: sh("exit $(( LABORO_TASK == 38 ))"), count: 100 });
    await job.wait();
    expect(await pictureOf(client, { job: job.id, cells: 10 })).toEqual({
      shown: ["succeeded 3", "failed 1", "succeeded 6"],
      tasksPerCell: 10,
    });
    const waiting = await client.submit({ recipe: TRUE, count: 1_000_000_000, held: true });
    const { runs, last, tasksPerCell, count } = await client.ask("taskMap", {
      job: waiting.id,
      first: 5,
      cells: 1_000,
    });
    expect([runs, last, tasksPerCell, count]).toEqual([[3, 1_000], 5 + 2 ** 20 - 1, 1_049, 1e9]);
    await waiting.cancel();
    expect((await pictureOf(client, { job: waiting.id, cells: 50 })).shown).toEqual(["cancelled 50"]);
  });
});

describe("pages of workers", () => {
  it("come in the order of use, by name, the busy or the troubled first; filtered; with what runs", async () => {
    const { client, worker } = await openTestBroker();
    for (const name of ["carl", "anna", "bert"]) {
      const one = worker({ name, slots: 1, tags: [`tag-${name}`] });
      await until(`${name} has joined`, () => one.joined);
    }
    const names = async (input: Parameters<typeof client.ask<"workerPage">>[1]) =>
      (await client.ask("workerPage", input)).workers.map(({ name }) => name);
    expect(await names({})).toEqual(["carl", "anna", "bert"]);
    expect(await names({ order: "name" })).toEqual(["anna", "bert", "carl"]);
    expect(await names({ order: "name", from: 1, limit: 1 })).toEqual(["bert"]);
    const job = await client.submit({
      name: "long",
      recipe: sh("sleep 600"),
      tags: ["tag-anna"],
      entries: ["case 7"],
    });
    await until("one is busy", async () => (await names({ state: "busy" })).length === 1);
    expect(await names({})).toEqual(["carl", "bert", "anna"]);
    expect(await names({ order: "busy", limit: 1 })).toEqual(["anna"]);
    expect(await names({ find: "TAG-B" })).toEqual(["bert"]);
    expect(await names({ state: "idle", order: "name" })).toEqual(["bert", "carl"]);
    await client.ask("drain", { worker: "bert" });
    expect(await names({ order: "problems", limit: 1 })).toEqual(["bert"]);
    await until(
      "its start was heard",
      async () => (await client.ask("workerPage", { find: "anna" })).workers[0]?.running[0]?.startedAt !== undefined,
    );
    const { workers, total, matching } = await client.ask("workerPage", { find: "anna" });
    expect({ total, matching }).toEqual({ total: 3, matching: 1 });
    expect(workers[0]?.running).toMatchObject([{ job: job.id, index: 0, name: "long", attempt: 1 }]);
    expect(workers[0]?.position).toBe(2);
    const one = async () => (await client.ask("workerPage", { id: workers[0]?.id ?? "" })).workers;
    expect((await one()).map(({ name, running }) => [name, running[0]?.entry])).toEqual([["anna", "case 7"]]);
    const machine = await until("its machine is known", async () => (await one())[0]?.machine);
    expect(machine.cpus).toBeGreaterThan(0);
    expect(machine.load).toBeGreaterThanOrEqual(0);
    expect(machine.memory).toBeGreaterThan(machine.freeMemory);
    await job.cancel();
  });
});

describe("the overview", () => {
  it("puts what is wrong first, in words, with where to look", async () => {
    const { client, worker, broker } = await openTestBroker({ settings: { graceMs: 60_000 } });
    const stuck = await client.submit({ name: "lonely", recipe: TRUE });
    expect((await client.ask("overview", {})).problems).toMatchObject([
      { kind: "job-stuck", text: "lonely waits: no worker is connected", job: stuck.id, task: 1 },
    ]);
    const network = await proxyTo(Number(new URL(broker.url).port));
    atEnd(() => network.close());
    worker({ name: "one", slots: 1, broker: network.url });
    await stuck.wait();
    const failing = await client.submit({
      name: "failing",
      recipe: sh('[ "$LABORO_TASK" = 1 ] || sleep 600; exit 1'),
      count: 2,
    });
    const problems = async () => (await client.ask("overview", {})).problems;
    await until("it fails", async () => (await problems()).some(({ kind }) => kind === "job-failing"));
    const text = "failing: 1 of 1 tasks have failed so far";
    expect(await problems()).toMatchObject([{ kind: "job-failing", critical: true, text, job: failing.id }]);
    await network.close();
    await until("it is away", async () => (await problems()).some(({ kind }) => kind === "worker-disconnected"));
    expect((await problems()).map(({ kind }) => kind)).toEqual(["job-failing", "worker-disconnected"]);
    const { recentEvents, status } = await client.ask("overview", {});
    expect(recentEvents.map(({ kind }) => kind)).toContain("worker-disconnected");
    expect(recentEvents.map(({ kind }) => kind)).not.toContain("tasks-ended");
    expect(status.tasks.running).toBe(1);
  });

  it("tells of jobs that have failed, few of many", async () => {
    const { client, worker } = await openTestBroker();
    worker({ slots: 4 });
    const jobs = await Promise.all(
      Array.from({ length: 7 }, () => client.submit({ name: "bad", recipe: sh("exit 1") })),
    );
    await Promise.all(jobs.map((job) => job.wait()));
    const { problems } = await client.ask("overview", {});
    expect(problems.map(({ kind, critical, text }) => [kind, critical, text])).toEqual(
      new Array(5).fill(["job-failed", false, "bad failed: 1 of 1 tasks"]),
    );
    expect(problems.map(({ omitted }) => omitted)).toEqual([undefined, undefined, undefined, undefined, 2]);
  });

  it("tells of a queue that is full", async () => {
    const { client, broker } = await openTestBroker({ settings: { maxWaitingRequests: 2 } });
    const waiting = [1, 2].map(() => client.request("nobody", "x", { timeoutMs: 30_000 }).catch(() => undefined));
    await until("the queue is full", async () => (await client.ask("overview", {})).problems.length > 0);
    expect((await client.ask("overview", {})).problems).toMatchObject([
      { kind: "queue-full", critical: true, service: "nobody", text: "nobody: 2 requests wait, new ones are refused" },
    ]);
    await broker.stop();
    await Promise.all(waiting);
  });
});

describe("the history", () => {
  const minute = 60_000;

  it("has a point every few seconds, and keeps minutes in the store over a restart", async () => {
    const setup = await openTestBroker();
    const { client, broker, worker } = setup;
    worker({ slots: 3 });
    await (await client.submit({ recipe: sh("exit $(( LABORO_TASK == 1 ))"), count: 4 })).wait();
    const { history } = broker.core;
    const now = Date.now();
    await history.tick(now);
    const recent = await client.ask("history", {});
    expect(recent.stepMs).toBe(5_000);
    expect([recent.succeeded.at(-1), recent.failed.at(-1), recent.assigned.at(-1)]).toEqual([3, 1, 4]);
    expect([recent.slots.at(-1), recent.workers.at(-1)]).toEqual([3, 1]);
    await history.tick(now + minute);
    const day = await client.ask("history", { span: "day" });
    expect(day.stepMs).toBe(minute);
    expect([day.at.length, day.succeeded, day.failed]).toEqual([1, [3], [1]]);
    const kept = await broker.core.store.keyValues(BUCKET);
    expect(kept).toHaveLength(1);
  });

  it("adds up what brokers of a group did in the same minute, and forgets what is older than a day", async () => {
    const { client, broker } = await openTestBroker();
    const now = Math.floor(Date.now() / minute) * minute;
    const text = (at: number, succeeded: number, waitP50: number): string =>
      JSON.stringify({ fields: ["succeeded", "waitP50"], rows: [[at, succeeded, waitP50]] });
    await broker.core.put(BUCKET, `${now}.71`, text(now, 5, 10));
    await broker.core.put(BUCKET, `${now}.72`, text(now, 7, 30));
    await broker.core.put(BUCKET, `${now - 2 * KEPT_MS}.70`, text(now - 2 * KEPT_MS, 9, 1));
    await broker.core.put(BUCKET, "spoiled", "no JSON");
    const day = await client.ask("history", { span: "day" });
    expect([day.at, day.succeeded, day.waitP50, day.failed]).toEqual([[now], [12], [30], [0]]);
    expect(Object.keys(day).sort()).toEqual(["at", "stepMs", ...HISTORY_FIELDS].sort());
    await broker.core.history.tick(Date.now() + minute);
    const kept = (await broker.core.store.keyValues(BUCKET)).map(({ key }) => key);
    expect(kept).toHaveLength(3);
    expect(kept).not.toContain("spoiled");
  });

  it("is bounded in memory, however long the broker lives", async () => {
    const { broker }: { broker: RunningBroker } = await openTestBroker();
    const { history } = broker.core;
    const now = Date.now();
    for (let at = 0; at < 1_000; at++) await history.tick(now);
    expect(history.recent().length).toBe(720);
  });
});

describe("permissions", () => {
  it("tells each role what it may do", async () => {
    const { broker } = await openTestBroker();
    const { connect } = await import("../../src/entries/client.js");
    const allowed = async (role: "read" | "client" | "worker" | "admin") => {
      const client = await connect({ broker: broker.url, token: broker.tokenOf(role) ?? broker.token });
      const answer = await client.ask("permissions", {});
      client.close();
      return answer;
    };
    const read = await allowed("read");
    expect(read.role).toBe("read");
    expect(read.operations).toContain("overview");
    expect(read.operations).not.toContain("cancel");
    expect((await allowed("client")).operations).toContain("cancel");
    expect((await allowed("client")).operations).not.toContain("drain");
    expect((await allowed("admin")).operations).toContain("connection");
    expect((await allowed("worker")).operations).toEqual(["status", "permissions"]);
  });
});
