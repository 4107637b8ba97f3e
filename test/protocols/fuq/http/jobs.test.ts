import { chmodSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { TRUE } from "../../../support/recipes.js";
import { until } from "../../../support/wait.js";
import { type Listener, openListener } from "./kit.js";

function script(listener: Listener, name: string, text: string): string {
  const file = join(listener.dir, name);
  writeFileSync(file, `#!/bin/sh\n${text}\n`);
  chmodSync(file, 0o755);
  return file;
}

describe("jobs of fuq's client", () => {
  it("are jobs of laboro, run by its workers with the task's number, and logged where they say", async () => {
    const listener = await openListener();
    const command = script(listener, "job.sh", 'echo "task $1 of $# in $PWD"; [ "$1" != 2 ] || exit 3');
    const queued = await listener.job("three", 3, command);
    expect([queued.status, queued.text]).toEqual([200, '{"job_id":1}\n']);
    const own = await listener.own();
    expect(await own.job(1).info()).toMatchObject({
      name: "three",
      count: 3,
      recipe: { argv: [command, "{#}"], dir: listener.dir },
    });
    listener.ownWorker();
    expect(await own.job(1).wait()).toBe("failed");
    expect(readFileSync(join(listener.dir, "three_3.log"), "utf8")).toBe(`task 3 of 1 in ${listener.dir}\n`);
    const listed = await listener.client("job/list", { name: "three", status: "finished" });
    const Description = {
      job_id: 1,
      name: "three",
      num_tasks: 3,
      working_dir: listener.dir,
      logging_dir: listener.dir,
      command,
      status: "finished",
    };
    const expected = [{ Description, TasksFinished: 2, TasksPending: 0, TasksRunning: [], TasksWithErrors: [2] }];
    expect(listed.text).toBe(`${JSON.stringify(expected)}\n`);
    expect((await listener.client("job/list", { name: "", status: "" })).text).toBe("[]\n");
  });

  it("are listed with laboro's own, each by its state", async () => {
    const listener = await openListener();
    const own = await listener.own();
    const submitted = await own.submit({
      recipe: { kind: "command", argv: ["sort", "-u", "a file"] },
      count: 4,
      name: "own",
    });
    await listener.job("held", 2, "/bin/true", { status: "paused" });
    await listener.job("gone", 2, "/bin/true");
    await own.job(3).cancel();
    const list = async (msg: object) =>
      ((await listener.client("job/list", msg)).json as { Description: { name: string; status: string } }[]).map(
        ({ Description: { name, status } }) => [name, status],
      );
    expect(await list({ name: "", status: "" })).toEqual([
      ["own", "waiting"],
      ["held", "paused"],
    ]);
    expect(await list({ status: "cancelled" })).toEqual([["gone", "cancelled"]]);
    expect(await list({ status: "paused" })).toEqual([["held", "paused"]]);
    expect(await list({ name: "own" })).toEqual([["own", "waiting"]]);
    expect(await list({ name: "o*" })).toEqual([]);
    expect(await list({ status: "nonsense" })).toEqual([]);
    const [first] = (await listener.client("job/list", {})).json as [{ Description: object }];
    expect(first.Description).toMatchObject({ command: "sort -u 'a file'", working_dir: "", logging_dir: "" });
    expect((await submitted.info()).state).toBe("waiting");
  });

  it("are held, released and cancelled, with either case of the key", async () => {
    const listener = await openListener();
    const own = await listener.own();
    await listener.job("slow", 2, "/bin/true");
    const change = async (msg: object) => (await listener.client("job/state", msg)).text;
    expect(await change({ job_ids: [1], Action: "hold" })).toBe(
      '[{"job_id":1,"prev_status":"waiting","new_status":"paused"}]\n',
    );
    expect((await own.job(1).info()).state).toBe("held");
    expect(await change({ job_ids: [1], action: "release" })).toBe(
      '[{"job_id":1,"prev_status":"paused","new_status":"waiting"}]\n',
    );
    await own.submit({ recipe: TRUE, name: "another" });
    expect(JSON.parse(await change({ job_ids: [1, 2], Action: "cancel" }))).toEqual([
      { job_id: 1, prev_status: "waiting", new_status: "cancelled" },
      { job_id: 2, prev_status: "waiting", new_status: "cancelled" },
    ]);
    expect(await own.job(2).wait()).toBe("cancelled");
    expect(await change({ job_ids: [1], Action: "hold" })).toBe(
      '[{"job_id":1,"prev_status":"cancelled","new_status":"cancelled"}]\n',
    );
  });

  it("show what runs while it runs, and a cancel ends it", async () => {
    const listener = await openListener();
    const command = script(listener, "wait.sh", "exec sleep 100");
    await listener.job("long", 3, command);
    listener.ownWorker(2);
    const own = await listener.own();
    await until("two tasks run", async () => (await own.job(1).info()).counters.running === 2);
    const [job] = (await listener.client("job/list", {})).json as [object];
    expect(job).toMatchObject({
      Description: { status: "running" },
      TasksFinished: 0,
      TasksPending: 1,
      TasksRunning: [1, 2],
    });
    await listener.client("job/state", { job_ids: [1], Action: "cancel" });
    expect(await own.job(1).wait()).toBe("cancelled");
  });

  it("are refused with 400 where they are not known or make no sense, and then nothing is changed", async () => {
    const listener = await openListener();
    await listener.job("one", 1, "/bin/true");
    const status = async (path: string, msg: object) => (await listener.client(path, msg)).status;
    const unknown = await listener.client("job/state", { job_ids: [1, 99], Action: "hold" });
    expect([unknown.status, unknown.text]).toEqual([400, "400 bad request\n"]);
    expect((await (await listener.own()).job(1).info()).state).toBe("waiting");
    expect(await status("job/state", { job_ids: [1], Action: "explode" })).toBe(400);
    expect(await status("job/state", { job_ids: [], Action: "hold" })).toBe(400);
    expect(await status("job/state", { job_ids: ["1"], Action: "hold" })).toBe(400);
    const good = { name: "x", num_tasks: 1, working_dir: "/", logging_dir: "/", command: "/bin/true" };
    for (const bad of [
      { name: "" },
      { command: "" },
      { num_tasks: 0 },
      { num_tasks: -1 },
      { num_tasks: 1e12 },
      { working_dir: "" },
      { command: "/a/{}" },
      { name: 7 },
    ]) {
      expect([bad, await status("job/new", { ...good, ...bad })]).toEqual([bad, 400]);
    }
  });

  it("fail with a clear error where their logging directory is not there", async () => {
    const listener = await openListener();
    await listener.job("lost", 1, "/bin/true", { logging_dir: "/nowhere/at/all" });
    listener.ownWorker();
    const own = await listener.own();
    expect(await own.job(1).wait()).toBe("failed");
    for await (const result of own.job(1).results()) expect(result.error).toMatch(/cannot open the log file/);
    expect(existsSync("/nowhere")).toBe(false);
  });

  it("are forgotten by job/clear once they have ended; others, and those that go on, stay", async () => {
    const listener = await openListener();
    const own = await listener.own();
    await listener.job("ended", 1, "/bin/true");
    listener.ownWorker();
    await own.job(1).wait();
    const another = await own.submit({ recipe: TRUE });
    await another.wait();
    await listener.job("held", 1, "/bin/true", { status: "paused" });
    const cleared = await listener.client("job/clear");
    expect([cleared.status, cleared.text]).toEqual([200, "{}\n"]);
    await expect(own.job(1).info()).rejects.toMatchObject({ code: "LABORO_NO_SUCH_JOB" });
    expect((await another.info()).state).toBe("succeeded");
    expect((await own.job(3).info()).state).toBe("held");
  });
});
