import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { connect, defineTask } from "../../src/entries/client.js";
import { startWorker } from "../../src/entries/worker.js";
import type { Submission } from "../../src/model/job-input.js";
import { startBroker } from "../../src/server.js";
import { atEnd, openOnce } from "../support/at-end.js";
import { freePort } from "../support/free-port.js";
import { TRUE } from "../support/recipes.js";
import { openTestBroker } from "../support/test-broker.js";
import { until } from "../support/wait.js";

/** Resolves when so many connections to this port were closed at once. */
async function refuseConnections(port: number, count: number): Promise<void> {
  let refused = 0;
  const server = createServer((socket) => {
    socket.on("error", () => {}).destroy();
    if (++refused === count) server.close();
  });
  server.listen(port, "127.0.0.1");
  await once(server, "close");
}

describe("bad input", () => {
  const setup = openOnce(() => openTestBroker());
  it.each([
    ["no recipe", {}, "recipe"],
    ["an unknown recipe", { recipe: { kind: "dance" } }, "recipe.kind"],
    ["an empty command", { recipe: { kind: "command", argv: [] } }, "recipe.argv"],
    ["a NUL in an argument", { recipe: { kind: "command", argv: ["a\0b"] } }, "argv[0]"],
    ["a bad name in the environment", { recipe: { kind: "command", argv: ["a"], env: { "A=B": "1" } } }, "recipe.env"],
    ["no tasks", { recipe: TRUE, count: 0 }, "count"],
    ["too many tasks", { recipe: TRUE, count: 1e9 + 1 }, "count"],
    ["half a task", { recipe: TRUE, count: 1.5 }, "count"],
    ["no entries", { recipe: TRUE, entries: [] }, "entries"],
    ["a count that is not that of the entries", { recipe: TRUE, entries: ["a"], count: 2 }, "count"],
    ["a negative need", { recipe: TRUE, needs: { gpu: -1 } }, "needs.gpu"],
    ["an unknown option", { recipe: TRUE, colour: "red" }, "colour"],
    ["a job to wait for that is not there", { recipe: TRUE, after: [{ job: 77 }] }, "77"],
  ])("is refused with what was expected: %s", async (_what, submission, named) => {
    const { client } = setup();
    const error = await client.submit(submission as unknown as Submission).catch((cause: unknown) => cause);
    expect(error).toMatchObject({ code: expect.stringMatching(/^LABORO_(BAD_INPUT|NO_SUCH_JOB)$/) });
    expect(String(error)).toContain(named);
    expect((await client.jobs()).jobs).toEqual([]);
  });

  it("names the operations there are when one is asked for that is not", async () => {
    const { client } = await openTestBroker();
    await expect(client.ask("dance" as "status", {})).rejects.toMatchObject({
      code: "LABORO_BAD_INPUT",
      message: expect.stringContaining("submit"),
    });
    await expect(client.job(99).info()).rejects.toMatchObject({ code: "LABORO_NO_SUCH_JOB" });
    await expect(client.job(99).wait()).rejects.toMatchObject({ code: "LABORO_NO_SUCH_JOB" });
  });

  it("is an error whose stack names the line that gave it", async () => {
    const { client } = setup();
    const at = expect.stringContaining(import.meta.filename);
    // As text of JavaScript, which no compiler has checked.
    await expect(client.add(defineTask("t"), 1, { attempts: 3 } as object)).rejects.toMatchObject({
      ...{ code: "LABORO_BAD_INPUT", message: expect.stringContaining("attempts"), stack: at },
    });
    await expect(client.ask("job", { job: 99 })).rejects.toMatchObject({ code: "LABORO_NO_SUCH_JOB", stack: at });
    await expect(client.job(99).result()).rejects.toMatchObject({ code: "LABORO_NO_SUCH_JOB", stack: at });
  });

  it.each([
    undefined,
    {},
    { broker: undefined },
    { broker: 5429 },
    { broker: [{}] },
    { host: "localhost", port: 5429 },
  ])("is no broker: %j", async (options) => {
    const refused = {
      code: "LABORO_BAD_INPUT",
      message: expect.stringMatching(/^broker is .*expected a join URL, .* or @FILE with one: .*client\.url/),
    };
    await expect(connect(options as never)).rejects.toMatchObject(refused);
    expect(() => startWorker((options ?? {}) as never)).toThrow(expect.objectContaining(refused));
  });

  it("is no data directory", async () => {
    for (const options of [undefined, {}, { dir: 5 }])
      await expect(startBroker(options as never)).rejects.toMatchObject({
        ...{ code: "LABORO_BAD_INPUT", message: expect.stringContaining("{ dir }") },
      });
  });

  it("is no task that was defined", async () => {
    const { client } = setup();
    const refused = { code: "LABORO_BAD_INPUT", message: "expected a task, as defineTask makes it, got string" };
    await expect(client.add("mail" as never, {})).rejects.toMatchObject(refused);
    await expect(client.schedules.setTask("x", { everyMs: 1000 }, "mail" as never, {})).rejects.toMatchObject(refused);
  });

  it("is no job to come after", async () => {
    const { client } = setup();
    const task = defineTask("t");
    for (const after of ["3", {}, { job: undefined }, [null]]) {
      const added = client.add(task, 1, { after: after as never });
      await expect(added).rejects.toMatchObject({ code: "LABORO_BAD_INPUT", message: /^after: expected a job/ });
    }
  });

  it("comes too late for a job that has ended", async () => {
    const { client, worker } = await openTestBroker();
    worker();
    const job = await client.submit({ recipe: TRUE });
    await job.wait();
    await expect(job.cancel()).rejects.toMatchObject({ code: "LABORO_JOB_ENDED" });
    await expect(job.hold()).rejects.toMatchObject({ code: "LABORO_JOB_ENDED" });
  });
});

describe("a token", () => {
  it.each(["http://192.0.2.1:5429", "ws://192.0.2.1:5429"])(
    "is not sent to another machine in the clear: %s",
    (broker) => {
      const refused = {
        code: "LABORO_BAD_INPUT",
        message: expect.stringContaining("would send the token to 192.0.2.1"),
      };
      expect(() => startWorker({ broker, token: "t" })).toThrow(expect.objectContaining(refused));
      return expect(connect({ broker, token: "t" })).rejects.toMatchObject(refused);
    },
  );
});

describe("the file of a join URL", () => {
  it("is read by clients and workers, as by the command line", async () => {
    const { broker, dir } = await openTestBroker();
    const file = join(dir, "admin.url");
    writeFileSync(file, `${broker.joinUrl("admin")}\n`);
    const client = await connect(`@${file}`);
    atEnd(async () => client.close());
    const worker = startWorker({ broker: `@${file}` });
    atEnd(() => worker.stop({ graceMs: 0 }));
    worker.handle("echo", (body) => body);
    expect(String(await client.request("echo", "hello"))).toBe("hello");
  });

  it("that cannot be read is named", async () => {
    const refused = { code: "LABORO_BAD_INPUT", message: expect.stringContaining("/nowhere/at/all") };
    await expect(connect("@/nowhere/at/all")).rejects.toMatchObject(refused);
  });
});

describe("a token of another role", () => {
  it("is refused with the file that has the right one", async () => {
    const { broker } = await openTestBroker();
    const worker = startWorker({ broker: broker.joinUrl("client") });
    atEnd(() => worker.stop({ graceMs: 0 }));
    await expect(worker.ready()).rejects.toMatchObject({
      code: "LABORO_FORBIDDEN",
      message: expect.stringContaining("join.url"),
    });
    const client = await connect(broker.joinUrl("worker"));
    atEnd(async () => client.close());
    await expect(client.submit({ recipe: TRUE })).rejects.toMatchObject({
      code: "LABORO_FORBIDDEN",
      message: expect.stringContaining("client.url"),
    });
  });

  it("of a worker that nobody asks is a warning of the process", async () => {
    const { broker } = await openTestBroker();
    const warned = once(process, "warning");
    const worker = startWorker({ broker: broker.joinUrl("client"), name: "unheard" });
    atEnd(() => worker.stop({ graceMs: 0 }));
    const [warning] = await warned;
    expect(String(warning)).toMatch(/laboro: worker unheard does no work: .*join\.url/);
  });
});

describe("a broker that does not answer a worker at its start", () => {
  it("is a warning of the process, or of the log, once", async () => {
    const broker = `http://token@127.0.0.1:${await freePort()}`;
    const warned = once(process, "warning");
    const unheard = startWorker({ broker, name: "unheard" });
    atEnd(() => unheard.stop({ graceMs: 0 }));
    const [warning] = await warned;
    expect(String(warning)).toMatch(/laboro: worker unheard: no broker answers at .*tries again/);
    const lines: string[] = [];
    const warn = (_fields: object, text: string): unknown => lines.push(text);
    const heard = startWorker({ broker, log: { info: () => {}, warn, error: () => {} } });
    atEnd(() => heard.stop({ graceMs: 0 }));
    await until("it is in the log", () => lines.length > 0);
    await expect(heard.ready({ timeoutMs: 2_000 })).rejects.toMatchObject({
      code: "LABORO_DEADLINE",
      message: expect.stringMatching(/not joined within 2000 ms: no broker answers at /),
    });
    expect(lines).toEqual([expect.stringMatching(/no broker answers at .*tries again/)]);
  });
});

describe("a wrong token", () => {
  it("rejects what waits until client or worker is ready", async () => {
    const { broker, dir, client, worker } = await openTestBroker();
    const bad = { code: "LABORO_BAD_TOKEN" };
    const refused = startWorker({ broker: broker.url, token: "guess" });
    atEnd(() => refused.stop({ graceMs: 0 }));
    await expect(refused.ready()).rejects.toMatchObject(bad);
    await expect(refused.ready()).rejects.toMatchObject(bad);
    await worker().ready();
    await client.ready();
    // A broker with another token comes in its place.
    await broker.stop();
    const again = await startBroker({ dir: join(dir, "other"), port: Number(new URL(broker.url).port) });
    atEnd(() => again.stop());
    await expect(client.ready()).rejects.toMatchObject(bad);
    expect(client.closed).toBe(true);
  });
});

describe("startWorker", () => {
  it.each([0, 1.5, -1, Number.NaN])("refuses %d slots", (slots) => {
    expect(() => startWorker({ broker: "http://token@127.0.0.1:1", slots })).toThrow(
      expect.objectContaining({ code: "LABORO_BAD_INPUT", message: expect.stringMatching(/^slots: /) }),
    );
  });
});

describe("a broker", () => {
  it("does not let in who has no token", async () => {
    const { broker } = await openTestBroker();
    await expect(connect({ broker: broker.url, token: "guess" })).rejects.toMatchObject({ code: "LABORO_BAD_TOKEN" });
    const refused = await new Promise((resolve) => {
      const worker = startWorker({
        broker: broker.url,
        token: "guess",
        onRefused: (error) => void worker.stop().then(() => resolve(error)),
      });
    });
    expect(refused).toMatchObject({ code: "LABORO_BAD_TOKEN" });
  });

  it("is not started on a data directory or a port that is in use", async () => {
    const { broker, dir } = await openTestBroker();
    await expect(startBroker({ dir: `${dir}/data`, port: 0 })).rejects.toMatchObject({ code: "LABORO_DATA_IN_USE" });
    const { port } = new URL(broker.url);
    await expect(startBroker({ dir: `${dir}/other`, port: Number(port) })).rejects.toMatchObject({
      code: "LABORO_BAD_INPUT",
    });
  });

  it("is said to be out of reach where there is none", async () => {
    const refused = connect({ broker: "http://127.0.0.1:9", token: "x", connectTimeoutMs: 300 });
    await expect(refused).rejects.toMatchObject({ code: "LABORO_BROKER_UNREACHABLE" });
  });

  it("is waited for by a client that fails fast at its start alone, when it comes back", async () => {
    const { broker, dir } = await openTestBroker();
    const { url, token } = broker;
    const client = await connect({ broker: url, token, failFast: true });
    atEnd(async () => client.close());
    const job = await client.submit({ recipe: TRUE });
    await broker.stop();
    await expect(connect({ broker: url, token, failFast: true })).rejects.toMatchObject({
      code: "LABORO_BROKER_UNREACHABLE",
    });
    // Several attempts are refused meanwhile.
    const ended = job.wait();
    await refuseConnections(Number(new URL(url).port), 3);
    expect(client.closed).toBe(false);
    const again = await startBroker({ dir: join(dir, "data"), port: Number(new URL(url).port) });
    atEnd(() => again.stop());
    const worker = startWorker({ broker: again, slots: 1 });
    atEnd(() => worker.stop({ graceMs: 0 }));
    expect(await ended).toBe("succeeded");
  });

  it("goes on where it was when it is started again, and its worker with it", async () => {
    const { broker, client, dir, worker } = await openTestBroker();
    const { port } = new URL(broker.url);
    worker();
    const before = await client.submit({ recipe: { kind: "command", argv: ["sleep", "0.5"] } });
    await until("it runs", async () => (await before.explain(0)).startsWith("it runs"));
    const ended = before.wait();
    await broker.stop();
    const again = await startBroker({ dir: `${dir}/data`, port: Number(port) });
    try {
      expect(again.token).toBe(broker.token);
      expect(await ended).toBe("succeeded");
      const attempts = [];
      for await (const { attempt } of before.results()) attempts.push(attempt);
      expect(attempts).toEqual([1]);
    } finally {
      await again.stop();
    }
  });
});

describe("a worker", () => {
  it("that stops in order gives its tasks back, at no cost to them", async () => {
    const { client, worker } = await openTestBroker();
    const first = worker({ slots: 1, name: "first" });
    const job = await client.submit({ recipe: { kind: "command", argv: ["sleep", "0.3"] }, crashLimit: 1 });
    await until("it runs", async () => (await job.explain(0)) === "it runs on first");
    await first.stop({ graceMs: 0 });
    worker({ name: "second" });
    expect(await job.wait()).toBe("succeeded");
    for await (const result of job.results()) expect(result).toMatchObject({ worker: "second", attempt: 2 });
  });

  it("that is asked to stop ends what it runs first", async () => {
    const { client, worker } = await openTestBroker();
    let stopped = false;
    const only = worker({ onStopped: () => (stopped = true) });
    const job = await client.submit({ recipe: { kind: "command", argv: ["sleep", "0.3"] } });
    await until("it runs", async () => (await job.explain(0)).startsWith("it runs"));
    await client.stopWorker(only.id);
    expect(await job.wait()).toBe("succeeded");
    await until("the worker has stopped", () => stopped);
  });
});
