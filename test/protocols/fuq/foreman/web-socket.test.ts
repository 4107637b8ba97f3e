/** The foreman of the original programs: a WebSocket, a worker known by its cookie that speaks first and comes back. */
import { describe, expect, it } from "vitest";
import { WebSocket } from "ws";
import type { Core } from "../../../../src/broker/core.js";
import { resultsOf } from "../../../support/test-broker.js";
import { until } from "../../../support/wait.js";
import { atEnd, nodeNamed, numbered, openRaw, openWeb, openYard, rawWorker, webWorker } from "./kit.js";
import { CANCEL, counts, ERROR, HELLO, JOB, OK, pairOf, STOP, type TaskOf, UPDATE } from "./literal-worker.js";

const taskOf = (rest: unknown): TaskOf => {
  const [task] = rest as TaskOf[];
  if (task === undefined) throw new Error("no task");
  return task;
};

describe("a worker on the WebSocket", () => {
  it("speaks first, is known by its name, and hears its own numbers", async () => {
    const yard = await openYard();
    const worker = await webWorker(await openWeb(yard, nodeNamed("vm:7:1")));
    expect(counts(await worker.greet(2))).toBe("2|0");
    expect(worker.unread).toEqual([]);
    expect(await yard.client.workers()).toMatchObject([
      { id: "fuq:vm:7:1", name: "vm:7:1", protocol: "fuq 2 (WebSocket)", total: { slots: 2 }, address: "127.0.0.1" },
    ]);
  });

  it("comes back with what it runs, with its numbers going on, and nothing is run twice", async () => {
    const yard = await openYard();
    const url = await openWeb(yard, nodeNamed("vm:7:1"));
    const worker = await webWorker(url);
    await worker.greet(2);
    const job = await yard.client.submit(numbered(2));
    const tasks = (await worker.take(2, 2)).map(({ task }) => task);
    worker.cut();
    await until("it is away", async () => (await yard.client.workers())[0]?.connected === false);
    const again = await webWorker(url);
    expect(counts(await again.greet(0, tasks, 12))).toBe("0|2");
    for (const [i, task] of tasks.entries()) {
      again.update(14 + i * 2, pairOf(task));
      expect(counts(await again.expect(OK))).toBe(`${i + 1}|${1 - i}`);
    }
    expect(await job.wait()).toBe("succeeded");
    expect((await resultsOf(job)).map(({ attempt }) => attempt)).toEqual([1, 1]);
  });

  it("is known again after a restart of the broker", async () => {
    const yard = await openYard();
    const url = await openWeb(yard, nodeNamed("vm:7:1"));
    const worker = await webWorker(url);
    await worker.greet(1);
    const job = await yard.client.submit(numbered(1));
    const [taken] = await worker.take(1, 1);
    await yard.broker.stop();
    const next = await openYard({ dir: `${yard.dir}/data` });
    const again = await webWorker(await openWeb(next, nodeNamed("vm:7:1")));
    const task = taken?.task as TaskOf;
    expect(counts(await again.greet(0, [task], 4))).toBe("0|1");
    again.update(6, pairOf(task));
    expect(counts(await again.expect(OK))).toBe("1|0");
    const results = await resultsOf(next.client.job(job.id));
    expect(results).toMatchObject([{ state: "succeeded", attempt: 1 }]);
  });

  it("keeps its tasks after a restart of the broker for as long as before it, and is not told to CANCEL them", async () => {
    const settings = { graceMs: 20 };
    const yard = await openYard({ settings });
    const worker = await webWorker(await openWeb(yard, nodeNamed("vm:7:1")));
    await worker.greet(1);
    const job = await yard.client.submit(numbered(1));
    const [taken] = await worker.take(1, 1);
    await yard.broker.stop();
    const next = await openYard({ dir: `${yard.dir}/data`, settings });
    // Another worker is there for longer than the broker's usual grace period, and does not get the task.
    const other = await rawWorker(await openRaw(next));
    await other.expect(OK);
    await other.greet(2);
    const timed = await next.client.submit(numbered(1, { timeLimitMs: 200 }));
    const [given] = await other.take(1, 2);
    expect(given?.task.JobDescription.JobId).toBe(timed.id);
    await other.expect(CANCEL);
    const again = await webWorker(await openWeb(next, nodeNamed("vm:7:1")));
    const task = taken?.task as TaskOf;
    expect(counts(await again.greet(0, [task], 4))).toBe("0|1");
    again.update(6, pairOf(task));
    expect(counts(await again.expect(OK))).toBe("1|0");
    const results = await resultsOf(next.client.job(job.id));
    expect(results).toMatchObject([{ state: "succeeded", attempt: 1 }]);
  });

  it("whose UPDATE comes before its HELLO has its result recorded, and is asked for a HELLO", async () => {
    const yard = await openYard();
    const url = await openWeb(yard, nodeNamed("vm:7:1"));
    const worker = await webWorker(url);
    await worker.greet(2);
    const job = await yard.client.submit(numbered(2));
    const [first, second] = (await worker.take(2, 2)).map(({ task }) => task) as [TaskOf, TaskOf];
    worker.cut();
    const again = await webWorker(url);
    again.update(8, pairOf(first));
    expect(await again.expect(OK)).toMatchObject({ seq: 8, arg0: 0xffff_ffff });
    expect((await job.info()).counters.succeeded).toBe(1);
    expect(counts(await again.greet(1, [second], 10))).toBe("1|1");
    again.update(12, pairOf(second));
    expect(counts(await again.expect(OK))).toBe("2|0");
    expect(await job.wait()).toBe("succeeded");
    expect((await resultsOf(job)).map(({ attempt }) => attempt)).toEqual([1, 1]);
  });

  it("that does not list a task is given a moment for its UPDATE; then the task waits again", async () => {
    const yard = await openYard();
    const url = await openWeb(yard, nodeNamed("vm:7:1"), { missingMs: 300 });
    const worker = await webWorker(url);
    await worker.greet(2);
    const job = await yard.client.submit(numbered(2));
    const [first, second] = (await worker.take(2, 2)).map(({ task }) => task) as [TaskOf, TaskOf];
    worker.cut();
    const again = await webWorker(url);
    expect(counts(await again.greet(2, [], 8))).toBe("2|0");
    again.update(10, pairOf(first));
    expect(counts(await again.expect(OK))).toBe("2|0");
    const lost = await again.expect(JOB);
    expect(taskOf(lost.rest).Task).toBe(second.Task);
    again.ok(lost.seq, 1, 1);
    again.update(lost.seq + 1, pairOf(second));
    await again.expect(OK);
    expect(await job.wait()).toBe("succeeded");
    // The first run of the one that was lost has cost nothing but its number.
    expect((await resultsOf(job)).map(({ index, attempt }) => [index + 1, attempt]).sort()).toEqual(
      [
        [first.Task, 1],
        [second.Task, 2],
      ].sort(),
    );
  });

  it("that lists what was cancelled or is unknown is told to CANCEL it, and its slot is not given away meanwhile", async () => {
    const yard = await openYard();
    const url = await openWeb(yard, nodeNamed("vm:7:1"));
    const worker = await webWorker(url);
    await worker.greet(2);
    const old = await yard.client.submit(numbered(1));
    const [taken] = await worker.take(1, 2);
    worker.cut();
    await yard.client.ask("cancel", { job: old.id });
    const job = await yard.client.submit(numbered(2));
    const again = await webWorker(url);
    const known = taken?.task as TaskOf;
    const unknown = { ...known, Task: 5, JobDescription: { ...known.JobDescription, JobId: 999 } };
    expect(counts(await again.greet(0, [known, unknown], 8))).toBe("0|2");
    const cancelled = new Set<string>();
    let seq = 10;
    while (cancelled.size < 2) {
      const { rest, seq: asked } = await again.expect(CANCEL);
      const pairs = rest as { JobId: number; Task: number }[];
      again.ok(asked, pairs.length, 0);
      seq = asked + 1;
      for (const { JobId, Task } of pairs) cancelled.add(`${JobId}.${Task}`);
    }
    expect([...cancelled].sort()).toEqual([`${old.id}.1`, "999.5"].sort());
    again.update(seq, { JobId: 999, Task: 5 }, false, "error encountered: signal: killed");
    expect(counts(await again.expect(OK))).toBe("1|1");
    const next = await again.expect(JOB);
    expect(taskOf(next.rest).JobDescription.JobId).toBe(job.id);
    again.ok(next.seq, 0, 2);
    again.update(next.seq + 1, { JobId: old.id, Task: 1 }, false, "error encountered: signal: killed");
    expect(counts(await again.expect(OK))).toBe("1|1");
    expect(await old.wait()).toBe("cancelled");
  });

  it("that was asked to stop while it was away is told so when it comes", async () => {
    const yard = await openYard();
    const node = nodeNamed("vm:7:1");
    const url = await openWeb(yard, node);
    node.stopping = true;
    const worker = await webWorker(url);
    await worker.greet(2);
    const stop = await worker.expect(STOP);
    expect(stop.arg0).toBe(2);
    worker.ok(stop.seq, 0, 0);
  });

  it("is closed with 1000 when it has done its last task after STOP", async () => {
    const yard = await openYard();
    const worker = await webWorker(await openWeb(yard, nodeNamed("vm:7:1")));
    await worker.greet(1);
    const job = await yard.client.submit(numbered(1));
    await worker.take(1, 1);
    await yard.client.stopWorker("fuq:vm:7:1");
    const stop = await worker.expect(STOP);
    worker.ok(stop.seq, 0, 1);
    worker.update(stop.seq + 1, { JobId: job.id, Task: 1 });
    expect(counts(await worker.expect(OK))).toBe("0|0");
    expect(await until("it is closed", () => worker.closed)).toBe("1000 closing");
  });

  it("is closed with 1001 when another connection of the same worker comes, and when the broker stops", async () => {
    const yard = await openYard();
    const url = await openWeb(yard, nodeNamed("vm:7:1"));
    const worker = await webWorker(url);
    await worker.greet(1);
    const other = await webWorker(url);
    await other.greet(1, [], 2);
    expect(await until("the first is closed", () => worker.closed)).toMatch(/^1001 another connection/);
    await yard.broker.stop();
    expect(await until("the second is closed", () => other.closed)).toMatch(/^1001 the broker is stopping/);
  });

  it("gets the OK to what is on its way to the disk before it is closed, because the original would wait for that for ever", async () => {
    const yard = await openYard();
    const { core } = yard.context;
    const onItsWay: (() => void)[] = [];
    const slow = new Proxy(core, {
      get: (target, name) => {
        if (name === "workerDone")
          return (...done: Parameters<Core["workerDone"]>) => onItsWay.push(() => target.workerDone(...done));
        const value: unknown = Reflect.get(target, name);
        return typeof value === "function" ? value.bind(target) : value;
      },
    });
    const node = nodeNamed("vm:7:1");
    const worker = await webWorker(await openWeb({ ...yard, context: { ...yard.context, core: slow } }, node));
    await worker.greet(1);
    const job = await yard.client.submit(numbered(1));
    const [taken] = await worker.take(1, 1);
    worker.update(8, pairOf(taken?.task as TaskOf));
    await until("it is on its way", () => onItsWay.length === 1);
    core.portOf(node.id)?.close("the broker is stopping");
    for (const arrive of onItsWay) arrive();
    expect(await worker.expect(OK)).toMatchObject({ seq: 8 });
    expect(await until("it is closed", () => worker.closed)).toBe("1001 the broker is stopping");
    expect(await job.wait()).toBe("succeeded");
  });

  it("never has two of the foreman's requests at a time, whatever is to be said", async () => {
    const yard = await openYard();
    const worker = await webWorker(await openWeb(yard, nodeNamed("vm:7:1")));
    await worker.greet(3);
    const job = await yard.client.submit(numbered(3));
    const first = await worker.expect(JOB);
    await yard.client.ask("cancel", { job: job.id, tasks: [{ first: 0, last: 0 }] });
    await yard.client.stopWorker("fuq:vm:7:1");
    worker.send(HELLO, 50, 0);
    worker.ok(first.seq, 2, 1);
    const after = [await worker.next(), await worker.next()].map(({ type }) => type);
    expect(after).toEqual([OK, CANCEL]);
  });
});

describe("pings", () => {
  it("go out with the worker's name, and two that are not answered end the connection with 1001", async () => {
    const yard = await openYard();
    const url = await openWeb(yard, nodeNamed("vm:7:1"), { pingMs: 40 });
    const pings: string[] = [];
    const deaf = new WebSocket(url, { autoPong: false });
    atEnd(() => deaf.terminate());
    deaf.on("ping", (data) => pings.push(data.toString()));
    const closed = await new Promise<string>((resolve) =>
      deaf.once("close", (code, reason) => resolve(`${code} ${reason.toString()}`)),
    );
    expect(closed).toMatch(/^1001 two pings/);
    expect(pings).toEqual(["PING:f2w_vm:7:1:1", "PING:f2w_vm:7:1:2"]);
    const there = new WebSocket(url);
    atEnd(() => there.terminate());
    let count = 0;
    there.on("ping", () => count++);
    await until("it was asked often", () => count > 5);
    expect(there.readyState).toBe(WebSocket.OPEN);
  });
});

describe("what is no message", () => {
  it("ends the connection with a reason, or is answered with ERROR(bad_message) where it has a number", async () => {
    const yard = await openYard();
    const url = await openWeb(yard, nodeNamed("vm:7:1"));
    const text = new WebSocket(url);
    text.once("open", () => text.send("hello"));
    expect(await new Promise((resolve) => text.once("close", resolve))).toBe(1003);
    const garbage = await webWorker(url);
    garbage.raw(Buffer.from("GET / HTTP/1.1\r\n\r\n"));
    expect(await until("it is closed", () => garbage.closed)).toMatch(/^1002/);
    const odd = await webWorker(url);
    await odd.greet(1);
    odd.send(77, 2, 0);
    expect(await odd.expect(ERROR)).toMatchObject({ seq: 2, subtype: 6 });
    odd.send(UPDATE, 4, { JobId: "one" });
    expect(await odd.expect(ERROR)).toMatchObject({ seq: 4, subtype: 6 });
    expect(yard.complaints.length).toBeGreaterThan(0);
  });
});
