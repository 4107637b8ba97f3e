/** The text of version 2, rule by rule, with a literal foreman at our worker. docs/reference/protocols/fuq.md lists these tests. */

import { existsSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { describe, expect, it } from "vitest";
import type { FuqWorkerOptions } from "../../../../src/protocols/fuq/worker/index.js";
import { atEnd } from "../../../support/at-end.js";
import { isRunning } from "../../../support/process-table.js";
import { until } from "../../../support/wait.js";
import { raw, Yard } from "./kit.js";
import { CANCEL, counts, ERROR, HELLO, JOB, OK, openRawForeman, RESET, STOP, task, UPDATE } from "./literal-foreman.js";

const AT_ONCE = 0xffff_ffff;

async function opened(options: Partial<FuqWorkerOptions> = {}) {
  const yard = new Yard();
  const foreman = await openRawForeman();
  const worker = yard.worker(raw(foreman.port), options);
  const caller = await foreman.caller(1);
  const go = yard.path("go");
  const waiting = yard.script("wait.sh", `touch ${yard.path("begun")}.$1; while [ ! -e ${go} ]; do sleep 0.02; done`);
  const jobs = (command: string, ...numbers: number[]) => numbers.map((n) => task(n, { dir: yard.dir, command }));
  return {
    ...{ yard, foreman, worker, caller },
    go: () => writeFileSync(go, ""),
    waits: (...numbers: number[]) => jobs(waiting, ...numbers),
    quick: (...numbers: number[]) => jobs("/bin/true", ...numbers),
    begun: (number: number) => until("it runs", () => existsSync(yard.path(`begun.${number}`))),
  };
}

it("1., 2. arg0 is the length of what follows the header, values are little-endian, however the bytes arrive", async () => {
  const yard = new Yard();
  let bytes = "";
  const server = createServer((socket) => {
    atEnd(() => socket.destroy());
    socket.setNoDelay(true).on("error", () => {});
    for (const part of ["47c00100000000", "000000000000000000"]) socket.write(Buffer.from(part, "hex"));
    socket.setEncoding("hex").on("data", (chunk: string) => {
      bytes += chunk;
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  atEnd(() => server.close());
  yard.worker(raw((server.address() as AddressInfo).port));
  await until("HELLO comes", () => bytes.length === 72);
  expect(bytes).toBe("47c0020000000000000000001400000082a84e756d50726f637302a752756e6e696e6790");
});

describe("the sequence numbers, by the text of version 2 at the worker", () => {
  it("4.1 a new connection resets the sequence number to zero", async () => {
    const { caller, foreman, quick } = await opened();
    await caller.welcome();
    caller.sayWith(JOB, 21, quick(1));
    await caller.next();
    const update = await caller.next();
    expect(update.seq).toBe(22);
    caller.say(OK, update.seq, counts(2, 0));
    caller.cut();
    expect(await (await foreman.caller(2)).welcome()).toMatchObject({ type: HELLO, seq: 0 });
  });

  it("4.2 a new request has a new number, a response that of its request", async () => {
    const { caller, quick } = await opened();
    await caller.welcome();
    caller.sayWith(JOB, 3, quick(1, 2));
    expect(await caller.next()).toMatchObject({ type: OK, seq: 3 });
    const first = await caller.next();
    caller.say(OK, first.seq, counts(1, 1));
    const second = await caller.next();
    expect(second.type).toBe(UPDATE);
    expect(second.seq).toBeGreaterThan(first.seq);
  });

  it("4.3 requests of the worker are even; an even one of the foreman is ERROR(bad_seq)", async () => {
    const { caller, quick } = await opened();
    expect((await caller.welcome()).seq % 2).toBe(0);
    caller.sayWith(JOB, 4, quick(1));
    expect(await caller.next()).toMatchObject({ type: ERROR, subtype: 3, seq: 4 });
  });

  it("4.4 numbers rise: a request that is not greater is ERROR(bad_seq)", async () => {
    const { caller, quick } = await opened();
    await caller.welcome();
    caller.sayWith(JOB, 9, quick(1));
    await caller.next();
    const update = await caller.next();
    expect(update.seq).toBeGreaterThan(9);
    caller.say(OK, update.seq, counts(2, 0));
    caller.sayWith(JOB, 9, quick(2));
    expect(await caller.next()).toMatchObject({ type: ERROR, subtype: 3, seq: 9 });
  });

  it("4.5 the sequence number does not overflow: RESET comes before", async () => {
    const { caller, quick } = await opened({ maxSequence: 7 });
    await caller.welcome();
    caller.sayWith(JOB, 3, quick(1, 2));
    await caller.next();
    const update = await caller.next();
    caller.say(OK, update.seq, counts(1, 1));
    expect(await caller.next()).toMatchObject({ type: RESET, seq: 6 });
  });

  it("4.6 a request that was received is answered before a new one is made", async () => {
    const { caller, quick } = await opened();
    await caller.welcome();
    caller.sayWith(JOB, 3, quick(1));
    await caller.next();
    const update = await caller.next();
    // Both wait for the response to the UPDATE, which is to be sent again.
    for (const seq of [5, 7]) caller.sayWith(JOB, seq, []);
    caller.say(ERROR, update.seq, 0, 1);
    for (const seq of [5, 7]) expect(await caller.next()).toMatchObject({ type: OK, seq });
    expect(await caller.next()).toMatchObject({ type: UPDATE, seq: 8, data: update.data });
  });

  it("4.6 a) STOP(immed) is answered while a response is awaited", async () => {
    const { caller, quick, worker } = await opened();
    await caller.welcome();
    caller.sayWith(JOB, 3, quick(1));
    await caller.next();
    expect((await caller.next()).type).toBe(UPDATE);
    caller.say(STOP, 5, AT_ONCE);
    expect(await caller.next()).toMatchObject({ type: OK, seq: 5 });
    await until("it has ended", () => worker.outcome === "stopped");
  });

  it("4.6 b) a greater request waits for the response", async () => {
    const { caller, quick } = await opened();
    await caller.welcome();
    caller.sayWith(JOB, 3, quick(1));
    await caller.next();
    const update = await caller.next();
    caller.sayWith(JOB, update.seq + 1, quick(2));
    // Refused as soon as it is read, so the JOB was read before it.
    caller.sayWith(HELLO, update.seq + 3, []);
    expect(await caller.next()).toMatchObject({ type: ERROR, seq: update.seq + 3 });
    caller.say(OK, update.seq, counts(2, 0));
    expect(await caller.next()).toMatchObject({ type: OK, seq: update.seq + 1 });
  });

  it("4.6 c) a lower request is answered meanwhile", async () => {
    const { caller, quick } = await opened({ slots: 3 });
    await caller.welcome();
    caller.sayWith(JOB, 3, quick(1, 2));
    await caller.next();
    caller.say(OK, (await caller.next()).seq, counts(2, 1));
    expect(await caller.next()).toMatchObject({ type: UPDATE, seq: 6 });
    caller.sayWith(JOB, 5, quick(3));
    expect(await caller.next()).toMatchObject({ type: OK, seq: 5, arg0: counts(1, 2) });
  });

  it("4.6 a full queue is answered with ERROR(overflow)", async () => {
    const { caller, quick } = await opened();
    await caller.welcome();
    caller.sayWith(JOB, 3, quick(1));
    await caller.next();
    const { seq } = await caller.next();
    for (let i = 0; i < 17; i++) caller.sayWith(JOB, seq + 1 + 2 * i, []);
    expect(await caller.next()).toMatchObject({ type: ERROR, subtype: 1, seq: seq + 33 });
    caller.say(OK, seq, counts(2, 0));
    for (let i = 0; i < 16; i++) expect(await caller.next()).toMatchObject({ type: OK, seq: seq + 1 + 2 * i });
  });
});

it("4.6 after ERROR(overflow) the request is reissued after one non-error reply", async () => {
  const { caller, quick } = await opened();
  await caller.welcome();
  caller.sayWith(JOB, 3, quick(1));
  await caller.next();
  const update = await caller.next();
  caller.say(ERROR, update.seq, 0, 1);
  for (const seq of [5, 7]) caller.sayWith(JOB, seq, []);
  expect(await caller.next()).toMatchObject({ type: OK, seq: 5 });
  const again = await caller.next();
  expect(again).toMatchObject({ type: UPDATE, seq: 6, data: update.data });
  caller.say(OK, again.seq, counts(2, 0));
  expect(await caller.next()).toMatchObject({ type: OK, seq: 7 });
});

describe("RESET, by the text of version 2 at the worker", () => {
  it("5. the reply is a RESET with the same number, after lower requests are answered", async () => {
    const { caller, quick } = await opened();
    await caller.welcome();
    caller.sayWith(JOB, 3, quick(1));
    await caller.next();
    const update = await caller.next();
    expect(update.seq).toBe(4);
    caller.sayWith(JOB, 5, []);
    caller.say(RESET, 7, 3);
    caller.say(OK, 4, counts(2, 0));
    expect(await caller.next()).toMatchObject({ type: OK, seq: 5 });
    expect(await caller.next()).toMatchObject({ type: RESET, seq: 7, arg0: 5 });
  });

  it("5. a) after it no more requests are issued", async () => {
    const { caller, quick } = await opened({ maxSequence: 7 });
    await caller.welcome();
    caller.sayWith(JOB, 3, quick(1, 2));
    await caller.next();
    const first = await caller.next();
    const Task = 3 - (first.data as { Task: number }).Task;
    caller.say(OK, first.seq, counts(1, 1));
    expect(await caller.next()).toMatchObject({ type: RESET, seq: 6 });
    // A lower request is answered; the second UPDATE comes after the HELLO.
    caller.sayWith(JOB, 5, []);
    expect(await caller.next()).toMatchObject({ type: OK, seq: 5 });
    caller.say(RESET, 6, 4);
    expect(await caller.welcome()).toMatchObject({ type: HELLO, seq: 0, data: { Running: [{ Task }] } });
    expect(await caller.next()).toMatchObject({ type: UPDATE, seq: 2, data: { Task } });
  });

  it("5. c) dropped without a reply: a greater request of the foreman, after the worker's RESET", async () => {
    const { caller, quick } = await opened({ maxSequence: 7 });
    await caller.welcome();
    caller.sayWith(JOB, 3, quick(1, 2));
    await caller.next();
    caller.say(OK, (await caller.next()).seq, counts(1, 1));
    expect(await caller.next()).toMatchObject({ type: RESET, seq: 6 });
    caller.sayWith(JOB, 7, []);
    caller.say(RESET, 6, 3);
    expect(await caller.welcome()).toMatchObject({ type: HELLO, seq: 0 });
  });

  it("5. c) resent with a new number after the HELLO: a greater request, which the foreman's RESET has dropped", async () => {
    const { caller, quick } = await opened();
    await caller.welcome();
    caller.sayWith(JOB, 3, quick(1, 2));
    await caller.next();
    caller.say(OK, (await caller.next()).seq, counts(1, 1));
    const dropped = await caller.next();
    expect(dropped).toMatchObject({ type: UPDATE, seq: 6 });
    caller.say(RESET, 5, 4);
    expect(await caller.next()).toMatchObject({ type: RESET, seq: 5 });
    expect(await caller.welcome()).toMatchObject({ type: HELLO, seq: 0 });
    expect(await caller.next()).toMatchObject({ type: UPDATE, seq: 2, data: dropped.data });
  });
});

describe("the worker, by the text of version 2", () => {
  it("greeting 1-4: OK(0) is awaited, HELLO lists what runs, then the loop", async () => {
    const { caller, foreman, waits, begun } = await opened();
    expect(caller.heard).toEqual([]);
    expect(await caller.welcome()).toMatchObject({ type: HELLO, data: { NumProcs: 2, Running: [] } });
    caller.sayWith(JOB, 3, waits(1));
    await caller.next();
    await begun(1);
    caller.cut();
    const hello = await (await foreman.caller(2)).welcome();
    expect(hello).toMatchObject({ type: HELLO, data: { NumProcs: 1, Running: [{ Task: 1 }] } });
  });

  it("worker_loop: JOB takes processors and is answered OK, or ERROR(no_procs) where there are too few", async () => {
    const { caller, waits } = await opened();
    await caller.welcome();
    caller.sayWith(JOB, 3, waits(1));
    expect(await caller.next()).toMatchObject({ type: OK, arg0: counts(1, 1) });
    caller.sayWith(JOB, 5, waits(2, 3));
    expect(await caller.next()).toMatchObject({ type: ERROR, subtype: 2, arg0: counts(1, 1) });
    caller.sayWith(JOB, 7, waits(2));
    expect(await caller.next()).toMatchObject({ type: OK, arg0: counts(0, 2) });
  });

  it("worker_loop: CANCEL of a running job stops it, OK has the counts after it; else ERROR(no_such_job)", async () => {
    const { caller, waits, begun } = await opened({ slots: 3 });
    await caller.welcome();
    caller.sayWith(JOB, 3, waits(1, 2));
    await caller.next();
    await begun(1);
    caller.sayWith(CANCEL, 5, { JobId: 1, Task: 1 });
    expect(await caller.next()).toMatchObject({ type: OK, seq: 5, arg0: counts(2, 1) });
    caller.sayWith(CANCEL, 7, { JobId: 1, Task: 1 });
    expect(await caller.next()).toMatchObject({ type: ERROR, subtype: 4, seq: 7 });
  });

  it("worker_loop: STOP(n) lowers max_nproc; 0 is all, and the worker exits when nothing runs", async () => {
    const { caller, waits, go, worker } = await opened({ slots: 3 });
    await caller.welcome();
    caller.sayWith(JOB, 3, waits(1));
    await caller.next();
    caller.say(STOP, 5, 1);
    expect(await caller.next()).toMatchObject({ type: OK, seq: 5, arg0: counts(1, 1) });
    caller.say(STOP, 7, 0);
    expect(await caller.next()).toMatchObject({ type: OK, seq: 7, arg0: counts(0, 1) });
    go();
    const update = await caller.next();
    expect(worker.outcome).toBeUndefined();
    caller.say(OK, update.seq, counts(0, 0));
    await until("it has ended", () => worker.outcome === "stopped");
  });

  it("worker_loop: STOP(immed) is an immediate exit", async () => {
    const { yard, caller, worker } = await opened();
    await caller.welcome();
    const { command, process } = yard.endless();
    caller.sayWith(JOB, 3, [task(1, { dir: yard.dir, command })]);
    await caller.next();
    const pid = await process();
    caller.say(STOP, 5, AT_ONCE);
    await until("it has ended", () => worker.outcome === "stopped" && !isRunning(pid));
  });

  it("worker_loop: ERROR to an UPDATE, which is sent again", async () => {
    const { caller, quick } = await opened();
    await caller.welcome();
    caller.sayWith(JOB, 3, quick(1));
    await caller.next();
    const update = await caller.next();
    caller.say(ERROR, update.seq, 0, 6);
    expect(await caller.next()).toMatchObject({ type: UPDATE, data: update.data });
  });

  it("worker_loop: when a job finishes UPDATE is sent and its OK awaited; the processor is free then", async () => {
    const { caller, quick } = await opened({ slots: 1 });
    await caller.welcome();
    caller.sayWith(JOB, 3, quick(1));
    await caller.next();
    const update = await caller.next();
    expect(update).toMatchObject({ type: UPDATE, data: { JobId: 1, Task: 1, Success: true } });
    caller.say(OK, update.seq, counts(1, 0));
    caller.sayWith(JOB, update.seq + 1, quick(2));
    expect(await caller.next()).toMatchObject({ type: OK, seq: update.seq + 1 });
  });
});
