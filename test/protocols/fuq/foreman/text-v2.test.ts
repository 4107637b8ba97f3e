/** The text of version 2, rule by rule, with a literal worker at the foreman. docs/reference/protocols/fuq.md lists these tests. */
import { connect } from "node:net";
import { describe, expect, it } from "vitest";
import { until } from "../../../support/wait.js";
import { atEnd, numbered, openRaw, openYard, rawWorker } from "./kit.js";
import {
  CANCEL,
  counts,
  ERROR,
  frameOf,
  HELLO,
  JOB,
  type LiteralWorker,
  OK,
  pairOf,
  RESET,
  STOP,
  type TaskOf,
} from "./literal-worker.js";

const BAD_SEQ = 3;
const BAD_MESSAGE = 6;

/** A worker that has been greeted, and a job of so many tasks. */
async function opened(slots: number, tasks: number, options: Parameters<typeof openRaw>[1] = {}) {
  const yard = await openYard();
  const port = await openRaw(yard, options);
  const worker = await rawWorker(port);
  await worker.expect(OK);
  await worker.greet(slots);
  const job = tasks === 0 ? undefined : await yard.client.submit(numbered(tasks));
  return { yard, port, worker, job };
}

const take = async (worker: LiteralWorker, count: number, slots: number) =>
  (await worker.take(count, slots)).map(({ task }) => pairOf(task));
type Pair = ReturnType<typeof pairOf>;
const first = (pairs: readonly Pair[]): Pair => pairs[0] ?? { JobId: 0, Task: 0 };

describe("the messages, by the text of version 2 at the foreman", () => {
  it("1. arg0 is the length of what follows the header, however the bytes arrive", async () => {
    const yard = await openYard();
    const worker = await rawWorker(await openRaw(yard));
    await worker.expect(OK);
    const hello = frameOf(HELLO, 0, { NumProcs: 1, Running: [] });
    const stray = frameOf(JOB, 2, []);
    worker.raw(hello.subarray(0, 20));
    worker.raw(Buffer.concat([hello.subarray(20), stray]));
    // What is refused is refused at once, the HELLO has to wait for the store.
    const answers = [await worker.next(), await worker.next()].sort((a, b) => a.seq - b.seq);
    expect(answers).toMatchObject([
      { type: OK, seq: 0, arg0: 0x1_0000 },
      { type: ERROR, seq: 2, subtype: BAD_MESSAGE },
    ]);
  });

  it("2. values are little-endian", async () => {
    const yard = await openYard();
    const socket = connect(await openRaw(yard), "127.0.0.1");
    atEnd(() => socket.destroy());
    let bytes = "";
    socket.setEncoding("hex").on("data", (chunk: string) => {
      bytes += chunk;
    });
    await until("OK(0) comes", () => bytes.length === 32);
    expect(bytes).toBe("47c00100000000000000000000000000");
    socket.write(Buffer.from("47c0020000000000000000001400000082a84e756d50726f637302a752756e6e696e6790", "hex"));
    await until("OK(2|0) comes", () => bytes.length === 64);
    expect(bytes.slice(32)).toBe("47c00100000000000000000000000200");
  });

  it("3. the sequence number pairs a response with its request, while both sides ask", async () => {
    const { worker } = await opened(2, 2);
    const [running] = await take(worker, 1, 2);
    const job = await worker.expect(JOB);
    worker.update(4, running as Pair);
    expect(await worker.expect(OK)).toMatchObject({ seq: 4 });
    worker.ok(job.seq, 1, 1);
  });

  it("6. the subtype is used in ERROR only", async () => {
    const yard = await openYard();
    const worker = await rawWorker(await openRaw(yard));
    expect(await worker.expect(OK)).toMatchObject({ subtype: 0 });
    worker.send(HELLO, 0, { NumProcs: 1, Running: [] }, 7);
    expect(await worker.expect(OK)).toMatchObject({ subtype: 0 });
    worker.send(JOB, 2, []);
    expect(await worker.expect(ERROR)).toMatchObject({ subtype: BAD_MESSAGE, arg0: 0 });
  });
});

describe("the sequence numbers, by the text of version 2 at the foreman", () => {
  it("4.1 a new connection resets the sequence number to zero", async () => {
    const { port, worker } = await opened(1, 2);
    worker.update(40, first(await take(worker, 1, 1)));
    await worker.expect(OK);
    expect((await worker.expect(JOB)).seq).toBeGreaterThan(40);
    worker.cut();
    const again = await rawWorker(port);
    expect(await again.expect(OK)).toMatchObject({ seq: 0 });
    expect(await again.greet(1)).toMatchObject({ seq: 0 });
    expect(await again.expect(JOB)).toMatchObject({ seq: 3 });
  });

  it("4.2 a new request has a new number, also where it repeats one", async () => {
    const { worker } = await opened(1, 1);
    const refused = await worker.expect(JOB);
    worker.send(ERROR, refused.seq, 0, 2);
    const again = await worker.expect(JOB);
    expect(again.rest).toEqual(refused.rest);
    expect(again.seq).toBeGreaterThan(refused.seq);
  });

  it("4.3 requests of the worker are even, those of the foreman odd", async () => {
    const { worker } = await opened(1, 1);
    expect((await worker.expect(JOB)).seq % 2).toBe(1);
    worker.update(5, { JobId: 1, Task: 1 });
    expect(await worker.expect(ERROR)).toMatchObject({ seq: 5, subtype: BAD_SEQ });
  });

  it("4.4 a new request is greater than the last request and the last response", async () => {
    const { worker } = await opened(1, 2);
    const task = first(await take(worker, 1, 1));
    worker.update(100, task);
    await worker.expect(OK);
    const next = await worker.expect(JOB);
    expect(next.seq).toBeGreaterThan(100);
    worker.update(100, task);
    expect(await worker.expect(ERROR)).toMatchObject({ seq: 100, subtype: BAD_SEQ });
    worker.ok(next.seq, 0, 1);
    worker.update(next.seq - 1, task);
    expect(await worker.expect(ERROR)).toMatchObject({ seq: next.seq - 1, subtype: BAD_SEQ });
  });

  it("4.5 the sequence number does not overflow: RESET comes before", async () => {
    const { worker } = await opened(4, 4, { maxSequence: 9 });
    await take(worker, 3, 4);
    expect(await worker.expect(RESET)).toMatchObject({ seq: 9 });
  });

  it("4.6 a request that was received is answered before a new one is made", async () => {
    const { worker } = await opened(3, 3);
    const task = first(await take(worker, 1, 3));
    const job = await worker.expect(JOB);
    // With the reply the next JOB may go out, but for the UPDATE, which waits for the store.
    worker.raw(Buffer.concat([updateOf(4, task), frameOf(OK, job.seq, 0x1_0002)]));
    expect(await worker.next()).toMatchObject({ type: OK, seq: 4 });
    expect(await worker.next()).toMatchObject({ type: JOB, seq: 7 });
  });

  it("4.6 a) STOP(immed) waits for no reply", async () => {
    const { yard, worker } = await opened(1, 1);
    const job = await worker.expect(JOB);
    await yard.client.stopWorker((await yard.client.workers())[0]?.id ?? "", { now: true });
    expect(await worker.expect(STOP)).toMatchObject({ seq: job.seq + 2, arg0: 0xffff_ffff });
  });

  it("4.6 b) a request greater than the one that waits for its response is enqueued", async () => {
    const { worker } = await opened(2, 2);
    const task = first(await take(worker, 1, 2));
    const job = await worker.expect(JOB);
    worker.update(10, task);
    // Refused as soon as it is read, so UPDATE 10 was read before it.
    worker.send(JOB, 12, []);
    expect(await worker.expect(ERROR)).toMatchObject({ seq: 12 });
    worker.ok(job.seq, 0, 2);
    expect(await worker.expect(OK)).toMatchObject({ seq: 10 });
  });

  it("4.6 c) a lower request is answered meanwhile", async () => {
    const { worker } = await opened(2, 2);
    const task = first(await take(worker, 1, 2));
    expect(await worker.expect(JOB)).toMatchObject({ seq: 5 });
    worker.update(4, task);
    expect(await worker.expect(OK)).toMatchObject({ seq: 4 });
  });

  it("4.6 a full queue drops nothing in silence: ERROR(overflow)", async () => {
    const { worker } = await opened(3, 3, { queueLimit: 1 });
    const tasks = await take(worker, 2, 3);
    const job = await worker.expect(JOB);
    worker.update(10, first(tasks));
    worker.update(12, tasks[1] as Pair);
    expect(await worker.expect(ERROR)).toMatchObject({ seq: 12, subtype: 1 });
    worker.ok(job.seq, 0, 3);
    expect(await worker.expect(OK)).toMatchObject({ seq: 10 });
  });

  it("4.6 after ERROR(overflow) the request is reissued after one non-error reply", async () => {
    const { worker } = await opened(2, 2, { retryMs: 60_000 });
    const task = first(await take(worker, 1, 2));
    const job = await worker.expect(JOB);
    worker.send(ERROR, job.seq, 0, 1);
    worker.update(6, task);
    await worker.expect(OK);
    expect(await worker.expect(JOB)).toMatchObject({ seq: 9, rest: job.rest });
  });
});

describe("RESET, by the text of version 2 at the foreman", () => {
  it("5. either side may issue it; the reply is a RESET with the same number", async () => {
    const { worker } = await opened(1, 0);
    worker.send(RESET, 2, 0);
    expect(await worker.expect(RESET)).toMatchObject({ seq: 2 });
  });

  it("5. it must be issued when one more request would overflow, also by the foreman", async () => {
    const { worker } = await opened(1, 1, { maxSequence: 5 });
    expect(await worker.expect(JOB)).toMatchObject({ seq: 3 });
    worker.ok(3, 0, 1);
    worker.update(4, { JobId: 1, Task: 1 });
    await worker.expect(OK);
    expect(await worker.expect(RESET)).toMatchObject({ seq: 5 });
  });

  it("5. a) after it no more requests are issued", async () => {
    const { yard, worker } = await opened(1, 1, { maxSequence: 5 });
    worker.ok((await worker.expect(JOB)).seq, 0, 1);
    await yard.client.ask("cancel", { job: 1 });
    await worker.expect(RESET);
    // The CANCEL comes after the HELLO.
    worker.send(RESET, 5, 3);
    await worker.expect(OK);
    await worker.greet(0, [{ Task: 1, JobDescription: { JobId: 1 } } as TaskOf]);
    expect(await worker.expect(CANCEL)).toMatchObject({ seq: 3 });
  });

  it("5. b) lower requests are answered before the reply to the RESET", async () => {
    const { worker } = await opened(1, 1);
    const task = first(await take(worker, 1, 1));
    worker.raw(Buffer.concat([updateOf(4, task), frameOf(RESET, 6, 0)]));
    expect(await worker.expect(OK)).toMatchObject({ seq: 4 });
    // arg0 is the number of the last reply.
    expect(await worker.expect(RESET)).toMatchObject({ seq: 6, arg0: 4 });
  });

  it("5. c) resent with new numbers after the HELLO: higher requests, which the worker's RESET has dropped", async () => {
    const { worker } = await opened(2, 2);
    worker.ok((await worker.expect(JOB)).seq, 1, 1);
    const dropped = await worker.expect(JOB);
    expect(dropped.seq).toBe(5);
    worker.send(RESET, 4, 3);
    await worker.expect(RESET);
    expect(await worker.expect(OK)).toMatchObject({ seq: 0, arg0: 0 });
    await worker.greet(1, [{ Task: 1, JobDescription: { JobId: 1 } } as TaskOf]);
    expect(await worker.expect(JOB)).toMatchObject({ seq: 3, rest: dropped.rest });
  });

  it("5. c) dropped without a reply: higher requests of the worker, after the foreman's RESET", async () => {
    const { worker } = await opened(4, 4, { maxSequence: 9 });
    await take(worker, 3, 4);
    await worker.expect(RESET);
    // Anywhere else a JOB from the worker is refused at once.
    worker.send(JOB, 10, []);
    worker.send(RESET, 9, 7);
    expect(await worker.expect(OK)).toMatchObject({ seq: 0, arg0: 0 });
  });

  it("5. restart: the first request is the worker's HELLO, with number zero", async () => {
    const { yard, worker } = await opened(1, 0);
    worker.send(RESET, 2, 0);
    await worker.expect(RESET);
    await worker.expect(OK);
    // There is something to ask, and it waits for the HELLO.
    await yard.client.submit(numbered(1));
    expect(await worker.greet(1)).toMatchObject({ seq: 0 });
    expect(await worker.expect(JOB)).toMatchObject({ seq: 3 });
  });
});

const updateOf = (seq: number, pair: Pair): Buffer =>
  frameOf(4, seq, { ...pair, Success: true, Status: "done", NewJob: null });

describe("the foreman, by the text of version 2", () => {
  it("greeting 1-4: OK(0), the worker's slots, OK with them, then tasks", async () => {
    const yard = await openYard();
    await yard.client.submit(numbered(1));
    const worker = await rawWorker(await openRaw(yard));
    expect(await worker.expect(OK)).toMatchObject({ seq: 0, arg0: 0 });
    worker.ok(0, 3, 0);
    expect(counts(await worker.expect(OK))).toBe("3|0");
    await worker.expect(JOB);
  });

  it("HELLO: arg0 = 0 where nothing runs, else the running jobs", async () => {
    const { port, worker, job } = await opened(1, 1);
    await take(worker, 1, 1);
    worker.cut();
    const idle = await rawWorker(port);
    await idle.expect(OK);
    idle.send(HELLO, 0, 0);
    expect(counts(await idle.expect(OK))).toBe("1|0");
    const again = await idle.expect(JOB);
    idle.cut();
    const busy = await rawWorker(port);
    await busy.expect(OK);
    busy.send(HELLO, 0, again.rest as object);
    expect(counts(await busy.expect(OK))).toBe("0|1");
    busy.update(2, { JobId: job?.id ?? 0, Task: 1 });
    expect(await job?.wait()).toBe("succeeded");
  });

  it("foreman_loop 1, 2: as many tasks are sent as there are processors", async () => {
    const { yard, worker } = await opened(2, 3);
    await take(worker, 2, 2);
    worker.send(JOB, 20, []);
    expect(await worker.expect(ERROR)).toMatchObject({ seq: 20 });
    expect((await yard.client.job(1).info()).counters.running).toBe(2);
  });

  it("foreman_loop 3: JOB_QUEUED", async () => {
    const { yard, worker } = await opened(1, 0);
    await yard.client.submit(numbered(1));
    await worker.expect(JOB);
  });

  it("foreman_loop 3: UPDATE is recorded and answered with the new numbers", async () => {
    const { yard, worker } = await opened(2, 1);
    worker.update(4, first(await take(worker, 1, 2)));
    expect(counts(await worker.expect(OK))).toBe("2|0");
    expect((await yard.client.job(1).info()).counters.succeeded).toBe(1);
  });

  it("foreman_loop 3: STOP_REQUEST(n) and STOP_IMMED", async () => {
    const { yard, worker } = await opened(3, 0);
    const [{ id } = { id: "" }] = await yard.client.workers();
    await yard.client.stopWorker(id, { slots: 1 });
    const some = await worker.expect(STOP);
    expect(some.arg0).toBe(1);
    worker.ok(some.seq, 2, 0);
    await yard.client.stopWorker(id, { now: true });
    expect((await worker.expect(STOP)).arg0).toBe(0xffff_ffff);
  });

  it("foreman_loop 3: DISCONNECT, after which the tasks are others'", async () => {
    const { port, worker } = await opened(1, 1);
    const task = await take(worker, 1, 1);
    worker.cut();
    const other = await rawWorker(port);
    await other.expect(OK);
    await other.greet(1);
    expect(await take(other, 1, 1)).toEqual(task);
  });

  it("CANCEL carries one TaskPair", async () => {
    const { yard, worker } = await opened(2, 2);
    await take(worker, 2, 2);
    await yard.client.ask("cancel", { job: 1 });
    expect((await worker.expect(CANCEL)).rest).toEqual({ JobId: 1, Task: 1 });
  });
});
