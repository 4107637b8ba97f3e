import { describe, expect, it } from "vitest";
import { until } from "../../../support/wait.js";
import { type Asker, type Listener, openListener } from "./kit.js";

interface Given {
  readonly task: number;
  readonly job_id: number;
  readonly name: string;
}

const ask = async (worker: Asker, nproc = 1): Promise<Given[]> =>
  (await worker.post("/job/request", { nproc })).json as Given[];

const update = (worker: Asker, job_id: number, task: number, more: object = {}) =>
  worker.post("/job/update", { job_id, task, success: true, status: "done", newjob: { nproc: 1 }, ...more });

const STOP =
  '[{"task":-1,"job_id":0,"name":"::stop::","num_tasks":0,"working_dir":"","logging_dir":"","command":"","status":"waiting"}]\n';

const workersOf = async (listener: Listener) => (await listener.own()).workers();

describe("a worker that asks over HTTP", () => {
  it("waits for its task, and gets the next with its update", async () => {
    const listener = await openListener();
    const worker = listener.asker();
    const name = await worker.hello(listener.password);
    const asked = worker.post("/job/request", '{"nproc":1}');
    await until("it is here", async () => (await workersOf(listener))[0]?.free.slots === 1);
    expect(await workersOf(listener)).toMatchObject([{ name, protocol: "fuq (polling)", total: { slots: 1 } }]);
    await listener.job("poll", 2, "/bin/true");
    const description = `"job_id":1,"name":"poll","num_tasks":2,"working_dir":"${listener.dir}","logging_dir":"${listener.dir}","command":"/bin/true","status":"running"`;
    expect((await asked).text).toBe(`[{"task":1,${description}}]\n`);
    const own = await listener.own();
    expect((await own.job(1).info()).counters).toMatchObject({ running: 1, waiting: 1 });
    const second = await update(worker, 1, 1, { success: false, status: "error encountered: exit status 3" });
    expect(second.text).toBe(`[{"task":2,${description}}]\n`);
    const last = await update(worker, 1, 2, { newjob: null });
    expect([last.status, last.text]).toEqual([200, "[]\n"]);
    expect(await own.job(1).wait()).toBe("failed");
    const results = [];
    for await (const { index, code, worker: by } of own.job(1).results()) results.push([index, code, by]);
    expect(results).toEqual([
      [0, 3, name],
      [1, 0, name],
    ]);
  });

  it("gets the tasks of an array by their numbers, and so does fuq's client", async () => {
    const listener = await openListener();
    const own = await listener.own();
    const array = [{ first: 5, last: 9, step: 2 }];
    const recipe = { kind: "command", argv: ["/bin/true", "{#}"], placeholders: true, dir: "/tmp", array } as const;
    const job = await own.submit({ recipe });
    const worker = listener.asker();
    await worker.hello(listener.password);
    expect(await ask(worker)).toMatchObject([{ task: 5, job_id: job.id }]);
    expect((await update(worker, job.id, 6)).status).toBe(500);
    const next = await update(worker, job.id, 5, { success: false, status: "error encountered: exit status 3" });
    expect(next.json).toMatchObject([{ task: 7 }]);
    expect((await listener.client("job/list", { name: "", status: "" })).json).toMatchObject([
      { TasksRunning: [7], TasksWithErrors: [5], TasksPending: 1 },
    ]);
    expect((await update(worker, job.id, 7)).json).toMatchObject([{ task: 9 }]);
    await update(worker, job.id, 9, { newjob: null });
    expect(await job.wait()).toBe("failed");
    const results = [];
    for await (const { index, number, state } of job.results()) results.push([index, number, state]);
    expect(results).toEqual([
      [0, 5, "failed"],
      [1, 7, "succeeded"],
      [2, 9, "succeeded"],
    ]);
  });

  it("gets no task that it cannot run", async () => {
    const listener = await openListener();
    const own = await listener.own();
    await own.submit({ recipe: { kind: "command", argv: ["echo", "a b"] } });
    await own.submit({ recipe: { kind: "script", content: Buffer.from("echo a\n"), type: ".sh" } });
    const worker = listener.asker();
    await worker.hello(listener.password);
    const asked = ask(worker);
    await listener.job("fit", 1, "/bin/true");
    expect(await asked).toMatchObject([{ job_id: 3, name: "fit" }]);
    for (const id of [1, 2]) expect((await own.job(id).info()).state).toBe("waiting");
  });

  it("gets what laboro's own client submits, under a name that can be part of a log's", async () => {
    const listener = await openListener();
    const own = await listener.own();
    const recipe = { kind: "command", argv: ["/bin/true", "{#}"], placeholders: true, dir: "/tmp" } as const;
    await own.submit({ recipe });
    await own.submit({ recipe: { ...recipe, log: "logs/mine_{#}.log" }, name: "another" });
    const worker = listener.asker();
    await worker.hello(listener.password);
    expect((await worker.post("/job/request", { nproc: 1 })).json).toEqual([
      {
        task: 1,
        job_id: 1,
        name: "_bin_true",
        num_tasks: 1,
        working_dir: "/tmp",
        logging_dir: "/tmp",
        command: "/bin/true",
        status: "running",
      },
    ]);
    expect((await update(worker, 1, 1)).json).toMatchObject([{ name: "mine", logging_dir: "/tmp/logs" }]);
    const listed = (await listener.client("job/list", {})).json;
    expect(listed).toMatchObject([{ Description: { name: "another", logging_dir: "/tmp/logs" } }]);
  });

  it("asks as often as it has processors, and each question gets one task", async () => {
    const listener = await openListener();
    await listener.job("four", 4, "/bin/true");
    const worker = listener.asker();
    await worker.hello(listener.password, 3);
    const first = (await Promise.all([ask(worker), ask(worker), ask(worker)])).flat();
    expect(first.map(({ task }) => task).sort()).toEqual([1, 2, 3]);
    expect((await update(worker, 1, 2)).json).toMatchObject([{ task: 4 }]);
    for (const task of [1, 3, 4]) await update(worker, 1, task, { newjob: null });
    expect(await (await listener.own()).job(1).wait()).toBe("succeeded");
  });

  it("may ask for several tasks at once", async () => {
    const listener = await openListener();
    await listener.job("many", 5, "/bin/true");
    const worker = listener.asker();
    await worker.hello(listener.password, 4);
    const got = await ask(worker, 100);
    expect(got.length).toBeGreaterThan(0);
    expect(got.length).toBeLessThanOrEqual(4);
  });

  it("is stopped with ::stop::, whenever it asks", async () => {
    const listener = await openListener();
    const worker = listener.asker();
    const name = await worker.hello(listener.password);
    const asked = worker.post("/job/request", { nproc: 1 });
    await until("it is here", async () => (await workersOf(listener)).length === 1);
    expect((await listener.client("nodes/shutdown", { uniq_names: [name, "nobody"] })).text).toBe("{}\n");
    expect((await asked).text).toBe(STOP);
    // The original takes it for a task, tells how it went, and asks once more.
    const odd = await update(worker, 0, -1, { success: false, status: "error encountered: exec: no command" });
    expect([odd.status, odd.text]).toEqual([500, "500 internal error\n"]);
    await listener.job("never", 1, "/bin/true");
    worker.vanish();
    expect((await worker.post("/job/request", { nproc: 1 })).text).toBe(STOP);
    worker.vanish();
    await until("it is gone", async () => (await workersOf(listener)).length === 0);
  });

  it("is stopped slot by slot: as many requests get ::stop::, and the rest work on", async () => {
    const listener = await openListener();
    const worker = listener.asker();
    await worker.hello(listener.password, 3);
    const waiting = [1, 2, 3].map(() => worker.post("/job/request", { nproc: 1 }));
    const own = await listener.own();
    await until("it waits for three", async () => (await own.workers())[0]?.total.slots === 3);
    const [{ id } = { id: "" }] = await own.workers();
    await expect(own.stopWorker(id, { now: true })).rejects.toMatchObject({ code: "LABORO_NOT_SUPPORTED" });
    await own.stopWorker(id, { slots: 2 });
    const answered = await Promise.race([Promise.all(waiting.slice(1)), Promise.all(waiting.slice(0, 2))]);
    expect(answered.map(({ text }) => text)).toEqual(["[]\n", "[]\n"]);
    // Each asks again, and ends.
    for (let i = 0; i < 2; i++) expect((await worker.post("/job/request", { nproc: 1 })).text).toBe(STOP);
    await listener.job("one", 1, "/bin/true");
    const given = (await Promise.all(waiting)).map(({ text }) => text).filter((text) => text !== "[]\n");
    expect(given).toHaveLength(1);
    await update(worker, 1, 1, { newjob: null });
    expect(await own.job(1).wait()).toBe("succeeded");
  });

  it("is not told to stop in the answer to its update, where the original would run that as a task", async () => {
    const listener = await openListener();
    const worker = listener.asker();
    const name = await worker.hello(listener.password);
    await listener.job("two", 2, "/bin/true");
    await ask(worker);
    await listener.client("job/state", { job_ids: [1], Action: "hold" });
    const told = update(worker, 1, 1);
    await until(
      "its result is here",
      async () => (await (await listener.own()).job(1).info()).counters.succeeded === 1,
    );
    await listener.client("nodes/shutdown", { uniq_names: [name] });
    expect((await told).text).toBe("[]\n");
    expect((await worker.post("/job/request", { nproc: 1 })).text).toBe(STOP);
  });

  it("may put what it asks in an envelope with its cookie, and tell of its end at /job/status, as older ones do", async () => {
    const listener = await openListener();
    await listener.job("two", 2, "/bin/true");
    const [greeter, worker] = [listener.asker(), listener.asker()];
    await greeter.hello(listener.password);
    const { cookie } = greeter;
    const asked = await worker.post("/job/request", { cookie, msg: { nproc: 1 } });
    expect(asked.json).toMatchObject([{ task: 1 }]);
    const told = {
      job_id: 1,
      task: 1,
      success: false,
      status: "error encountered: exit status 3",
      newjob: { nproc: 1 },
    };
    expect((await worker.post("/job/status", { cookie, msg: told })).json).toMatchObject([{ task: 2 }]);
    await worker.post("/job/status", {
      cookie,
      msg: { ...told, task: 2, success: true, status: "done", newjob: null },
    });
    const own = await listener.own();
    expect(await own.job(1).wait()).toBe("failed");
    expect((await own.job(1).info()).counters).toMatchObject({ succeeded: 1, failed: 1 });
    const statusOf = async (body: object) => (await worker.post("/job/request", body)).status;
    expect(await statusOf({ cookie: "nobody's", msg: { nproc: 1 } })).toBe(403);
    expect(await statusOf({ msg: { nproc: 1 } })).toBe(401);
  });

  it("lets its task go to another when it asks again without having told of it", async () => {
    const listener = await openListener();
    await listener.job("one", 1, "/bin/true");
    const worker = listener.asker();
    await worker.hello(listener.password);
    expect(await ask(worker)).toMatchObject([{ task: 1 }]);
    expect(await ask(worker)).toMatchObject([{ task: 1 }]);
    const own = await listener.own();
    await update(worker, 1, 1, { newjob: null });
    expect(await own.job(1).wait()).toBe("succeeded");
  });

  it("loses nothing when it goes away while it asks", async () => {
    const listener = await openListener();
    const [first, second] = [listener.asker(), listener.asker()];
    await first.hello(listener.password);
    await second.hello(listener.password);
    const gone = new AbortController();
    const asked = first.post("/job/request", { nproc: 1 }, gone.signal).catch(() => "gone");
    await until("it is here", async () => (await workersOf(listener)).length === 1);
    gone.abort();
    expect(await asked).toBe("gone");
    await listener.job("one", 1, "/bin/true");
    expect(await ask(second)).toMatchObject([{ task: 1 }]);
  });

  it("is known again after a restart of the broker, and so is its task", async () => {
    const listener = await openListener();
    await listener.job("two", 2, "/bin/true");
    const worker = listener.asker();
    await worker.hello(listener.password);
    expect(await ask(worker)).toMatchObject([{ task: 1 }]);
    await listener.restart();
    expect((await update(worker, 1, 1)).json).toMatchObject([{ task: 2 }]);
    await listener.restart();
    const other = listener.asker();
    await other.hello(listener.password);
    const waiting = ask(other);
    await update(worker, 1, 2, { newjob: null });
    const own = await listener.own();
    expect(await own.job(1).wait()).toBe("succeeded");
    for await (const { attempt } of own.job(1).results()) expect(attempt).toBe(1);
    await listener.job("next", 1, "/bin/true");
    expect(await waiting).toMatchObject([{ job_id: 2 }]);
  });

  it("is away when its connections are gone, and its task is kept for it", async () => {
    const listener = await openListener();
    await listener.job("one", 1, "/bin/true");
    const worker = listener.asker();
    await worker.hello(listener.password);
    await ask(worker);
    worker.vanish();
    await until("it is away", async () => (await workersOf(listener))[0]?.connected === false);
    await update(worker, 1, 1, { newjob: null });
    expect(await (await listener.own()).job(1).wait()).toBe("succeeded");
  });

  it("tells in vain of a task that is another's", async () => {
    const listener = await openListener();
    await listener.job("one", 1, "/bin/true");
    const [first, second] = [listener.asker(), listener.asker()];
    await first.hello(listener.password);
    await second.hello(listener.password);
    await ask(first);
    const failed = { success: false, status: "error encountered: exit status 9", newjob: null };
    const foreign = await update(second, 1, 1, failed);
    expect([foreign.status, foreign.text]).toEqual([200, "[]\n"]);
    await update(first, 1, 1, { newjob: null });
    expect(await (await listener.own()).job(1).wait()).toBe("succeeded");
  });

  it("tells of a task that was taken from it and that nobody else has, and that counts", async () => {
    const listener = await openListener();
    await listener.job("one", 1, "/bin/true");
    const worker = listener.asker();
    await worker.hello(listener.password);
    await ask(worker);
    await listener.client("job/state", { job_ids: [1], Action: "hold" });
    const own = await listener.own();
    const gone = new AbortController();
    const asked = worker.post("/job/request", { nproc: 1 }, gone.signal).catch(() => "gone");
    await until("the task waits", async () => (await own.job(1).info()).counters.waiting === 1);
    gone.abort();
    expect(await asked).toBe("gone");
    await update(worker, 1, 1, { newjob: null });
    expect(await own.job(1).wait()).toBe("succeeded");
  });

  it("tells nonsense, and is refused", async () => {
    const listener = await openListener();
    const worker = listener.asker();
    await worker.hello(listener.password);
    const statusOf = async (body: unknown) => (await worker.post("/job/update", body)).status;
    expect(await statusOf("nonsense")).toBe(400);
    expect(await statusOf({ job_id: 1, task: "1" })).toBe(400);
    expect(await statusOf({ job_id: 77, task: 1 })).toBe(500);
    expect((await worker.post("/job/request", { nproc: "many" })).status).toBe(400);
  });
});

describe("fuq's list of workers", () => {
  it("is null while there is none, has those that are connected, or all whose cookie is good", async () => {
    const listener = await openListener();
    const list = async (msg: object) => (await listener.client("nodes/list", msg)).text;
    expect(await list({ cookie_list: false, job_list: false })).toBe("null\n");
    const worker = listener.asker();
    await worker.hello(listener.password, 2, { tags: ["big"] });
    expect(await list({ cookie_list: false })).toBe("null\n");
    const known = JSON.parse(await list({ cookie_list: true })) as object[];
    const entry = {
      node: "vm",
      pid: 27311,
      session: expect.any(String),
      unique_name: "vm:27311:1",
      tags: ["big"],
      nproc: 2,
    };
    expect(known).toEqual([entry]);
    const asked = ask(worker);
    await until("it is here", async () => (await workersOf(listener)).length === 1);
    listener.ownWorker();
    expect(JSON.parse(await list({}))).toEqual([entry]);
    const shutdown = (password = "") =>
      listener.asker().post("/client/shutdown", { auth: { password, client: "fuqcli" }, msg: {} });
    // As for laboro's own `stop`: it stops workers of others.
    for (const role of ["fuq", "client", "worker", "read"] as const)
      expect([role, (await shutdown(listener.broker.tokenOf(role))).status]).toEqual([role, 403]);
    expect((await shutdown(listener.broker.token)).text).toBe("{}\n");
    expect(await asked).toMatchObject([{ name: "::stop::" }]);
    const answer = await listener.client("job/list", {});
    expect(answer.status).toBe(200);
  });
});
