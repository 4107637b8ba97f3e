import { existsSync, writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { until } from "../../../support/wait.js";
import { web, Yard } from "./kit.js";
import { CANCEL, counts, HELLO, JOB, OK, openWebForeman, STOP, task, UPDATE } from "./literal-foreman.js";

const PASSWORD = "fuqlab-secret";

describe("our worker and a foreman as the original is", () => {
  it("says /hello, and then HELLO first on its WebSocket, with its cookie", async () => {
    const yard = new Yard();
    const foreman = await openWebForeman(PASSWORD);
    yard.worker(web(foreman.port, PASSWORD), { tags: ["big"] });
    const caller = await foreman.caller(1);
    const hello = await caller.welcome(false);
    expect(hello).toMatchObject({ type: HELLO, seq: 0, data: { NumProcs: 2, Running: [] } });
    const body = { auth: PASSWORD, node: "vm", pid: process.pid, session: "", tags: ["big"], nproc: 2 };
    expect(foreman.posted).toEqual([{ path: "/hello", body }]);
    caller.sayWith(JOB, 3, [task(1, { dir: yard.dir, command: "/bin/true" })]);
    expect(await caller.next()).toMatchObject({ type: OK, seq: 3, arg0: counts(1, 1) });
    expect(await caller.next()).toMatchObject({ type: UPDATE, seq: 4, data: { JobId: 1, Task: 1, Status: "done" } });
  });

  it("is told that its password is wrong, and tries no more", async () => {
    const yard = new Yard();
    const foreman = await openWebForeman(PASSWORD);
    const worker = yard.worker(web(foreman.port, "wrong"));
    await until("it is refused", () => worker.outcome === "LABORO_BAD_TOKEN");
    expect(foreman.callers).toEqual([]);
  });

  it("answers CANCEL with OK(cancelled|0), never with an ERROR, which would cost the connection", async () => {
    const yard = new Yard();
    const foreman = await openWebForeman(PASSWORD);
    yard.worker(web(foreman.port, PASSWORD));
    const caller = await foreman.caller(1);
    await caller.welcome(false);
    const command = yard.script("sleep.sh", `touch ${yard.path("begun")}.$1; sleep 100 & wait`);
    caller.sayWith(
      JOB,
      3,
      [1, 2].map((number) => task(number, { job: 3, dir: yard.dir, command })),
    );
    await caller.next();
    await until("both run", () => existsSync(yard.path("begun.1")) && existsSync(yard.path("begun.2")));
    caller.sayWith(CANCEL, 5, [{ JobId: 9, Task: -1 }]);
    expect(await caller.next()).toMatchObject({ type: OK, seq: 5, arg0: 0 });
    caller.sayWith(CANCEL, 7, [{ JobId: 3, Task: -1 }]);
    expect(await caller.next()).toMatchObject({ type: OK, seq: 7, arg0: counts(2, 0) });
    for (const left of [1, 0]) {
      const told = await caller.next();
      expect(told.data).toMatchObject({ Success: false, Status: "error encountered: signal: killed" });
      caller.say(OK, told.seq, counts(2 - left, left));
    }
  });

  it("stops by STOP(nproc + nrun), busy and idle, and closes with 1000", async () => {
    const yard = new Yard();
    const foreman = await openWebForeman(PASSWORD);
    const worker = yard.worker(web(foreman.port, PASSWORD));
    const caller = await foreman.caller(1);
    await caller.welcome(false);
    const command = yard.script("wait.sh", `while [ ! -e ${yard.path("go")} ]; do sleep 0.05; done`);
    caller.sayWith(JOB, 3, [task(1, { dir: yard.dir, command })]);
    await caller.next();
    caller.say(STOP, 5, 2);
    expect(await caller.next()).toMatchObject({ type: OK, seq: 5, arg0: counts(0, 1) });
    writeFileSync(yard.path("go"), "");
    const told = await caller.next();
    caller.say(OK, told.seq, counts(0, 0));
    await until("it has ended", () => worker.outcome === "stopped" && caller.closed === "1000 closing");
  });

  it("once it is to stop tells of one end at a time, so that the STOP after each finds it listening", async () => {
    const yard = new Yard();
    const foreman = await openWebForeman(PASSWORD);
    const worker = yard.worker(web(foreman.port, PASSWORD));
    const caller = await foreman.caller(1);
    await caller.welcome(false);
    const command = yard.script("wait.sh", `while [ ! -e ${yard.path("go")} ]; do sleep 0.05; done`);
    caller.sayWith(
      JOB,
      3,
      [1, 2].map((number) => task(number, { dir: yard.dir, command })),
    );
    await caller.next();
    caller.say(STOP, 5, 2);
    expect(await caller.next()).toMatchObject({ type: OK, seq: 5, arg0: counts(0, 2) });
    writeFileSync(yard.path("go"), "");
    const first = await caller.next();
    expect(first.type).toBe(UPDATE);
    caller.say(OK, first.seq, counts(0, 1));
    caller.say(STOP, first.seq + 3, 1);
    expect(await caller.next()).toMatchObject({ type: OK, seq: first.seq + 3, arg0: counts(0, 1) });
    const second = await caller.next();
    expect(second.type).toBe(UPDATE);
    caller.say(OK, second.seq, counts(0, 0));
    await until("it has ended", () => worker.outcome === "stopped" && caller.closed === "1000 closing");
  });

  it("leaves a foreman that hangs because STOP and UPDATE have crossed, and is stopped on a new connection", async () => {
    const yard = new Yard();
    const foreman = await openWebForeman(PASSWORD);
    const worker = yard.worker(web(foreman.port, PASSWORD));
    const first = await foreman.caller(1);
    await first.welcome(false);
    first.sayWith(JOB, 3, [task(1, { dir: yard.dir, command: "/bin/true" })]);
    await first.next();
    const told = await first.next();
    expect(told.type).toBe(UPDATE);
    first.say(STOP, told.seq + 1, 2);
    const second = await foreman.caller(2);
    expect((await second.welcome(false)).data).toMatchObject({ NumProcs: 1, Running: [{ Task: 1 }] });
    second.say(STOP, 3, 2);
    expect(await second.next()).toMatchObject({ type: OK, seq: 3, arg0: counts(0, 1) });
    const again = await second.next();
    expect(again).toMatchObject({ type: UPDATE, data: { Task: 1, Status: "done" } });
    second.say(OK, again.seq, counts(0, 0));
    await until("it has ended", () => worker.outcome === "stopped" && second.closed === "1000 closing");
  });

  it("comes back with the same cookie and one HELLO, which lists what was not acknowledged", async () => {
    const yard = new Yard();
    const foreman = await openWebForeman(PASSWORD);
    yard.worker(web(foreman.port, PASSWORD));
    const first = await foreman.caller(1);
    await first.welcome(false);
    first.sayWith(JOB, 3, [task(1, { dir: yard.dir, command: "/bin/true" })]);
    await first.next();
    expect((await first.next()).type).toBe(UPDATE);
    first.cut();
    const second = await foreman.caller(2);
    const hello = await second.welcome(false);
    expect(hello.data).toMatchObject({ NumProcs: 1, Running: [{ Task: 1 }] });
    const told = await second.next();
    expect(told).toMatchObject({ type: UPDATE, data: { Task: 1, Status: "done" } });
    // "Send HELLO": on a new connection, because a second one here would end the original.
    second.say(OK, told.seq, counts(65_535, 65_535));
    const third = await foreman.caller(3);
    expect((await third.welcome(false)).data).toMatchObject({ Running: [{ Task: 1 }] });
    expect(second.heard.filter(({ type }) => type === HELLO)).toHaveLength(1);
    const again = await third.next();
    third.say(OK, again.seq, counts(2, 0));
    third.cut();
    const fourth = await foreman.caller(4);
    expect((await fourth.welcome(false)).data).toMatchObject({ NumProcs: 2, Running: [] });
    expect(foreman.posted).toHaveLength(1);
  });

  it("says /hello again to a foreman that has forgotten its cookie", async () => {
    const yard = new Yard();
    const foreman = await openWebForeman(PASSWORD);
    yard.worker(web(foreman.port, PASSWORD));
    const first = await foreman.caller(1);
    await first.welcome(false);
    foreman.cookies.clear();
    first.cut();
    const second = await foreman.caller(2);
    expect((await second.welcome(false)).data).toMatchObject({ NumProcs: 2 });
    expect(foreman.posted.map(({ path }) => path)).toEqual(["/hello", "/hello"]);
  });

  it("asks the foreman to stop it when it is to leave, so that nothing is offered that it would have to refuse", async () => {
    const yard = new Yard();
    const foreman = await openWebForeman(PASSWORD);
    const worker = yard.worker(web(foreman.port, PASSWORD));
    const caller = await foreman.caller(1);
    await caller.welcome(false);
    await until("it has joined", () => worker.joined);
    const left = worker.stop({ finish: true });
    const asked = await until("it asks", () => foreman.posted[1]);
    const auth = { password: PASSWORD, client: "laboro worker" };
    expect(asked).toEqual({
      path: "/client/nodes/shutdown",
      body: { auth, msg: { uniq_names: [`vm:${process.pid}:1`] } },
    });
    // What was on its way is still taken.
    caller.sayWith(JOB, 3, [task(1, { dir: yard.dir, command: "/bin/true" })]);
    expect(await caller.next()).toMatchObject({ type: OK, seq: 3 });
    const told = await caller.next();
    caller.say(OK, told.seq, counts(2, 0));
    caller.say(STOP, told.seq + 1, 2);
    expect(await caller.next()).toMatchObject({ type: OK, arg0: counts(0, 0) });
    await left;
    await until("it has closed", () => caller.closed === "1000 closing");
  });
});
