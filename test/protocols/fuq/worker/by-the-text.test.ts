import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { isRunning } from "../../../support/process-table.js";
import { until } from "../../../support/wait.js";
import { raw, Yard } from "./kit.js";
import { CANCEL, counts, ERROR, HELLO, JOB, OK, openRawForeman, RESET, STOP, task, UPDATE } from "./literal-foreman.js";

const AT_ONCE = 0xffff_ffff;

const update = (job: number, number: number, success: boolean, Status: string): object => ({
  JobId: job,
  Task: number,
  Success: success,
  Status,
  NewJob: null,
});

describe("our worker and a foreman by the text of v2", () => {
  it("greet each other, and a task is run with its number, logged and told of", async () => {
    const yard = new Yard();
    const foreman = await openRawForeman();
    yard.worker(raw(foreman.port));
    const caller = await foreman.caller(1);
    const hello = await caller.welcome();
    expect(hello).toMatchObject({ type: HELLO, seq: 0, data: { NumProcs: 2, Running: [] } });
    const command = yard.script("job.sh", 'echo "$# $1 $PWD"; echo bad >&2');
    caller.sayWith(JOB, 3, [task(7, { name: "one", dir: yard.dir, command })]);
    expect(await caller.next()).toMatchObject({ type: OK, seq: 3, arg0: counts(1, 1) });
    expect(await caller.next()).toMatchObject({ type: UPDATE, seq: 4, data: update(1, 7, true, "done") });
    caller.say(OK, 4, counts(2, 0));
    expect(readFileSync(yard.path("one_7.log"), "utf8").split("\n").sort()).toEqual(["", `1 7 ${yard.dir}`, "bad"]);
  });

  it("tell failures in the words of the original, and no log is ever overwritten", async () => {
    const yard = new Yard();
    const foreman = await openRawForeman();
    yard.worker(raw(foreman.port));
    const caller = await foreman.caller(1);
    await caller.welcome();
    writeFileSync(yard.path("job_1.log"), "earlier");
    const failing = yard.script("fail.sh", "echo again; exit 3");
    const dying = yard.script("die.sh", "kill -9 $$");
    const cases: [object, RegExp][] = [
      [task(1, { dir: yard.dir, command: failing }), /^error encountered: exit status 3$/],
      [task(2, { dir: yard.dir, command: dying }), /^error encountered: signal: killed$/],
      [
        task(3, { dir: yard.dir, command: yard.path("nothing") }),
        /^error encountered: cannot start .*command not found$/,
      ],
      [
        task(4, { dir: yard.path("nowhere"), logs: yard.dir, command: failing }),
        /^error encountered: cannot enter the dir/,
      ],
      [
        task(5, { dir: yard.dir, logs: yard.path("nowhere"), command: failing }),
        /^error encountered: cannot open the log file/,
      ],
    ];
    let seq = 0;
    for (const [given, status] of cases) {
      caller.sayWith(JOB, seq + 3, [given]);
      expect(await caller.next()).toMatchObject({ type: OK, seq: seq + 3 });
      const told = await caller.next();
      expect(told).toMatchObject({ type: UPDATE, data: { Success: false, Status: expect.stringMatching(status) } });
      seq = told.seq;
      caller.say(OK, seq, counts(2, 0));
    }
    expect(readFileSync(yard.path("job_1.log"), "utf8")).toBe("earlier");
    expect(readFileSync(yard.path("job_1-1.log"), "utf8")).toBe("again\n");
  });

  it("use every slot, and what is beyond is refused with ERROR(no_procs)", async () => {
    const yard = new Yard();
    const foreman = await openRawForeman();
    yard.worker(raw(foreman.port));
    const caller = await foreman.caller(1);
    await caller.welcome();
    const command = yard.script("wait.sh", `while [ ! -e ${yard.path("go")} ]; do sleep 0.05; done`);
    caller.sayWith(
      JOB,
      3,
      [1, 2, 3].map((number) => task(number, { dir: yard.dir, command })),
    );
    expect(await caller.next()).toMatchObject({ type: ERROR, subtype: 2, seq: 3, arg0: counts(2, 0) });
    caller.sayWith(
      JOB,
      5,
      [1, 2].map((number) => task(number, { dir: yard.dir, command })),
    );
    expect(await caller.next()).toMatchObject({ type: OK, seq: 5, arg0: counts(0, 2) });
    caller.sayWith(JOB, 7, [task(3, { dir: yard.dir, command })]);
    expect(await caller.next()).toMatchObject({ type: ERROR, subtype: 2, seq: 7, arg0: counts(0, 2) });
    writeFileSync(yard.path("go"), "");
    const first = await caller.next();
    expect(first.type).toBe(UPDATE);
    // A higher request waits for the OK to the UPDATE.
    caller.sayWith(JOB, first.seq + 1, [task(3, { dir: yard.dir, command: "/bin/true" })]);
    caller.say(OK, first.seq, counts(1, 1));
    expect(await caller.next()).toMatchObject({ type: OK, seq: first.seq + 1 });
  });

  it("CANCEL: OK has the counts after it, no UPDATE follows, and the slot is of use at once", async () => {
    const yard = new Yard();
    const foreman = await openRawForeman();
    yard.worker(raw(foreman.port), { slots: 3 });
    const caller = await foreman.caller(1);
    await caller.welcome();
    const command = yard.script("sleep.sh", `touch ${yard.path("begun")}.$1; sleep 100 & wait`);
    caller.sayWith(
      JOB,
      3,
      [1, 2].map((number) => task(number, { job: 5, dir: yard.dir, command })),
    );
    await caller.next();
    await until("both run", () => [1, 2].every((number) => existsSync(yard.path(`begun.${number}`))));
    caller.sayWith(CANCEL, 5, { JobId: 5, Task: 9 });
    expect(await caller.next()).toMatchObject({ type: ERROR, subtype: 4, seq: 5 });
    caller.sayWith(CANCEL, 7, { JobId: 5, Task: 2 });
    expect(await caller.next()).toMatchObject({ type: OK, seq: 7, arg0: counts(2, 1) });
    // It is not running any more.
    caller.sayWith(CANCEL, 9, { JobId: 5, Task: 2 });
    expect(await caller.next()).toMatchObject({ type: ERROR, subtype: 4, seq: 9 });
    // The same task, and one more: every slot is used.
    caller.sayWith(
      JOB,
      11,
      [2, 3].map((number) => task(number, { job: 5, dir: yard.dir, command: "/bin/true" })),
    );
    expect(await caller.next()).toMatchObject({ type: OK, seq: 11, arg0: counts(0, 3) });
    const told: unknown[] = [];
    for (const nrun of [2, 1]) {
      const heard = await caller.next();
      told.push(heard.data);
      caller.say(OK, heard.seq, counts(3 - nrun, nrun));
    }
    expect(told).toHaveLength(2);
    expect(told).toContainEqual(update(5, 2, true, "done"));
    expect(told).toContainEqual(update(5, 3, true, "done"));
    // A list, and -1 for all of a job, are read as the original writes them.
    caller.sayWith(CANCEL, 99, [{ JobId: 5, Task: -1 }]);
    expect(await caller.next()).toMatchObject({ type: OK, seq: 99, arg0: counts(3, 0) });
    caller.cut();
    expect((await (await foreman.caller(2)).welcome()).data).toEqual({ NumProcs: 3, Running: [] });
  });

  it("stop slot by slot, and the worker ends when nothing is left", async () => {
    const yard = new Yard();
    const foreman = await openRawForeman();
    const worker = yard.worker(raw(foreman.port), { slots: 3 });
    const caller = await foreman.caller(1);
    await caller.welcome();
    const command = yard.script("wait.sh", `while [ ! -e ${yard.path("go")} ]; do sleep 0.05; done`);
    caller.sayWith(JOB, 3, [task(1, { dir: yard.dir, command })]);
    await caller.next();
    caller.say(STOP, 5, 1);
    expect(await caller.next()).toMatchObject({ type: OK, seq: 5, arg0: counts(1, 1) });
    caller.say(STOP, 7, 0);
    expect(await caller.next()).toMatchObject({ type: OK, seq: 7, arg0: counts(0, 1) });
    expect(worker.outcome).toBeUndefined();
    writeFileSync(yard.path("go"), "");
    const told = await caller.next();
    expect(told).toMatchObject({ type: UPDATE, data: update(1, 1, true, "done") });
    expect(caller.closed).toBeUndefined();
    caller.say(OK, told.seq, counts(0, 0));
    await until("it has ended", () => worker.outcome === "stopped" && caller.closed !== undefined);
  });

  it("stop at once: the reply comes first, then all is killed", async () => {
    const yard = new Yard();
    const foreman = await openRawForeman();
    const worker = yard.worker(raw(foreman.port));
    const caller = await foreman.caller(1);
    await caller.welcome();
    const { command, process } = yard.endless();
    caller.sayWith(JOB, 3, [task(1, { dir: yard.dir, command })]);
    await caller.next();
    const pid = await process();
    caller.say(STOP, 5, AT_ONCE);
    expect(await caller.next()).toMatchObject({ type: OK, seq: 5 });
    await until("it has ended", () => worker.outcome === "stopped");
    await until("its process is gone", () => !isRunning(pid));
  });

  it("lose no result when the connection is cut: HELLO lists what is not acknowledged, and it is told again", async () => {
    const yard = new Yard();
    const foreman = await openRawForeman();
    yard.worker(raw(foreman.port), { slots: 3 });
    const first = await foreman.caller(1);
    await first.welcome();
    const waiting = yard.script("wait.sh", `while [ ! -e ${yard.path("go")} ]; do sleep 0.05; done`);
    const given = [
      task(1, { dir: yard.dir, command: "/bin/true" }),
      task(2, { dir: yard.dir, command: waiting }),
      task(3, { dir: yard.dir, command: "/bin/false" }),
    ];
    first.sayWith(JOB, 3, given);
    await first.next();
    // Told, but never acknowledged.
    expect((await first.next()).type).toBe(UPDATE);
    first.cut();
    const second = await foreman.caller(2);
    const hello = await second.welcome();
    expect(hello).toMatchObject({ type: HELLO, seq: 0, data: { NumProcs: 0, Running: given } });
    const told = new Map<unknown, string>();
    for (let left = 3; left > 0; left--) {
      const heard = await second.next();
      const { Task, Status } = heard.data as { Task: number; Status: string };
      expect(heard).toMatchObject({ type: UPDATE, seq: heard.seq });
      expect(told.has(Task)).toBe(false);
      told.set(Task, Status);
      second.say(OK, heard.seq, counts(4 - left, left - 1));
      if (left === 2) writeFileSync(yard.path("go"), "");
    }
    expect(Object.fromEntries(told)).toEqual({ 1: "done", 2: "done", 3: "error encountered: exit status 1" });
    // What was acknowledged is forgotten.
    second.cut();
    const third = await foreman.caller(3);
    expect((await third.welcome()).data).toEqual({ NumProcs: 3, Running: [] });
  });

  it("begin again after a RESET of the foreman's, with HELLO and numbers from zero", async () => {
    const yard = new Yard();
    const foreman = await openRawForeman();
    yard.worker(raw(foreman.port));
    const caller = await foreman.caller(1);
    await caller.welcome();
    const command = yard.script("wait.sh", `while [ ! -e ${yard.path("go")} ]; do sleep 0.05; done`);
    caller.sayWith(JOB, 3, [task(1, { dir: yard.dir, command })]);
    await caller.next();
    caller.say(RESET, 5, 0);
    expect(await caller.next()).toMatchObject({ type: RESET, seq: 5 });
    const hello = await caller.welcome();
    expect(hello).toMatchObject({ type: HELLO, seq: 0, data: { NumProcs: 1, Running: [{ Task: 1 }] } });
    writeFileSync(yard.path("go"), "");
    expect(await caller.next()).toMatchObject({ type: UPDATE, seq: 2, data: update(1, 1, true, "done") });
  });

  it("begin again by themselves when the numbers are used up", async () => {
    const yard = new Yard();
    const foreman = await openRawForeman();
    yard.worker(raw(foreman.port), { maxSequence: 9 });
    const caller = await foreman.caller(1);
    await caller.welcome();
    caller.sayWith(JOB, 3, [
      task(1, { dir: yard.dir, command: "/bin/true" }),
      task(2, { dir: yard.dir, command: "/bin/true" }),
    ]);
    await caller.next();
    const first = await caller.next();
    expect(first).toMatchObject({ type: UPDATE, seq: 4 });
    caller.say(OK, 4, counts(1, 1));
    const second = await caller.next();
    expect(second).toMatchObject({ type: UPDATE, seq: 6 });
    caller.say(OK, 6, counts(2, 0));
    caller.sayWith(JOB, 7, [task(3, { dir: yard.dir, command: "/bin/true" })]);
    expect(await caller.next()).toMatchObject({ type: OK, seq: 7 });
    const reset = await caller.next();
    expect(reset).toMatchObject({ type: RESET, seq: 8 });
    caller.say(RESET, 8, 7);
    const hello = await caller.welcome();
    expect(hello).toMatchObject({ seq: 0, data: { NumProcs: 1, Running: [{ Task: 3 }] } });
    expect(await caller.next()).toMatchObject({ type: UPDATE, seq: 2, data: update(1, 3, true, "done") });
  });

  it("go on after garbage: the connection is closed and made again", async () => {
    const yard = new Yard();
    const foreman = await openRawForeman();
    yard.worker(raw(foreman.port));
    const first = await foreman.caller(1);
    await first.welcome();
    first.say(77, 3, 0xffff_ffff);
    const second = await foreman.caller(2);
    expect((await second.welcome()).data).toEqual({ NumProcs: 2, Running: [] });
  });

  it("part in order when the worker is asked to leave: what runs ends, what is offered is refused", async () => {
    const yard = new Yard();
    const foreman = await openRawForeman();
    const worker = yard.worker(raw(foreman.port));
    const caller = await foreman.caller(1);
    await caller.welcome();
    const command = yard.script("wait.sh", `while [ ! -e ${yard.path("go")} ]; do sleep 0.05; done`);
    caller.sayWith(JOB, 3, [task(1, { dir: yard.dir, command })]);
    await caller.next();
    const left = worker.stop({ finish: true });
    caller.sayWith(JOB, 5, [task(2, { dir: yard.dir, command })]);
    expect(await caller.next()).toMatchObject({ type: ERROR, subtype: 2, seq: 5, arg0: counts(0, 1) });
    writeFileSync(yard.path("go"), "");
    const told = await caller.next();
    expect(told.data).toEqual(update(1, 1, true, "done"));
    caller.say(OK, told.seq, counts(0, 0));
    await left;
    await until("the connection is closed", () => caller.closed !== undefined);
  });
});
