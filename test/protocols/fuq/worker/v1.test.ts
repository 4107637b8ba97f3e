import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { isRunning } from "../../../support/process-table.js";
import { until } from "../../../support/wait.js";
import { Yard } from "./kit.js";
import { ERROR, JOB, OK, STOP, task, UPDATE } from "./literal-foreman.js";
import { LiteralServer } from "./literal-server.js";

describe("our client and a server by the text of v1", () => {
  it("greet each other, run tasks one by one, and tell of each when the last was heard", async () => {
    const yard = new Yard();
    const server = await new LiteralServer().start();
    yard.worker(server.place);
    expect(await server.welcome(1)).toMatchObject({ type: OK, arg0: 2 });
    const command = yard.script("job.sh", 'echo "task $1"; exit $(($1 - 1))');
    server.say(JOB, 0, task(1, { dir: yard.dir, command }));
    server.say(JOB, 0, task(2, { dir: yard.dir, command }));
    const first = await server.next();
    server.say(OK, 1);
    const second = await server.next();
    server.say(OK, 2);
    const told = [first, second].map(({ data }) => data) as { Task: number; Success: boolean; Status: string }[];
    expect(told.sort((a, b) => a.Task - b.Task)).toEqual([
      { JobId: 1, Task: 1, Success: true, Status: "done", NewJob: null },
      { JobId: 1, Task: 2, Success: false, Status: "error encountered: exit status 1", NewJob: null },
    ]);
    expect(readFileSync(yard.path("job_2.log"), "utf8")).toBe("task 2\n");
  });

  it("refuse what is too much with ERROR(cannot_run_job), and say nothing to what is taken", async () => {
    const yard = new Yard();
    const server = await new LiteralServer().start();
    yard.worker(server.place, { slots: 1 });
    await server.welcome(1);
    const command = yard.script("wait.sh", `while [ ! -e ${yard.path("go")} ]; do sleep 0.05; done`);
    server.say(JOB, 0, task(1, { dir: yard.dir, command }));
    server.say(JOB, 0, task(2, { dir: yard.dir, command }));
    expect(await server.next()).toMatchObject({ type: ERROR, arg0: 5 });
    writeFileSync(yard.path("go"), "");
    expect(await server.next()).toMatchObject({ type: UPDATE, data: { Task: 1 } });
  });

  it("stop: the client ends when what runs is told of and heard", async () => {
    const yard = new Yard();
    const server = await new LiteralServer().start();
    const worker = yard.worker(server.place);
    await server.welcome(1);
    const command = yard.script("wait.sh", `while [ ! -e ${yard.path("go")} ]; do sleep 0.05; done`);
    server.say(JOB, 0, task(1, { dir: yard.dir, command }));
    server.say(STOP, 2);
    server.say(JOB, 0, task(2, { dir: yard.dir, command }));
    expect(await server.next()).toMatchObject({ type: ERROR, arg0: 5 });
    writeFileSync(yard.path("go"), "");
    expect(await server.next()).toMatchObject({ type: UPDATE, data: { Task: 1, Success: true } });
    expect(worker.outcome).toBeUndefined();
    server.say(OK, 0);
    await until("it has ended", () => worker.outcome === "stopped");
  });

  it("cannot resume: what a broken connection leaves is ended, and the next begins empty", async () => {
    const yard = new Yard();
    const server = await new LiteralServer().start();
    yard.worker(server.place);
    await server.welcome(1);
    const { command, process } = yard.endless();
    server.say(JOB, 0, task(1, { dir: yard.dir, command }));
    const pid = await process();
    server.sockets[0]?.destroy();
    const again = await server.welcome(2);
    expect(again.type).toBe(OK);
    server.say(JOB, 0, task(2, { dir: yard.dir, command: "/bin/true" }));
    expect(await server.next()).toMatchObject({ type: UPDATE, data: { Task: 2, Success: true } });
    await until("what ran is gone", () => !isRunning(pid));
  });

  it("greet again with every slot, though what was killed has not died yet, and the same tasks run again", async () => {
    const yard = new Yard();
    const server = await new LiteralServer().start();
    const slots = 12;
    yard.worker(server.place, { slots, firstDelayMs: 1 });
    await server.welcome(1);
    const command = yard.script(
      "twice.sh",
      `[ -e ${yard.path("ran")}.$1 ] && exit 0; touch ${yard.path("ran")}.$1; exec sleep 1000`,
    );
    const numbers = Array.from({ length: slots }, (_, i) => i + 1);
    for (const number of numbers) server.say(JOB, 0, task(number, { dir: yard.dir, command }));
    await until("all run", () => numbers.every((number) => existsSync(yard.path(`ran.${number}`))));
    server.sockets[0]?.destroy();
    expect(await server.welcome(2)).toMatchObject({ type: OK, arg0: slots });
    for (const number of numbers) server.say(JOB, 0, task(number, { dir: yard.dir, command }));
    const ended: unknown[] = [];
    for (let left = slots; left > 0; left--) {
      const { type, data } = await server.next();
      expect(type).toBe(UPDATE);
      expect(data).toMatchObject({ Success: true });
      ended.push((data as { Task: number }).Task);
      server.say(OK, slots - left + 1);
    }
    expect(new Set(ended)).toEqual(new Set(numbers));
  });
});
