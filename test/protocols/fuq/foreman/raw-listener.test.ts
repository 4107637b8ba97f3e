/** The foreman by the letter of the text, on a raw stream, with a worker that is literal too. */
import { describe, expect, it } from "vitest";
import { resultsOf } from "../../../support/test-broker.js";
import { until } from "../../../support/wait.js";
import { numbered, openRaw, openYard, rawWorker, type Yard } from "./kit.js";
import { CANCEL, counts, ERROR, HELLO, JOB, OK, pairOf, RESET, type TaskOf, UPDATE } from "./literal-worker.js";

describe("a worker on the raw listener", () => {
  it("hears OK(0), says HELLO, gets one task a JOB, and every OK has the true numbers", async () => {
    const yard = await openYard();
    const worker = await rawWorker(await openRaw(yard));
    expect(await worker.expect(OK)).toMatchObject({ seq: 0, arg0: 0 });
    expect(counts(await worker.greet(2))).toBe("2|0");
    const job = await yard.client.submit(numbered(3));
    const first = await worker.expect(JOB);
    expect(first).toMatchObject({ seq: 3, subtype: 0 });
    expect(first.rest).toEqual([
      {
        Task: 1,
        JobDescription: {
          JobId: job.id,
          Name: "demo",
          NumTasks: 3,
          WorkingDir: "/data/dir",
          LoggingDir: "/log/dir",
          Command: "/bin/echo",
          Status: 1,
        },
      },
    ]);
    worker.ok(3, 1, 1);
    const second = await worker.expect(JOB);
    expect(second.seq).toBe(5);
    worker.ok(5, 0, 2);
    worker.update(6, { JobId: job.id, Task: 2 });
    expect(counts(await worker.expect(OK))).toBe("1|1");
    const third = await worker.expect(JOB);
    expect(third.seq).toBe(9);
    expect(third.rest).toMatchObject([{ Task: 3 }]);
    worker.ok(9, 0, 2);
    worker.update(10, { JobId: job.id, Task: 1 }, false, "error encountered: exit status 3");
    expect(counts(await worker.expect(OK))).toBe("1|1");
    worker.update(12, { JobId: job.id, Task: 3 }, false, "error encountered: signal: killed");
    expect(counts(await worker.expect(OK))).toBe("2|0");
    expect(await job.wait()).toBe("failed");
    expect(await resultsOf(job)).toMatchObject([
      { index: 0, state: "failed", code: 3 },
      { index: 1, state: "succeeded", code: 0, attempt: 1 },
      { index: 2, state: "failed", signal: "SIGKILL" },
    ]);
    // Its output is on the worker's machine.
    const [{ name } = { name: "" }] = await yard.client.workers();
    const { pieces } = await yard.client.ask("output", { job: job.id, index: 1, attempt: 1 });
    const shown = pieces.flatMap((piece) => ("bytes" in piece ? [Buffer.from(piece.bytes).toString()] : []));
    expect(shown).toEqual([`laboro: the log is /log/dir/demo_2.log on worker ${name}\n`]);
  });

  it("gets the tasks of an array by their numbers, and tells of them by these, also after a reconnect", async () => {
    const yard = await openYard();
    const port = await openRaw(yard);
    const worker = await rawWorker(port);
    await worker.expect(OK);
    await worker.greet(2);
    const base = numbered(3);
    const array = [{ first: 5, last: 9, step: 2 }];
    const job = await yard.client.submit({ ...base, recipe: { ...base.recipe, array } as typeof base.recipe });
    const taken = await worker.take(2, 2);
    expect(taken.map(({ task }) => task.Task)).toEqual([5, 7]);
    expect(taken[0]?.task.JobDescription).toMatchObject({ JobId: job.id, NumTasks: 3 });
    worker.update(20, { JobId: job.id, Task: 5 }, false, "error encountered: exit status 3");
    await worker.expect(OK);
    const [last] = await worker.take(1, 1, 1);
    expect(last?.task.Task).toBe(9);
    await yard.client.ask("cancel", { job: job.id, tasks: [{ first: 2, last: 2 }] });
    expect((await worker.expect(CANCEL)).rest).toEqual({ JobId: job.id, Task: 9 });
    worker.cut();
    await until("it is gone", async () => (await yard.client.workers()).length === 0);
    const again = await rawWorker(port);
    await again.expect(OK);
    // Task 7 waits by now and stays here; there is no task 2, and 5 has ended: these are to end.
    const running = [7, 2, 5].map((Task) => ({ ...last?.task, Task })) as Parameters<typeof again.greet>[1];
    await again.greet(0, running);
    const first = await again.expect(CANCEL);
    again.ok(first.seq, 1, 2);
    const second = await again.expect(CANCEL);
    again.ok(second.seq, 2, 1);
    expect([first, second].map(({ rest }) => (rest as { Task: number }).Task).sort()).toEqual([2, 5]);
    again.update(second.seq + 1, { JobId: job.id, Task: 7 });
    await again.expect(OK);
    expect(await job.wait()).toBe("failed");
    expect(await resultsOf(job)).toMatchObject([
      { index: 0, number: 5, state: "failed", code: 3 },
      { index: 1, number: 7, state: "succeeded" },
    ]);
  });

  it("may answer OK(0) with OK(nproc), or with an empty HELLO", async () => {
    const yard = await openYard();
    const port = await openRaw(yard);
    const plain = await rawWorker(port);
    await plain.expect(OK);
    plain.ok(0, 2, 0);
    expect(await plain.expect(OK)).toMatchObject({ seq: 0, arg0: 0x2_0000 });
    expect((await yard.client.workers()).map(({ total }) => total.slots)).toEqual([2]);
    plain.cut();
    await until("it is gone", async () => (await yard.client.workers()).length === 0);
    const silent = await rawWorker(port);
    await silent.expect(OK);
    silent.send(HELLO, 0, 0);
    expect(counts(await silent.expect(OK))).toBe("1|0");
    const job = await yard.client.submit(numbered(4));
    // It has four slots, and says so with its first OK to a JOB.
    const taken = await silent.take(4, 4);
    for (const { task } of taken) {
      silent.update(100 + task.Task * 2, pairOf(task));
      await silent.expect(OK);
    }
    expect(await job.wait()).toBe("succeeded");
  });

  it("may say HELLO with a bare list of what runs: as many slots are assumed, until it says how many it has", async () => {
    const yard = await openYard();
    const port = await openRaw(yard);
    const worker = await rawWorker(port);
    await worker.expect(OK);
    await worker.greet(2);
    const job = await yard.client.submit(numbered(4));
    const running = (await worker.take(2, 2)).map(({ task }) => task);
    worker.cut();
    await until("it is gone", async () => (await yard.client.workers()).length === 0);
    const again = await rawWorker(port);
    await again.expect(OK);
    again.send(HELLO, 0, running);
    expect(await again.expect(OK)).toMatchObject({ seq: 0, arg0: 2 });
    again.update(2, { JobId: job.id, Task: 1 });
    expect(counts(await again.expect(OK))).toBe("1|1");
    // It has three slots in fact.
    const third = await again.expect(JOB);
    again.ok(third.seq, 1, 2);
    const fourth = await again.expect(JOB);
    expect([third.rest, fourth.rest]).toMatchObject([[{ Task: 3 }], [{ Task: 4 }]]);
    again.ok(fourth.seq, 0, 3);
    expect((await yard.client.workers())[0]?.total.slots).toBe(3);
  });

  it("gets LoggingDir = WorkingDir where the job has no log, and nothing that it cannot run", async () => {
    const yard = await openYard();
    const worker = await rawWorker(await openRaw(yard));
    await worker.expect(OK);
    await worker.greet(1);
    const shell = await yard.client.submit({ recipe: { kind: "command", argv: ["echo"], dir: "/tmp" } });
    const argv = ["/bin/x", "{#}"];
    const job = await yard.client.submit({ recipe: { kind: "command", argv, placeholders: true, dir: "/w" } });
    const [{ task } = { task: undefined }] = await worker.take(1, 1);
    expect(task?.JobDescription).toMatchObject({ JobId: job.id, WorkingDir: "/w", LoggingDir: "/w" });
    expect((await shell.info()).state).toBe("waiting");
    expect(await shell.explain(0)).toMatch(/no worker here can run/);
  });

  it("that refuses is tried again after a pause; the task has cost nothing", async () => {
    const yard = await openYard();
    const worker = await rawWorker(await openRaw(yard));
    await worker.expect(OK);
    await worker.greet(1);
    const job = await yard.client.submit(numbered(1));
    for (let refusals = 0; refusals < 2; refusals++) {
      const { seq } = await worker.expect(JOB);
      worker.send(ERROR, seq, 0, 2);
    }
    const [{ task } = { task: undefined }] = await worker.take(1, 1);
    if (task !== undefined) worker.update(20, pairOf(task));
    expect(await job.wait()).toBe("succeeded");
    expect((await resultsOf(job))[0]).toMatchObject({ state: "succeeded", attempt: 3 });
  });

  it("that by the letter never uses its last slot keeps it, and the rest is used", async () => {
    const yard = await openYard();
    const worker = await rawWorker(await openRaw(yard));
    await worker.expect(OK);
    await worker.greet(2);
    const job = await yard.client.submit(numbered(6));
    let refused = 0;
    let nproc = 2;
    let seq = 0;
    let done = 0;
    const running: { JobId: number; Task: number }[] = [];
    while (done < 6) {
      const frame = await worker.next();
      seq = Math.max(seq, frame.seq);
      if (frame.type === OK) {
        done++;
        continue;
      }
      expect(frame.type).toBe(JOB);
      const [task] = frame.rest as Parameters<typeof pairOf>;
      // nproc > job_nproc
      if (nproc > 1) {
        nproc--;
        worker.ok(frame.seq, nproc, 2 - nproc);
        running.push(pairOf(task));
      } else {
        refused++;
        worker.send(ERROR, frame.seq, (nproc << 16) | (2 - nproc), 2);
        if (refused < 3) continue;
      }
      // From the third refusal on it is one task after the other.
      if (refused < 3) continue;
      const ended = running.shift();
      if (ended === undefined) continue;
      nproc++;
      seq += 2 - (seq % 2);
      worker.update(seq, ended);
    }
    expect(await job.wait()).toBe("succeeded");
    expect(refused).toBe(3);
    expect(await resultsOf(job)).toHaveLength(6);
  });

  it("that answers ERROR(overflow) gets the same task again after one good reply", async () => {
    const yard = await openYard();
    const worker = await rawWorker(await openRaw(yard));
    await worker.expect(OK);
    await worker.greet(2);
    const job = await yard.client.submit(numbered(2));
    const [first] = await worker.take(1, 2);
    const second = await worker.expect(JOB);
    worker.send(ERROR, second.seq, 0, 1);
    worker.update(6, { JobId: job.id, Task: first?.task.Task ?? 0 });
    expect((await worker.expect(OK)).seq).toBe(6);
    const again = await worker.expect(JOB);
    expect(again.seq).toBe(9);
    expect(again.rest).toEqual(second.rest);
  });

  it("that answers ERROR(overflow) and says nothing more gets the same task again after a while", async () => {
    const yard = await openYard();
    const worker = await rawWorker(await openRaw(yard, { retryMs: 20 }));
    await worker.expect(OK);
    await worker.greet(1);
    const job = await yard.client.submit(numbered(1));
    const first = await worker.expect(JOB);
    worker.send(ERROR, first.seq, 0, 1);
    const again = await worker.expect(JOB);
    expect(again).toMatchObject({ seq: first.seq + 2, rest: first.rest });
    worker.ok(again.seq, 0, 1);
    worker.update(again.seq + 1, { JobId: job.id, Task: 1 });
    expect(await job.wait()).toBe("succeeded");
    expect(await resultsOf(job)).toMatchObject([{ attempt: 1 }]);
  });
});

describe("RESET", () => {
  it("at the end of the numbers: both begin again with OK(0) and HELLO, and nothing is run twice", async () => {
    const yard = await openYard();
    const worker = await rawWorker(await openRaw(yard, { maxSequence: 31, missingMs: 60_000 }));
    await worker.expect(OK);
    await worker.greet(1);
    const job = await yard.client.submit(numbered(20));
    const runs: number[] = [];
    let resets = 0;
    let highest = 0;
    while (runs.length < 20) {
      const frame = await worker.next();
      highest = Math.max(highest, frame.seq);
      if (frame.type === RESET) {
        resets++;
        worker.send(RESET, frame.seq, 0);
        expect(await worker.expect(OK)).toMatchObject({ seq: 0, arg0: 0 });
        await worker.greet(1);
        continue;
      }
      expect(frame.type).toBe(JOB);
      const [task] = frame.rest as Parameters<typeof pairOf>;
      runs.push(task.Task);
      worker.ok(frame.seq, 0, 1);
      worker.update(frame.seq + 1, pairOf(task));
      expect((await worker.expect(OK)).seq).toBe(frame.seq + 1);
    }
    expect(await job.wait()).toBe("succeeded");
    expect(highest).toBeLessThanOrEqual(31);
    expect(resets).toBeGreaterThanOrEqual(2);
    expect([...runs].sort((a, b) => a - b)).toEqual(Array.from({ length: 20 }, (_, i) => i + 1));
    expect((await resultsOf(job)).every(({ attempt }) => attempt === 1)).toBe(true);
  });

  it("follows an UPDATE that has the worker's last number, after which it could not ask for a RESET itself", async () => {
    const yard = await openYard();
    const worker = await rawWorker(await openRaw(yard));
    await worker.expect(OK);
    await worker.greet(2);
    const job = await yard.client.submit(numbered(2));
    const [, second] = await worker.take(2, 2);
    // The foreman itself has nothing more to ask.
    worker.update(0xffff_fffe, { JobId: job.id, Task: 1 });
    expect(await worker.expect(OK)).toMatchObject({ seq: 0xffff_fffe });
    expect(await worker.expect(RESET)).toMatchObject({ seq: 0xffff_ffff });
    worker.send(RESET, 0xffff_ffff, 3);
    expect(await worker.expect(OK)).toMatchObject({ seq: 0, arg0: 0 });
    await worker.greet(1, second === undefined ? [] : [second.task]);
    worker.update(2, { JobId: job.id, Task: 2 });
    expect(await job.wait()).toBe("succeeded");
  });

  it("by the worker: what it listed goes on, and what was dropped comes again", async () => {
    const yard = await openYard();
    const worker = await rawWorker(await openRaw(yard));
    await worker.expect(OK);
    await worker.greet(2);
    const job = await yard.client.submit(numbered(2));
    const first = await worker.expect(JOB);
    worker.ok(first.seq, 1, 1);
    const dropped = await worker.expect(JOB);
    expect(dropped.seq).toBe(5);
    // Sent before JOB 5 was seen: 5 is higher, so it is dropped without a reply.
    worker.send(RESET, 4, 3);
    expect(await worker.expect(RESET)).toMatchObject({ seq: 4 });
    expect(await worker.expect(OK)).toMatchObject({ seq: 0, arg0: 0 });
    const [running] = first.rest as Parameters<typeof pairOf>;
    expect(counts(await worker.greet(1, [running]))).toBe("1|1");
    const again = await worker.expect(JOB);
    expect(again.seq).toBe(3);
    expect(again.rest).toEqual(dropped.rest);
    worker.ok(3, 0, 2);
    worker.update(4, { JobId: job.id, Task: 1 });
    await worker.expect(OK);
    worker.update(6, { JobId: job.id, Task: 2 });
    await worker.expect(OK);
    expect(await job.wait()).toBe("succeeded");
    expect((await resultsOf(job)).map(({ attempt }) => attempt)).toEqual([1, 1]);
  });
});

it("what a raw worker lists when it comes again is its own where nobody else has it, and CANCELled where somebody has", async () => {
  const yard = await openYard();
  const port = await openRaw(yard);
  const worker = await rawWorker(port);
  await worker.expect(OK);
  await worker.greet(2);
  const job = await yard.client.submit(numbered(2));
  const tasks = (await worker.take(2, 2)).map(({ task }) => task);
  worker.cut();
  await until("its tasks wait again", async () => (await yard.client.workers()).length === 0);
  const other = await rawWorker(port);
  await other.expect(OK);
  await other.greet(1);
  const [taken] = await other.take(1, 1);
  const again = await rawWorker(port);
  await again.expect(OK);
  expect(counts(await again.greet(0, tasks))).toBe("0|2");
  const cancel = await again.expect(CANCEL);
  expect(cancel.rest).toEqual({ JobId: job.id, Task: taken?.task.Task });
  again.ok(cancel.seq, 1, 1);
  // By the text no UPDATE follows. One that does is nobody's.
  again.update(cancel.seq + 1, { JobId: job.id, Task: taken?.task.Task ?? 0 }, false, "killed");
  expect(counts(await again.expect(OK))).toBe("1|1");
  const kept = tasks.find(({ Task }) => Task !== taken?.task.Task);
  again.update(cancel.seq + 3, { JobId: job.id, Task: kept?.Task ?? 0 });
  await again.expect(OK);
  other.update(20, { JobId: job.id, Task: taken?.task.Task ?? 0 });
  await other.expect(OK);
  expect(await job.wait()).toBe("succeeded");
  expect(await resultsOf(job)).toHaveLength(2);
});

describe("a task that ended while its raw worker was away", () => {
  const away = async (yard: Yard, port: number, count: number) => {
    const worker = await rawWorker(port);
    await worker.expect(OK);
    await worker.greet(1);
    const job = await yard.client.submit(numbered(count));
    const [taken] = await worker.take(1, 1);
    if (taken === undefined) throw new Error("no task");
    worker.cut();
    return { job, taken: pairOf(taken.task) };
  };

  it("counts where nobody has it: HELLO with nothing running, then its UPDATE", async () => {
    const yard = await openYard();
    const port = await openRaw(yard);
    const { job, taken } = await away(yard, port, 1);
    await until("its task waits again", async () => (await yard.client.workers()).length === 0);
    const again = await rawWorker(port);
    await again.expect(OK);
    // No slot is free, so nobody gets the task.
    expect(counts(await again.greet(0))).toBe("0|0");
    again.update(2, taken, false, "error encountered: exit status 3");
    expect(counts(await again.expect(OK))).toBe("0|0");
    expect(await job.wait()).toBe("failed");
    expect(await resultsOf(job)).toMatchObject([{ state: "failed", code: 3 }]);
  });

  it("counts where it is about to be sent to that worker, which then does not get it", async () => {
    const yard = await openYard();
    const port = await openRaw(yard);
    const { job, taken } = await away(yard, port, 2);
    await until("its task waits again", async () => (await yard.client.workers()).length === 0);
    const again = await rawWorker(port);
    await again.expect(OK);
    // Without a pause: the UPDATE is there before anything is sent.
    again.send(HELLO, 0, { NumProcs: 2, Running: [] });
    again.update(2, taken);
    const seen: number[] = [];
    for (let left = 2; left > 0; ) {
      const frame = await again.next();
      if (frame.type === OK) {
        left--;
        continue;
      }
      expect(frame.type).toBe(JOB);
      seen.push((frame.rest as TaskOf[])[0]?.Task ?? 0);
      again.ok(frame.seq, 2 - seen.length, seen.length);
    }
    const other = seen.includes(2) ? undefined : await again.expect(JOB);
    if (other !== undefined) again.ok(other.seq, 1, 1);
    again.update(100, { ...taken, Task: 2 });
    expect(await job.wait()).toBe("succeeded");
    expect((await resultsOf(job)).map(({ index, state }) => ({ index, state }))).toEqual([
      { index: 0, state: "succeeded" },
      { index: 1, state: "succeeded" },
    ]);
  });

  it("counts where it was sent to that worker again, which is then to CANCEL it", async () => {
    const yard = await openYard();
    const port = await openRaw(yard);
    const { job, taken } = await away(yard, port, 1);
    await until("its task waits again", async () => (await yard.client.workers()).length === 0);
    const again = await rawWorker(port);
    await again.expect(OK);
    await again.greet(2);
    const repeated = await again.expect(JOB);
    expect(repeated.rest).toMatchObject([{ Task: taken.Task }]);
    again.update(2, taken);
    expect(counts(await again.expect(OK))).toBe("1|1");
    expect(await job.wait()).toBe("succeeded");
    again.ok(repeated.seq, 1, 1);
    const cancel = await again.expect(CANCEL);
    expect(cancel.rest).toEqual(taken);
    again.ok(cancel.seq, 2, 0);
    await until("both slots are free", async () => (await yard.client.workers())[0]?.free.slots === 2);
    expect(await resultsOf(job)).toMatchObject([{ state: "succeeded" }]);
  });

  it("counts after a restart of the broker, which keeps the task for a worker from there", async () => {
    const yard = await openYard();
    const { job, taken } = await away(yard, await openRaw(yard), 1).then(async (given) => {
      await yard.broker.stop();
      return given;
    });
    const next = await openYard({ dir: `${yard.dir}/data` });
    const again = await rawWorker(await openRaw(next));
    await again.expect(OK);
    await again.greet(1);
    again.update(2, taken);
    await again.expect(OK);
    expect(await resultsOf(next.client.job(job.id))).toMatchObject([{ state: "succeeded" }]);
  });

  it("does not count where no worker has begun it", async () => {
    const yard = await openYard();
    const port = await openRaw(yard);
    const worker = await rawWorker(port);
    await worker.expect(OK);
    await worker.greet(1);
    const job = await yard.client.submit(numbered(1));
    await worker.expect(JOB);
    worker.cut();
    await until("its task waits again", async () => (await yard.client.workers()).length === 0);
    const other = await rawWorker(port);
    await other.expect(OK);
    await other.greet(0);
    other.update(2, { JobId: job.id, Task: 1 });
    await other.expect(OK);
    expect((await job.info()).counters.succeeded).toBe(0);
  });

  it("does not count where another worker has it", async () => {
    const yard = await openYard();
    const port = await openRaw(yard);
    const { job, taken } = await away(yard, port, 1);
    const other = await rawWorker(port);
    await other.expect(OK);
    await other.greet(1);
    await other.take(1, 1);
    const again = await rawWorker(port);
    await again.expect(OK);
    await again.greet(1);
    again.update(2, taken, false, "error encountered: exit status 3");
    expect(counts(await again.expect(OK))).toBe("1|0");
    other.update(4, taken);
    expect(await job.wait()).toBe("succeeded");
  });
});

it("an UPDATE before HELLO is answered OK(65535|65535), and a result of nobody's is acknowledged", async () => {
  const yard = await openYard();
  const worker = await rawWorker(await openRaw(yard));
  await worker.expect(OK);
  worker.update(0, { JobId: 77, Task: 1 });
  expect(await worker.expect(OK)).toMatchObject({ seq: 0, arg0: 0xffff_ffff });
  expect(counts(await worker.greet(1, [], 2))).toBe("1|0");
  worker.update(4, { JobId: 77, Task: 1 });
  expect(counts(await worker.expect(OK))).toBe("1|0");
  worker.send(UPDATE, 5, {});
  expect(await worker.expect(ERROR)).toMatchObject({ seq: 5, subtype: 3 });
  worker.send(JOB, 6, []);
  expect(await worker.expect(ERROR)).toMatchObject({ seq: 6, subtype: 6 });
  worker.send(UPDATE, 8, 0);
  expect(await worker.expect(ERROR)).toMatchObject({ seq: 8, subtype: 6 });
});
