/** How long a program waits, at every call: by time, by signal, over a restart of the broker. */
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import {
  type BrokerEvent,
  type Client,
  connect,
  defineTask,
  type EventOptions,
  type JobHandle,
} from "../../src/entries/client.js";
import { startWorker } from "../../src/entries/worker.js";
import { startBroker } from "../../src/server.js";
import { atEnd } from "../support/at-end.js";
import { openTestBroker } from "../support/test-broker.js";
import { until } from "../support/wait.js";

const work = defineTask<number, number>("work");

type Calls = Readonly<Record<string, (options: { timeoutMs?: number; signal?: AbortSignal }) => Promise<unknown>>>;

async function drained(results: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of results);
}

const callsOf = (client: Client, job: JobHandle<number>): Calls => ({
  add: (options) => client.add(work, 1, options),
  addMany: (options) => client.addMany(work, [1, 2], options),
  submit: (options) => client.submit({ recipe: { kind: "call", service: "work" } }, options),
  request: (options) => client.request("work", "1", options),
  call: (options) => client.call(work, 1, options),
  ask: (options) => client.ask("overview", {}, options),
  jobs: (options) => client.jobs({}, options),
  workers: (options) => client.workers(options),
  ready: (options) => client.ready(options),
  wait: (options) => job.wait(options),
  result: (options) => job.result(options),
  results: (options) => drained(job.results(options)),
  "results, followed": (options) => drained(job.results({ ...options, follow: true })),
  info: (options) => job.info(options),
  text: (options) => job.text(0, "stdout", options),
  explain: (options) => job.explain(0, options),
  hold: (options) => job.hold(options),
  release: (options) => job.release(options),
  cancel: (options) => job.cancel(undefined, undefined, options),
  rerun: (options) => job.rerun({}, options),
  remove: (options) => job.remove(options),
});

describe("every call of a client", () => {
  it("rejects in time where no broker answers, at once where its signal is aborted, and a time that is none", async () => {
    const { broker, client } = await openTestBroker();
    const calls = callsOf(client, await client.add(work, 1));
    await broker.stop();
    await expect(client.ask("overview", {}, { timeoutMs: 1_000 })).rejects.toThrow();
    const codes: Record<string, unknown> = {};
    for (const [name, call] of Object.entries(calls)) {
      const codeOf = (options: Parameters<typeof call>[0]): Promise<unknown> =>
        call(options).then(
          () => "resolved",
          (error) => error.code ?? error.message,
        );
      const later = new AbortController();
      const aborted = codeOf({ signal: later.signal });
      later.abort(new Error("enough"));
      codes[name] = [
        await codeOf({ timeoutMs: 50 }),
        await codeOf({ timeoutMs: 0 }),
        await codeOf({ timeoutMs: Number.NaN }),
        await codeOf({ signal: AbortSignal.abort(new Error("enough")) }),
        await aborted,
      ];
    }
    const expected = ["LABORO_DEADLINE", "LABORO_BAD_INPUT", "LABORO_BAD_INPUT", "enough", "enough"];
    expect(codes).toEqual(Object.fromEntries(Object.keys(calls).map((name) => [name, expected])));
  });
});

describe("connect, ready and a worker's ready", () => {
  it("end with their signal or their time", async () => {
    const nowhere = { broker: "http://127.0.0.1:1", token: "x" };
    const reason = new Error("enough");
    await expect(connect({ ...nowhere, signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    await expect(connect({ ...nowhere, connectTimeoutMs: 50 })).rejects.toMatchObject({
      code: "LABORO_BROKER_UNREACHABLE",
    });
    const worker = startWorker(nowhere);
    atEnd(() => worker.stop({ graceMs: 0 }));
    await expect(worker.ready({ timeoutMs: 50 })).rejects.toMatchObject({ code: "LABORO_DEADLINE" });
    await expect(worker.ready({ signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
  });
});

describe("remove()", () => {
  it("removes a job that has ended, with its results, and no other", async () => {
    const { client, worker } = await openTestBroker();
    worker().handle(work, (n) => n);
    const kept = await client.add(work, 1);
    const job = await client.add(work, 2, { held: true });
    await expect(job.remove()).rejects.toMatchObject({ code: "LABORO_JOB_OPEN" });
    await job.release();
    expect(await job.result()).toBe(2);
    await job.remove();
    await expect(job.info()).rejects.toMatchObject({ code: "LABORO_NO_SUCH_JOB" });
    await expect(job.results().next()).rejects.toMatchObject({ code: "LABORO_NO_SUCH_JOB" });
    expect(await kept.result()).toBe(1);
  });
});

describe("events()", () => {
  it("begin after a given one, and are those of one job", async () => {
    const { client, worker } = await openTestBroker();
    worker().handle(work, (n) => n);
    const read = async (options: EventOptions, last: number): Promise<string[]> => {
      const kinds: string[] = [];
      for await (const event of client.events(options)) {
        if ("job" in event) kinds.push(`${event.kind} ${event.job}`);
        if (event.kind === "job-ended" && event.job === last) return kinds;
      }
      return kinds;
    };
    const [first, second] = [await client.add(work, 1), await client.add(work, 2)];
    await Promise.all([first.result(), second.result()]);
    const of = ({ id }: { id: number }) => [`job-added ${id}`, `tasks-ended ${id}`, `job-ended ${id}`];
    expect(await read({ after: 0, job: second.id }, second.id)).toEqual(of(second));
    const { value: seen } = await client.events({ after: 0, job: first.id }).next();
    expect(seen).toMatchObject({ kind: "job-added", job: first.id, name: "work", count: 1 });
    expect(await read({ after: seen?.id ?? 0, job: first.id }, first.id)).toEqual(of(first).slice(1));
  });

  it("go on after a restart of the broker, and say that some may be missing", async () => {
    const { broker, client, dir, worker } = await openTestBroker();
    worker().handle(work, (n) => n);
    const seen: BrokerEvent[] = [];
    const stopped = new AbortController();
    const reading = (async () => {
      for await (const event of client.events({ signal: stopped.signal })) seen.push(event);
    })();
    const ended = (job: number): Promise<boolean> =>
      until(`job ${job} has ended`, () => seen.some((event) => event.kind === "job-ended" && event.job === job));
    const kinds = () => seen.splice(0).map((event) => ("job" in event ? `${event.kind} ${event.job}` : event.kind));
    await until("it reads", async () => {
      await (await client.add(work, 1)).result();
      return seen.length > 0;
    });
    const before = await client.add(work, 1);
    await ended(before.id);
    kinds();
    await broker.stop();
    const again = await startBroker({ dir: join(dir, "data"), port: Number(new URL(broker.url).port) });
    atEnd(() => again.stop());
    const after = await client.add(work, 2);
    await ended(after.id);
    const then = kinds();
    expect(then[0]).toBe("missed");
    expect(then).toContain(`job-added ${after.id}`);
    await again.stop();
    stopped.abort(new Error("enough"));
    await expect(reading).rejects.toThrow("enough");
  });
});
