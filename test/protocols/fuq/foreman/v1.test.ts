/** The server of version 1, with a client written from its text alone. */
import { expect, it } from "vitest";
import { resultsOf } from "../../../support/test-broker.js";
import { until } from "../../../support/wait.js";
import { numbered, openV1, openYard } from "./kit.js";
import { ERROR, JOB, LiteralClient, OK, STOP, UPDATE } from "./literal-client.js";
import type { TaskOf } from "./literal-worker.js";

it("a client greets, gets one JOB a task without being asked for a reply, and every UPDATE has its OK(nproc)", async () => {
  const yard = await openYard();
  const client = new LiteralClient(await openV1(yard));
  await client.greet(2);
  const job = await yard.client.submit(numbered(3));
  const first = await client.task();
  expect(first).toMatchObject({
    Task: 1,
    JobDescription: { JobId: job.id, Name: "demo", NumTasks: 3, WorkingDir: "/data/dir", LoggingDir: "/log/dir" },
  });
  const second = await client.task();
  client.update(second);
  expect((await client.expect(OK)).arg0).toBe(1);
  const third = await client.task();
  client.update(third, false);
  expect((await client.expect(OK)).arg0).toBe(1);
  client.update(first);
  expect((await client.expect(OK)).arg0).toBe(2);
  expect(await job.wait()).toBe("failed");
  expect((await resultsOf(job)).map(({ state }) => state)).toEqual(["succeeded", "succeeded", "failed"]);
});

it("a client may have more processors than two bytes can count, and hears their number", async () => {
  const yard = await openYard();
  const client = new LiteralClient(await openV1(yard));
  await client.greet(70_000);
  const job = await yard.client.submit(numbered(1));
  client.update(await client.task());
  expect((await client.expect(OK)).arg0).toBe(70_000);
  expect(await job.wait()).toBe("succeeded");
});

it("more than 64 UPDATEs without waiting for an OK end the connection", async () => {
  const yard = await openYard();
  const client = new LiteralClient(await openV1(yard));
  await client.greet(100);
  const job = await yard.client.submit(numbered(100));
  const tasks: TaskOf[] = [];
  while (tasks.length < 100) tasks.push(await client.task());
  // One is being recorded, 64 wait.
  client.updateAll(tasks.slice(0, 65));
  for (let left = 65; left > 0; left--) await client.expect(OK);
  expect((await job.info()).counters.succeeded).toBe(65);
  client.updateAll([...tasks.slice(65), ...tasks, ...tasks]);
  await until("it is closed", () => client.closed);
  expect(yard.complaints.join()).toMatch(/UPDATEs without waiting for their OK/);
});

it("a client that does not read is left when 16 MiB wait for it, and its tasks go to others", async () => {
  const yard = await openYard();
  const port = await openV1(yard);
  const client = new LiteralClient(port);
  await client.greet(2_000);
  client.pauseReading();
  const dir = `/${"x".repeat(32_000)}`;
  const recipe = { kind: "command", argv: ["/bin/echo", "{#}"], placeholders: true, dir } as const;
  // 8 MB wait: it may take its time.
  const some = await yard.client.submit({ recipe, count: 250 });
  await until("all are sent", async () => (await some.info()).counters.running === 250);
  client.resumeReading();
  for (let left = 250; left > 0; left--) await client.expect(JOB);
  client.pauseReading();
  await yard.client.submit({ recipe, count: 1_000 });
  await until("it is left", () => yard.complaints.length > 0);
  const [, bytes] = /it does not read: (\d+) bytes wait for it/.exec(yard.complaints[0] ?? "") ?? [];
  expect(Number(bytes)).toBeGreaterThan(16 * 1024 * 1024);
  expect(Number(bytes)).toBeLessThan(16 * 1024 * 1024 + 40_000);
  await until("it is gone", async () => (await yard.client.workers()).length === 0);
  const other = new LiteralClient(port);
  await other.greet(1);
  await other.task();
});

it("an ERROR is about the newest JOB, which is handed out again and has cost nothing", async () => {
  const yard = await openYard();
  const client = new LiteralClient(await openV1(yard));
  await client.greet(2);
  const job = await yard.client.submit(numbered(2));
  const first = await client.task();
  const refused = await client.task();
  client.send(ERROR, 5);
  const again = await client.task();
  expect(again).toEqual(refused);
  client.update(again);
  await client.expect(OK);
  client.update(first);
  await client.expect(OK);
  expect(await job.wait()).toBe("succeeded");
  expect(await resultsOf(job)).toMatchObject([
    { index: 0, attempt: 1 },
    { index: 1, attempt: 2 },
  ]);
});

it("a client that by the letter never uses its last slot keeps it", async () => {
  const yard = await openYard();
  const client = new LiteralClient(await openV1(yard));
  await client.greet(2);
  const job = await yard.client.submit(numbered(4));
  let running: TaskOf | undefined;
  let refused = 0;
  let done = 0;
  while (done < 4) {
    const frame = await until("something comes", () => client.frames.shift());
    if (frame.type === OK) {
      done++;
      continue;
    }
    if (running === undefined) running = frame.rest as TaskOf;
    else {
      refused++;
      client.send(ERROR, 5);
    }
    if (refused < 3) continue;
    client.update(running);
    running = undefined;
  }
  expect(refused).toBe(3);
  expect(await job.wait()).toBe("succeeded");
});

it("on a disconnect its tasks go back at once", async () => {
  const yard = await openYard();
  const port = await openV1(yard);
  const client = new LiteralClient(port);
  await client.greet(1);
  await yard.client.submit(numbered(1));
  const task = await client.task();
  client.cut();
  const other = new LiteralClient(port);
  await other.greet(1);
  expect(await other.task()).toEqual(task);
});

it("STOP: it ends what it runs, hears no OK(0) before that, and is left when it has nothing", async () => {
  const yard = await openYard();
  const client = new LiteralClient(await openV1(yard));
  await client.greet(2);
  const job = await yard.client.submit(numbered(3));
  const tasks = [await client.task(), await client.task()];
  const [{ id } = { id: "" }] = await yard.client.workers();
  await yard.client.stopWorker(id);
  expect((await client.expect(STOP)).arg0).toBe(2);
  for (const [i, task] of tasks.entries()) {
    client.update(task);
    // By the letter a client that hears 0 exits at once, beside what it still runs.
    expect((await client.expect(OK)).arg0).toBe(1 - i);
  }
  await until("it is left", () => client.closed);
  expect(client.frames).toEqual([]);
  expect(await job.info()).toMatchObject({ state: "waiting", counters: { succeeded: 2 } });
});

it("STOP(n): so many slots fewer, and the client works on; STOP(immed): its tasks go to others at no cost", async () => {
  const yard = await openYard();
  const port = await openV1(yard);
  const client = new LiteralClient(port);
  await client.greet(3);
  const [{ id } = { id: "" }] = await yard.client.workers();
  await yard.client.stopWorker(id, { slots: 1 });
  expect((await client.expect(STOP)).arg0).toBe(1);
  const job = await yard.client.submit(numbered(3, { crashLimit: 1 }));
  const tasks = [await client.task(), await client.task()];
  client.update(tasks[0] as TaskOf);
  expect((await client.expect(OK)).arg0).toBe(1);
  tasks.push(await client.task());
  await yard.client.stopWorker(id, { now: true });
  expect((await client.expect(STOP)).arg0).toBe(0xffff_ffff);
  client.cut();
  const other = new LiteralClient(port);
  await other.greet(2);
  for (const task of [await other.task(), await other.task()]) other.update(task);
  expect(await job.wait()).toBe("succeeded");
});

it("what does not belong there is answered with ERROR, and garbage ends the connection", async () => {
  const yard = await openYard();
  const port = await openV1(yard);
  const client = new LiteralClient(port);
  await client.expect(OK);
  client.send(UPDATE, { JobId: 1, Task: 1 });
  expect((await client.expect(ERROR)).arg0).toBe(6);
  client.send(OK, 1);
  await client.expect(OK);
  client.send(STOP, 1);
  expect((await client.expect(ERROR)).arg0).toBe(6);
  client.send(UPDATE, [1, 2, 3]);
  expect((await client.expect(ERROR)).arg0).toBe(6);
  client.send(258, 1);
  await until("it is closed", () => client.closed);
  expect(yard.complaints.length).toBeGreaterThan(0);
});
