import { getEventListeners } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Worker as Thread } from "node:worker_threads";
import { describe, expect, it } from "vitest";
import { connect } from "../../src/entries/client.js";
import { dial } from "../../src/protocols/laboro/dial.js";
import { LINK_VERSION, type ToClient } from "../../src/protocols/laboro/messages.js";
import { startBroker } from "../../src/server.js";
import { atEnd } from "../support/at-end.js";
import { proxyTo } from "../support/proxy.js";
import { NOTHING, TRUE } from "../support/recipes.js";
import { openTestBroker } from "../support/test-broker.js";
import { text } from "../support/text.js";
import { until } from "../support/wait.js";

const portOf = (url: string): number => Number(new URL(url).port);

/** A setup whose client goes through a proxy. */
async function proxied() {
  const setup = await openTestBroker();
  const proxy = await proxyTo(portOf(setup.broker.url));
  atEnd(() => proxy.close());
  const client = await connect({ broker: proxy.url, token: setup.broker.token });
  atEnd(() => client.close());
  return { ...setup, direct: setup.client, client, proxy };
}

describe("a client without a broker", () => {
  it("rejects at its own deadline, and what has expired is not executed when the broker is back", async () => {
    const { broker, client, dir, worker } = await openTestBroker();
    let calls = 0;
    const count = () => {
      calls++;
      return "counted";
    };
    const only = worker({ services: { count } });
    await broker.stop();
    await until("the link is down", () => !only.joined);
    const timeoutMs = 100;
    const late = { code: "LABORO_DEADLINE" };
    await Promise.all([
      expect(client.request("count", "", { timeoutMs })).rejects.toMatchObject(late),
      expect(client.submit({ recipe: TRUE }, { timeoutMs })).rejects.toMatchObject(late),
      expect(client.ask("jobs", {}, { timeoutMs })).rejects.toMatchObject(late),
      expect(client.job(1).wait({ timeoutMs })).rejects.toMatchObject(late),
    ]);
    const again = await startBroker({ dir: `${dir}/data`, port: portOf(broker.url) });
    atEnd(() => again.stop());
    expect(text(await client.request("count"))).toBe("counted");
    expect(calls).toBe(1);
    expect((await client.jobs()).jobs).toEqual([]);
  });

  it("refuses a time that is none", async () => {
    const { client } = await openTestBroker();
    for (const timeoutMs of [0, -1, Number.NaN, Number.POSITIVE_INFINITY, "5" as unknown as number])
      await expect(client.request("x", "", { timeoutMs })).rejects.toMatchObject({ code: "LABORO_BAD_INPUT" });
  });
});

describe("a signal", () => {
  it("rejects at once with its reason, before and after the message was sent, and is left without listeners", async () => {
    const { client, worker } = await openTestBroker();
    let aborted = 0;
    const hang = (_body: Uint8Array, { signal }: { signal: AbortSignal }) =>
      new Promise<string>((resolve) => {
        signal.addEventListener("abort", () => {
          aborted++;
          resolve("");
        });
      });
    worker({ services: { hang, ...NOTHING } });
    const before = AbortSignal.abort("changed my mind");
    await expect(client.request("hang", "", { signal: before })).rejects.toBe("changed my mind");
    await expect(client.submit({ recipe: TRUE }, { signal: before })).rejects.toBe("changed my mind");
    expect((await client.jobs()).jobs).toEqual([]);
    const { signal, abort } = newSignal();
    const reason = new Error("enough");
    const job = await client.submit({ recipe: TRUE, held: true }, { signal });
    await client.request("nothing", "", { signal });
    expect(getEventListeners(signal, "abort")).toEqual([]);
    const pending = [client.request("hang", "", { signal }), client.ask("wait", { job: job.id }, { signal })];
    const rejected = pending.map((one) => expect(one).rejects.toBe(reason));
    await until("the request has a worker", async () => (await client.ask("status", {})).requests.running === 1);
    abort(reason);
    await Promise.all(rejected);
    expect(getEventListeners(signal, "abort")).toEqual([]);
    await until("the handler was aborted", () => aborted === 1);
  });
});

function newSignal() {
  const controller = new AbortController();
  return { signal: controller.signal, abort: (reason: unknown) => controller.abort(reason) };
}

describe("a submission", () => {
  it("is made once where the connection is cut after the commit and before the answer", async () => {
    const { client, direct, proxy } = await proxied();
    proxy.swallow(["down"]);
    const submitted = client.submit({ recipe: TRUE, name: "once" });
    const [committed] = await until("it is committed", async () => {
      const { jobs } = await direct.jobs();
      return jobs.length > 0 && jobs;
    });
    proxy.cut();
    proxy.heal();
    expect((await submitted).id).toBe(committed?.id);
    expect((await direct.jobs()).jobs).toHaveLength(1);
    expect((await direct.ask("status", {})).tasks).toMatchObject({ waiting: 1 });
  });

  it("is made once where the broker is started again before it could answer, and is found by its key", async () => {
    const { broker, client, dir, proxy } = await proxied();
    proxy.swallow(["down"]);
    const submitted = client.submit({ recipe: TRUE, idempotencyKey: "order-17" });
    await until("it is committed", async () => (await broker.core.store.jobs({ limit: 1 })).jobs.length > 0);
    await broker.stop();
    const again = await startBroker({ dir: `${dir}/data`, port: portOf(broker.url) });
    atEnd(() => again.stop());
    proxy.cut();
    proxy.heal();
    const { id } = await submitted;
    expect((await client.submit({ recipe: TRUE, idempotencyKey: "order-17" })).id).toBe(id);
    const { jobs } = await client.jobs({ idempotencyKey: "order-17" });
    expect(jobs.map((job) => [job.id, job.idempotencyKey])).toEqual([[id, "order-17"]]);
    expect((await client.jobs()).jobs).toHaveLength(1);
  });

  it("that is repeated runs once, and the worker gets nothing of the second", async () => {
    const { client, worker } = await openTestBroker();
    let calls = 0;
    worker({ services: { count: () => void calls++ } });
    const submission = { recipe: { kind: "call", service: "count" }, count: 3, idempotencyKey: "k" } as const;
    const jobs = await Promise.all([client.submit(submission), client.submit(submission)]);
    const after = { ...submission, after: [{ job: jobs[0].id }], idempotencyKey: "after" };
    const dependent = [await client.submit(after), await client.submit(after)];
    for (const job of [...jobs, ...dependent]) expect(await job.wait()).toBe("succeeded");
    expect(new Set(jobs.map(({ id }) => id)).size).toBe(1);
    expect(new Set(dependent.map(({ id }) => id)).size).toBe(1);
    expect(calls).toBe(6);
    const { tasks, jobs: open } = await client.ask("status", {});
    expect([tasks, open]).toEqual([
      { waiting: 0, running: 0 },
      { held: 0, blocked: 0, delayed: 0, waiting: 0, running: 0 },
    ]);
  });

  it("is refused with a code where the broker reads it after its deadline", async () => {
    const { client, direct, proxy } = await proxied();
    proxy.swallow(["up"]);
    const timeoutMs = 100;
    const late = { code: "LABORO_DEADLINE" };
    await Promise.all([
      expect(client.submit({ recipe: TRUE }, { timeoutMs })).rejects.toMatchObject(late),
      expect(client.request("nothing", "", { timeoutMs })).rejects.toMatchObject(late),
    ]);
    proxy.heal();
    expect((await client.jobs()).jobs).toEqual([]);
    expect(await direct.ask("services", {})).toEqual({ services: [] });
  });
});

it("the broker answers what it reads after its deadline with a code", async () => {
  const { broker } = await openTestBroker();
  const answers: ToClient[] = [];
  const link = dial<"client">({
    ...{ from: "client", urls: [broker.url], token: broker.token, onDisconnected: () => {}, onRefused: () => {} },
    onOpen: (opened) => opened.send({ type: "HELLO", version: LINK_VERSION, name: "late" }),
    onMessages: (batch, opened) => {
      answers.push(...batch);
      if (!batch.some(({ type }) => type === "HELLO_ACK")) return;
      opened.send({ type: "OPERATION", id: 1, operation: "submit", input: { recipe: TRUE }, deadline: 0 });
      const rest = { service: "x", body: new Uint8Array(), pool: "default", retry: false };
      opened.send({ type: "REQUEST", id: 2, deadline: 0, ...rest });
    },
  });
  atEnd(() => link.stop());
  await until("both are answered", () => answers.length >= 3);
  expect(answers.slice(1)).toMatchObject([
    { type: "ERROR", id: 1, code: "LABORO_DEADLINE" },
    { type: "RESPONSE", id: 2, error: "LABORO_DEADLINE" },
  ]);
});

/** A worker with its own event loop: `block` keeps it busy for 500 ms. */
const BLOCKING_WORKER = `
const { workerData, parentPort } = require("node:worker_threads");
import(workerData.entry).then(({ startWorker }) => {
  let counted = 0;
  const services = {
    block: () => {
      parentPort.postMessage("blocked");
      const end = performance.now() + 500;
      while (performance.now() < end);
      return "done";
    },
    count: () => String(++counted),
  };
  startWorker({ ...workerData.options, slots: 2, services, onJoined: () => parentPort.postMessage("joined") });
});`;

it("a request that its worker reads after the deadline is not executed", async () => {
  const { broker, client } = await openTestBroker();
  const entry = new URL("../../dist/entries/worker.js", import.meta.url).href;
  const dir = mkdtempSync(join(tmpdir(), "laboro-thread-"));
  atEnd(() => rmSync(dir, { recursive: true, force: true }));
  const options = { broker: broker.url, token: broker.token, dir };
  const thread = new Thread(BLOCKING_WORKER, { eval: true, workerData: { entry, options } });
  atEnd(() => thread.terminate());
  const said: unknown[] = [];
  thread.on("message", (message) => said.push(message));
  await until("it has joined", () => said.includes("joined"));
  const blocked = client.request("block");
  await until("it is busy", () => said.includes("blocked"));
  const late = client.request("count", "", { timeoutMs: 100 });
  await expect(late).rejects.toMatchObject({ code: "LABORO_DEADLINE" });
  expect(text(await blocked)).toBe("done");
  expect(text(await client.request("count"))).toBe("1");
});
