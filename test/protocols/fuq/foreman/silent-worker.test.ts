/**
 * An original worker that is connected again goes on as if nothing had happened: it says HELLO only where the answer to an UPDATE asks for
 * it. So it is asked for its numbers, by a JOB of no tasks.
 */
import { describe, expect, it } from "vitest";
import type { FuqLinkOptions } from "../../../../src/protocols/fuq/broker/listener.js";
import { resultsOf } from "../../../support/test-broker.js";
import { until } from "../../../support/wait.js";
import { nodeNamed, numbered, openWeb, openYard, webWorker, type Yard } from "./kit.js";
import {
  counts,
  ERROR,
  type Frame,
  JOB,
  type LiteralWorker,
  OK,
  pairOf,
  STOP,
  type TaskOf,
  UPDATE,
} from "./literal-worker.js";

const SOON = { silenceMs: 500, missingMs: 300 };
/** Where a HELLO is to come before the next question does. */
const PATIENT = { ...SOON, silenceMs: 3_000 };
const LONG_SILENCE_MS = 60_000;

/** The bytes that ask for the numbers. */
const QUESTION = "90";

async function asked(worker: LiteralWorker): Promise<Frame> {
  const question = await worker.expect(JOB);
  expect(worker.lastPayload.toString("hex")).toBe(QUESTION);
  return question;
}

/** Above every number that the worker may have used; its own go on from there. */
const ABOVE = 2 ** 31 + 1;

/** Says how it stands, and once more where it has tasks: then the number is above all that it may be waiting for. */
async function stands(worker: LiteralWorker, nproc: number, nrun: number): Promise<void> {
  worker.ok((await asked(worker)).seq, nproc, nrun);
  if (nrun === 0) return;
  const again = await asked(worker);
  expect(again.seq).toBe(ABOVE);
  worker.ok(again.seq, nproc, nrun);
}

/** A worker with so many tasks of a job, whose connection is cut; and what it finds when it comes back. */
async function cutOff(count: number, options: FuqLinkOptions = SOON) {
  const yard: Yard = await openYard();
  const node = nodeNamed("vm:7:1");
  const before = await webWorker(await openWeb(yard, node, { silenceMs: LONG_SILENCE_MS }));
  await before.greet(2);
  const job = await yard.client.submit(numbered(2));
  const tasks = (await before.take(count, 2)).map(({ task }) => task);
  before.cut();
  await until("it is away", async () => (await yard.client.workers())[0]?.connected === false);
  const url = await openWeb(yard, node, options);
  return { yard, job, tasks, url, worker: await webWorker(url) };
}

describe("a worker that comes back and says nothing", () => {
  it("is asked for its numbers, with the first number of a new conversation, and gets work again", async () => {
    const yard = await openYard();
    const worker = await webWorker(await openWeb(yard, nodeNamed("vm:7:1"), SOON));
    const question = await asked(worker);
    expect(question).toMatchObject({ seq: 1, arg0: 1 });
    worker.ok(1, 2, 0);
    await until("it is here", async () => (await yard.client.workers())[0]?.total.slots === 2);
    const job = await yard.client.submit(numbered(1));
    const [taken] = await worker.take(1, 2);
    // Its own numbers go on where they were.
    worker.update(38, pairOf(taken?.task as TaskOf));
    expect(counts(await worker.expect(OK))).toBe("2|0");
    expect(await job.wait()).toBe("succeeded");
  });

  it("keeps its tasks where their number is right", async () => {
    const { yard, job, tasks, worker } = await cutOff(2);
    await stands(worker, 0, 2);
    await until("it is here", async () => (await yard.client.workers())[0]?.connected === true);
    for (const [i, task] of tasks.entries()) {
      worker.update(ABOVE + 1 + i * 2, pairOf(task));
      expect(counts(await worker.expect(OK))).toBe(`${i + 1}|${1 - i}`);
    }
    expect(await job.wait()).toBe("succeeded");
    expect((await resultsOf(job)).map(({ attempt }) => attempt)).toEqual([1, 1]);
  });

  it("has lost its tasks where it runs none: they wait again", async () => {
    const { job, worker } = await cutOff(2);
    worker.ok((await asked(worker)).seq, 2, 0);
    const again = await worker.take(2, 2);
    for (const [i, { task }] of again.entries()) {
      worker.update(38 + i * 2, pairOf(task));
      await worker.expect(OK);
    }
    expect(await job.wait()).toBe("succeeded");
    expect((await resultsOf(job)).map(({ attempt }) => attempt)).toEqual([2, 2]);
  });

  it("is asked for a HELLO with its next UPDATE where it has fewer tasks than it should", async () => {
    const { job, tasks, worker } = await cutOff(2, PATIENT);
    const [first, second] = tasks as [TaskOf, TaskOf];
    await stands(worker, 1, 1);
    worker.update(ABOVE + 1, pairOf(first));
    expect(await worker.expect(OK)).toMatchObject({ seq: ABOVE + 1, arg0: 0xffff_ffff });
    expect(counts(await worker.greet(2, [], ABOVE + 3))).toBe("2|0");
    const [lost] = await worker.take(1, 2);
    expect(lost?.task.Task).toBe(second.Task);
    worker.update((lost?.seq ?? 0) + 1, pairOf(second));
    expect(counts(await worker.expect(OK))).toBe("2|0");
    expect(await job.wait()).toBe("succeeded");
  });

  it("hears nothing between that wish and its HELLO, because it could not answer", async () => {
    const { yard, tasks, worker } = await cutOff(2, PATIENT);
    const [first, second] = tasks as [TaskOf, TaskOf];
    await stands(worker, 3, 1);
    const job = await yard.client.submit(numbered(1));
    const taken = await worker.take(1, 3, 1);
    expect(taken[0]?.task.JobDescription.JobId).toBe(job.id);
    worker.update((taken[0]?.seq ?? 0) + 1, pairOf(first));
    await worker.expect(OK);
    const more = await yard.client.submit(numbered(1));
    await until("it is handed out", async () => (await more.explain(0)).startsWith("it is prefetched"));
    expect(worker.unread).toEqual([]);
    expect(counts(await worker.greet(2, [second, taken[0]?.task as TaskOf], ABOVE + 5))).toBe("2|2");
    expect((await worker.take(1, 2, 2))[0]?.task.JobDescription.JobId).toBe(more.id);
  });

  it("is asked again where it does not say HELLO for that, as older ones do not", async () => {
    const { job, tasks, worker } = await cutOff(2);
    const [first, second] = tasks as [TaskOf, TaskOf];
    await stands(worker, 1, 1);
    worker.update(ABOVE + 1, pairOf(first));
    await worker.expect(OK);
    worker.ok((await asked(worker)).seq, 2, 0);
    const [lost] = await worker.take(1, 2);
    worker.update((lost?.seq ?? 0) + 1, pairOf(second));
    await worker.expect(OK);
    expect(lost?.task.Task).toBe(second.Task);
    expect(await job.wait()).toBe("succeeded");
  });

  it("is asked where it has told of an end and does not say HELLO though it was asked to", async () => {
    const { job, tasks, worker } = await cutOff(1, PATIENT);
    worker.update(38, pairOf(tasks[0] as TaskOf));
    expect(await worker.expect(OK)).toMatchObject({ seq: 38, arg0: 0xffff_ffff });
    worker.ok((await asked(worker)).seq, 2, 0);
    const [next] = await worker.take(1, 2);
    worker.update(44, pairOf(next?.task as TaskOf));
    await worker.expect(OK);
    expect(await job.wait()).toBe("succeeded");
  });

  it("that hangs for an OK it will never get is known by its silence, loses its tasks to others and is sent away", async () => {
    const { yard, job, worker, url } = await cutOff(2);
    worker.ok((await asked(worker)).seq, 0, 2);
    expect((await asked(worker)).seq).toBe(ABOVE);
    expect(await until("it is left", () => worker.closed)).toBe("1008 it waits for an answer that was lost");
    const back = await webWorker(url);
    expect(await until("it is left at once", () => back.closed)).toBe("1008 it waits for an answer that was lost");
    const other = await webWorker(await openWeb(yard, nodeNamed("vm:8:1"), { silenceMs: LONG_SILENCE_MS }));
    await other.greet(2);
    for (const { task, seq } of await other.take(2, 2)) {
      other.update(seq + 3, pairOf(task));
      await other.expect(OK);
    }
    expect(await job.wait()).toBe("succeeded");
  });

  it("is told to stop after it, where it was to stop meanwhile", async () => {
    const yard = await openYard();
    const node = nodeNamed("vm:7:1");
    node.stopping = true;
    const worker = await webWorker(await openWeb(yard, node, SOON));
    worker.ok((await asked(worker)).seq, 2, 0);
    expect(await worker.expect(STOP)).toMatchObject({ arg0: 2 });
  });

  it("may say HELLO all the same: that is answered, and its numbers count for nothing then", async () => {
    const yard = await openYard();
    const worker = await webWorker(await openWeb(yard, nodeNamed("vm:7:1"), SOON));
    const { seq } = await asked(worker);
    expect(counts(await worker.greet(2, [], 36))).toBe("2|0");
    worker.ok(seq, 9, 0);
    const job = await yard.client.submit(numbered(1));
    const [taken] = await worker.take(1, 2);
    worker.update(40, pairOf(taken?.task as TaskOf));
    expect(counts(await worker.expect(OK))).toBe("2|0");
    expect(await job.wait()).toBe("succeeded");
  });

  it("is left with 1008 where it refuses to say how it stands", async () => {
    const yard = await openYard();
    const worker = await webWorker(await openWeb(yard, nodeNamed("vm:7:1"), SOON));
    worker.send(ERROR, (await asked(worker)).seq, 0, 6);
    expect(await until("it is closed", () => worker.closed)).toBe("1008 it has not said HELLO");
  });

  it("is not asked while its HELLO may be on its way", async () => {
    const { job, tasks, worker } = await cutOff(1, { silenceMs: LONG_SILENCE_MS });
    const [task] = tasks as [TaskOf];
    worker.send(UPDATE, 8, { ...pairOf(task), Success: true, Status: "done", NewJob: null });
    await worker.expect(OK);
    expect(counts(await worker.greet(2, [], 10))).toBe("2|0");
    expect((await worker.take(1, 2))[0]?.task.JobDescription.JobId).toBe(job.id);
  });
});
