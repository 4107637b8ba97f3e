/** Every operation, through both listeners: the same scenario over HTTP and over the link, and each answer as its schema says. */
import { Ajv2020 } from "ajv/dist/2020.js";
import { describe, expect, it } from "vitest";
import { plain } from "../../src/broker/api/json.js";
import { OPERATIONS, type OperationName } from "../../src/broker/operations/index.js";
import { TRUE } from "../support/recipes.js";
import { SlurmStandIn } from "../support/slurm-stand-in.js";
import { until } from "../support/wait.js";
import { apiOf, openTestBroker } from "./kit.js";

type Ask = (name: OperationName, input?: Readonly<Record<string, unknown>>) => Promise<Record<string, unknown>>;
type TestBroker = Awaited<ReturnType<typeof openTestBroker>>;

/** The broker counts from the start of its process, and the system's clock may have been set since. */
const CLOCKS_DIFFER_MS = 1_000;

const ajv = new Ajv2020({ strict: true, allowUnionTypes: true, formats: { "date-time": true } });

function overHttp({ broker }: TestBroker): Ask {
  const api = apiOf(broker);
  return async (name, input = {}) => {
    const { method, path } = OPERATIONS[name];
    const left: Record<string, unknown> = { ...input };
    const filled = path.replaceAll(/\{(\w+)\}/g, (_, member: string) => {
      const value = left[member];
      delete left[member];
      return encodeURIComponent(String(value));
    });
    if (name === "request") {
      const { body, ...query } = left;
      const answer = await api(`${filled}?${new URLSearchParams(query as Record<string, string>)}`, {
        method,
        body: body ?? "",
        headers: { "content-type": "text/plain" },
      });
      return answer.status === 200 ? { body: answer.text } : (answer.json as Record<string, unknown>);
    }
    const query = method === "POST" ? "" : `?${new URLSearchParams(left as Record<string, string>)}`;
    const answer = await api(filled + query, method === "POST" ? { method, body: left } : { method });
    return answer.json as Record<string, unknown>;
  };
}

const overLink =
  ({ client }: TestBroker): Ask =>
  async (name, input = {}) => {
    try {
      return plain(await client.ask(name as "status", input as object)) as Record<string, unknown>;
    } catch (cause) {
      const { code, message } = cause as { code: string; message: string };
      return { error: { code, message } };
    }
  };

describe.each([
  ["HTTP", overHttp],
  ["the link", overLink],
])("over %s", (_door, through) => {
  it("every operation is answered, and as its schema says", async () => {
    const setup = await openTestBroker();
    const asked = new Set<OperationName>();
    const raw = through(setup);
    const ask: Ask = async (name, input) => {
      asked.add(name);
      const answer = await raw(name, input);
      expect(answer.error, `${name}: ${JSON.stringify(answer.error)}`).toBeUndefined();
      const fits = ajv.compile(OPERATIONS[name].output.json());
      expect(fits(answer), `${name}: ${JSON.stringify(fits.errors)} in ${JSON.stringify(answer).slice(0, 500)}`).toBe(
        true,
      );
      return answer;
    };

    expect(await ask("status")).toMatchObject({ version: "0.2.0", jobs: { running: 0 }, slots: { total: 0 } });
    const recipe = {
      kind: "command",
      argv: ["/bin/sh", "-c", 'echo "out {}"; echo err >&2; test {} != b'],
      placeholders: true,
    };
    const { job } = await ask("submit", { recipe, entries: ["a", "b", "c"], name: "first", key: "k1", held: true });
    expect(await ask("job", { job })).toMatchObject({
      id: job,
      name: "first",
      key: "k1",
      state: "held",
      count: 3,
      counters: { waiting: 3, running: 0, succeeded: 0 },
      recipe: { kind: "command", summary: expect.stringContaining("/bin/sh -c") },
    });
    expect(await ask("entries", { job, from: 1 })).toEqual({ entries: ["b", "c"] });
    expect(await ask("explain", { job, index: 0 })).toEqual({ reason: "its job is held" });
    expect(await ask("task", { job, index: 2 })).toMatchObject({ state: "waiting", attempt: 0, earlierAttempts: [] });
    expect(await ask("wait", { job, timeoutMs: 10 })).toEqual({ ended: false });
    await ask("edit", { job, priority: 3 });
    const open = await ask("submit", { recipe, entries: [], open: true });
    expect(await ask("append", { job: open.job, entries: ["x", "y"] })).toEqual({ first: 0, count: 2 });
    expect(await ask("job", { job: open.job })).toMatchObject({ open: true, count: 2 });
    await ask("close", { job: open.job });
    await ask("cancel", { job: open.job });
    await ask("remove", { job: open.job });
    await ask("release", { job });
    await ask("hold", { job });
    await ask("release", { job });

    const worker = setup.worker({
      name: "one",
      services: { shout: (body) => Buffer.from(body).toString().toUpperCase() },
    });
    expect(await ask("wait", { job })).toEqual({ ended: true, state: "failed" });
    expect(await ask("tasks", { job })).toMatchObject({
      tasks: [
        { index: 0, state: "succeeded", code: 0, worker: "one" },
        { index: 1, state: "failed", code: 1 },
        { index: 2, state: "succeeded" },
      ],
    });
    expect(await ask("running", { job })).toEqual({ tasks: [] });
    expect(await ask("waiting", { job })).toEqual({ tasks: [] });
    expect(await ask("cancelled", { job })).toEqual({ tasks: [] });
    expect(await ask("usage", { job })).toMatchObject({ tasks: 3 });
    expect(await ask("task", { job, index: 1 })).toMatchObject({
      state: "failed",
      attempt: 1,
      worker: "one",
      reason: expect.stringContaining("exit code 1"),
    });
    expect(await ask("output", { job, index: 0, stream: "stdout" })).toMatchObject({
      pieces: [{ stream: "stdout", bytes: "out a\n" }],
      ended: true,
      attempt: 1,
    });
    const files = { sent: [{ path: "in", size: 3, sha256: "0".repeat(64) }], returns: ["out"] };
    const sender = await ask("submit", { recipe: { ...recipe, files }, entries: ["a"], held: true });
    const part = { job: sender.job, file: 0, from: 0, bytes: "abc" };
    expect(await ask("sendFile", part)).toEqual({ stored: 3 });
    expect(await ask("returnedFiles", { job, index: 0 })).toEqual({ bytes: "" });
    await ask("cancel", { job: sender.job });
    await ask("remove", { job: sender.job });
    expect(await ask("workers")).toMatchObject({ workers: [{ name: "one", connected: true, total: { slots: 2 } }] });
    expect(await ask("request", { service: "shout", body: "hey", timeoutMs: 5000 })).toEqual({ body: "HEY" });
    expect(await ask("services")).toMatchObject({
      services: [{ name: "shout", workers: 1, completed: 1, failed: 0, latencyMs: { p50: expect.any(Number) } }],
    });

    expect(await ask("taskMap", { job })).toMatchObject({ count: 3, tasksPerCell: 1, runs: [5, 1, 0, 1, 5, 1] });
    expect(await ask("workerPage")).toMatchObject({ total: 1, workers: [{ name: "one", position: 0, running: [] }] });
    expect(await ask("overview")).toMatchObject({ status: { workers: { connected: 1 } }, problems: [{ job }] });
    expect(await ask("history")).toMatchObject({ stepMs: 5000 });
    const { connections } = await ask("connections");
    const [{ id }] = connections as [{ id: number }];
    expect(await ask("connection", { id })).toMatchObject({ id, closed: false });
    expect(await ask("permissions")).toMatchObject({ role: "admin" });

    expect(await ask("rerun", { job })).toEqual({ count: 1 });
    expect(await ask("wait", { job })).toEqual({ ended: true, state: "failed" });
    expect(await ask("task", { job, index: 1 })).toMatchObject({
      state: "failed",
      attempt: 2,
      earlierAttempts: [{ attempt: 1 }],
    });

    const submitted = Date.now();
    const { job: long } = await ask("submit", { recipe: { kind: "command", argv: ["sleep", "60"] }, count: 2 });
    await until("both run", async () => ((await ask("running", { job: long })).tasks as object[]).length === 2);
    expect(await ask("running", { job: long })).toMatchObject({ assigned: 2 });
    for (const { startedAt } of (await ask("running", { job: long })).tasks as { startedAt: number }[]) {
      expect(startedAt).toBeGreaterThanOrEqual(submitted - CLOCKS_DIFFER_MS);
      expect(startedAt).toBeLessThanOrEqual(Date.now() + CLOCKS_DIFFER_MS);
    }
    expect(await ask("job", { job: long })).toMatchObject({ state: "running", counters: { running: 2, waiting: 0 } });
    await ask("cancel", { job: long, reason: "enough" });
    expect(await ask("wait", { job: long })).toEqual({ ended: true, state: "cancelled" });
    expect(await ask("job", { job: long })).toMatchObject({
      state: "cancelled",
      reason: "enough",
      ended: expect.any(Number),
    });

    const nightly = { schedule: "nightly" };
    const night = { cron: "0 3 * * *", timeZone: "Europe/Prague", start: "2026-01-01T00:00:00Z", job: { recipe } };
    const {
      cron,
      start,
      job: ofRun,
    } = await ask("scheduleSet", { ...nightly, ...night, job: { recipe, entries: ["a"] } });
    expect([cron, start, ofRun]).toMatchObject(["0 3 * * *", Date.UTC(2026, 0, 1), { name: "nightly", count: 1 }]);
    expect(await ask("scheduleEdit", { ...nightly, overlap: "replace", unset: ["start"] })).not.toHaveProperty("start");
    expect(await ask("schedulePause", nightly)).toMatchObject({ state: "paused", overlap: "replace" });
    expect(await ask("scheduleResume", nightly)).toMatchObject({ state: "active", due: expect.any(Number) });
    const { job: scheduled } = await ask("scheduleRun", nightly);
    expect(await ask("wait", { job: scheduled })).toMatchObject({ ended: true });
    expect(await ask("schedule", nightly)).toMatchObject({ lastJob: scheduled, runs: 1, upcoming: { length: 5 } });
    expect(await ask("schedules")).toMatchObject({ schedules: [{ name: "nightly" }] });
    await ask("scheduleRemove", nightly);
    await ask("remove", { job: scheduled });

    new SlurmStandIn();
    const short = { allocator: "short", maxWorkers: 2, timeLimitMs: 3_600_000, dir: `${setup.dir}/files` };
    expect(await ask("allocatorSet", short)).toMatchObject({ state: "active", allocations: [] });
    expect(await ask("allocatorPause", { allocator: "short" })).toMatchObject({ state: "paused", pausedBy: "user" });
    expect(await ask("allocatorResume", { allocator: "short" })).toMatchObject({ state: "active" });
    expect(await ask("allocatorDryRun", { allocator: "short" })).toMatchObject({ asks: 0, accepted: true });
    expect(await ask("allocator", { allocator: "short" })).toMatchObject({ name: "short", slots: 1 });
    expect(await ask("allocators")).toMatchObject({ allocators: [{ name: "short" }] });
    expect(await ask("allocatorLog", { allocator: "short" })).toMatchObject({ lines: { length: 3 } });
    await ask("allocatorRemove", { allocator: "short" });

    expect(await ask("jobs", { key: "k1" })).toMatchObject({ jobs: [{ id: job }] });
    await ask("remove", { job });
    expect(await ask("clean", { keep: 0 })).toEqual({ removed: 1, jobs: [long] });
    expect(await ask("jobs")).toEqual({ jobs: [] });

    const { events } = (await ask("events", { after: 0 })) as { events: { kind: string }[] };
    const kinds = new Set(events.map(({ kind }) => kind));
    for (const kind of [
      "job-added",
      "job-held",
      "job-released",
      "job-rerun",
      "job-cancelled",
      "job-ended",
      "job-removed",
      "tasks-ended",
      "worker-joined",
      "schedule-run",
      "schedule-removed",
    ]) {
      expect(kinds).toContain(kind);
    }
    expect(await ask("forgive", { name: "one" })).toEqual({ name: "one", known: true });
    expect(await ask("config")).toMatchObject({ version: expect.any(Number) });
    expect(await ask("configSet", { settings: { tags: ["new"] } })).toMatchObject({ version: expect.any(Number) });
    await ask("configHistory");
    await ask("limitSet", { name: "api", running: 5, rate: { starts: 100, intervalMs: 60_000 } });
    expect(await ask("limits")).toEqual({
      limits: [
        {
          name: "api",
          running: 5,
          rate: { starts: 100, intervalMs: 60_000 },
          used: { running: 0, starts: 0 },
          ...{ waiting: 0, jobs: [], jobCount: 0 },
        },
      ],
    });
    await ask("limitRemove", { name: "api" });
    expect(await ask("limits")).toEqual({ limits: [] });
    expect(await ask("brokers")).toMatchObject({ brokers: [{}] });
    // There is no other broker that it could step back for.
    expect((await raw("stepBack", { broker: "none" })).error).toMatchObject({
      code: expect.stringMatching(/^LABORO_/),
    });
    asked.add("stepBack");
    expect(await ask("drain", { worker: "one" })).toEqual({ worker: worker.id });
    expect(await ask("undrain", { worker: "one" })).toEqual({ worker: worker.id, drained: true });
    expect(await ask("poolPause", { pool: "p", reason: "r" })).toEqual({});
    expect(await ask("poolResume", { pool: "p" })).toEqual({ paused: true });
    expect(await ask("stop", { worker: worker.id })).toEqual({ worker: worker.id });
    expect(await ask("loginLink")).toMatchObject({ url: expect.stringContaining("/#login=") });
    await ask("drainBroker", { draining: true });
    expect([...asked].sort()).toEqual(Object.keys(OPERATIONS).sort());
  });

  it("what is not there, or comes too late, is refused with its code", async () => {
    const setup = await openTestBroker();
    const ask = through(setup);
    const { job } = await ask("submit", { recipe: TRUE, count: 2 });
    const code = async (name: OperationName, input: Readonly<Record<string, unknown>>): Promise<unknown> => {
      const { error } = await ask(name, input);
      return (error as { code: string } | undefined)?.code;
    };
    for (const name of [
      "job",
      "wait",
      "tasks",
      "running",
      "waiting",
      "usage",
      "entries",
      "close",
      "append",
      "hold",
      "release",
      "cancel",
      "rerun",
      "remove",
    ] as const) {
      expect([name, await code(name, { job: 77 })]).toEqual([name, "LABORO_NO_SUCH_JOB"]);
    }
    for (const name of ["task", "output", "explain"] as const) {
      expect([name, await code(name, { job, index: 2 })]).toEqual([name, "LABORO_NO_SUCH_TASK"]);
    }
    expect(await code("cancel", { job, tasks: [{ first: 0, last: 2 }] })).toBe("LABORO_NO_SUCH_TASK");
    expect(await code("remove", { job })).toBe("LABORO_JOB_OPEN");
    expect(await code("drain", { worker: "nobody" })).toBe("LABORO_NO_SUCH_WORKER");
    await ask("cancel", { job });
    await ask("wait", { job });
    for (const name of ["hold", "release", "cancel"] as const)
      expect(await code(name, { job })).toBe("LABORO_JOB_ENDED");
    expect(await code("request", { service: "none", timeoutMs: 20 })).toBe("LABORO_DEADLINE");
  });
});

it("refuses tasks and attempts beyond those that there can be, which no store would find", async () => {
  const { client } = await openTestBroker();
  const { id: job } = await client.submit({ recipe: TRUE, held: true });
  const far = Number.MAX_SAFE_INTEGER;
  for (const name of ["output", "returnedFiles"] as const)
    await expect(client.ask(name, { job, index: 0, attempt: far })).rejects.toThrow(
      /^attempt: expected a whole number/,
    );
  await expect(client.ask("tasks", { job, from: far })).rejects.toThrow(/^from: expected a whole number/);
});
