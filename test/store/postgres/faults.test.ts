/** The database goes away in every way it can, while a broker writes. What was acknowledged is there, once. */
import postgres from "postgres";
import { afterEach, beforeEach, expect, it } from "vitest";
import { LaboroError } from "../../../src/base/errors.js";
import type { Job } from "../../../src/model/job.js";
import type { TaskRange, Write, WriteResult } from "../../../src/model/store.js";
import { scaled } from "../../support/scale.js";
import { sleep, until } from "../../support/wait.js";
import { ANN, Broker, chunk, NOW, newRangeId, request, results } from "../suite/kit.js";
import { type CuttingProxy, cuttingProxy, type Moment } from "./cutting-proxy.js";
import { serverOfFile } from "./harness.js";

const postgresHarness = serverOfFile();

const BATCHES = scaled(80);
const SIZE = 10;

let harness: Awaited<ReturnType<typeof postgresHarness>>;

beforeEach(async () => {
  harness = await postgresHarness();
});

afterEach(() => harness.dispose());

/** Batches of all trials. */
let written = 0;

/** Given again as long as the database is away, as the broker's commit loop does it. */
async function insist(broker: Broker, writes: readonly Write[]): Promise<readonly WriteResult[]> {
  for (;;) {
    try {
      return await broker.store.commit(writes, NOW);
    } catch (cause) {
      if (!(cause instanceof LaboroError) || cause.code !== "LABORO_STORE_UNAVAILABLE") throw cause;
    }
  }
}

/** Each batch hands out and records ten tasks with output, and submits a job. Gives how long the slowest took. */
async function work(broker: Broker, job: Job, taskRange: TaskRange, batches: number): Promise<number> {
  let slowest = 0;
  for (let batch = 0; batch < batches; batch++) {
    const [out, first] = [newRangeId(), batch * SIZE];
    const last = first + SIZE - 1;
    const done = results(first, last, { outputBytes: 4 });
    const begun = performance.now();
    const answers = await insist(broker, [
      { op: "claim", from: taskRange.id, rangeId: out, first, last, attempt: 1, worker: ANN },
      { op: "output", chunks: [chunk(job, first, 0, "text")] },
      { op: "settle", job: job.id, rangeId: out, results: done, empty: true },
      { op: "submit", job: request({ name: `extra ${batch}` }), lease: 1, rangeId: newRangeId() },
    ]);
    slowest = Math.max(slowest, performance.now() - begun);
    written++;
    expect(answers.map((answer) => ("lost" in answer ? answer.lost : answer.op))).toEqual([
      false,
      "output",
      false,
      "submit",
    ]);
    expect(answers[2]).toMatchObject({ progress: { counters: { succeeded: last + 1 } } });
  }
  return slowest;
}

/** What is missing, and what is there twice. */
async function lostAndTwice(broker: Broker, job: Job, batches: number): Promise<{ lost: number; twice: number }> {
  const { results: stored } = await broker.store.results(job.id, { from: 0, limit: 1_000_000 });
  const { counters } = await broker.job(job);
  const [{ extra = 0, names = 0 } = {}] = await harness.sql<{ extra: number; names: number }[]>`
    SELECT count(*)::int AS extra, count(DISTINCT name)::int AS names FROM laboro.job WHERE name LIKE 'extra %'`;
  return {
    lost: batches * SIZE - stored.length + (batches - names),
    twice: counters.succeeded - stored.length + (extra - names),
  };
}

async function trial(name: string, broker: Broker, batches: number, disturb: (over: () => boolean) => Promise<void>) {
  const { job, taskRange } = await broker.submitAll(batches * SIZE);
  let over = false;
  const disturbing = disturb(() => over);
  try {
    const slowest = await work(broker, job, taskRange, batches);
    over = true;
    await disturbing;
    const { lost, twice } = await lostAndTwice(broker, job, batches);
    console.log(`${name}: ${batches} batches, lost: ${lost}, twice: ${twice}, slowest batch ${Math.round(slowest)} ms`);
    expect({ lost, twice }).toEqual({ lost: 0, twice: 0 });
    expect((await broker.job(job)).ended?.state).toBe("succeeded");
  } finally {
    over = true;
    await disturbing;
    await broker.store.close();
  }
}

it("goes on while its connections are ended again and again", async () => {
  const broker = await Broker.at(harness.handle());
  await trial("connections ended", broker, BATCHES, async (over) => {
    // Ever more slowly: on a busy machine no batch might be committed between two of them.
    for (let pauseMs = 100; !over(); pauseMs *= 1.05) {
      await harness.sql`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'laboro'`;
      await sleep(pauseMs);
    }
  });
});

it.each(["orderly", "crash"] as const)(
  "goes on after a restart of the server (%s)",
  async (how) => {
    const broker = await Broker.at(harness.handle());
    await trial(`restart, ${how}`, broker, BATCHES, async (over) => {
      for (let times = 0; times < 2; times++) {
        const before = written;
        await until("it has written some more", () => over() || written > before + 2);
        if (over()) return;
        await harness.server.halt(how);
        // It is away for so long.
        await sleep(300);
        await harness.server.resume();
      }
    });
  },
  120_000,
);

it("is not held up by a transaction that somebody left open", async () => {
  const broker = await Broker.at(harness.handle());
  const open = await harness.sql.reserve();
  await open`BEGIN`;
  await open`SELECT pg_current_xact_id(), count(*) FROM laboro.result`;
  await trial("a transaction left open", broker, BATCHES, async () => {});
  await open`ROLLBACK`;
  open.release();
});

it("waits where no connection is to be had, and takes the same batch when there is one", async () => {
  const { sql } = harness;
  await sql.unsafe(`
    CREATE ROLE few LOGIN CONNECTION LIMIT 8;
    GRANT USAGE ON SCHEMA laboro TO few;
    GRANT ALL ON ALL TABLES IN SCHEMA laboro TO few;
    GRANT ALL ON ALL SEQUENCES IN SCHEMA laboro TO few`);
  const url = harness.url.replace("//laboro@", "//few@");
  const broker = await Broker.at(harness.open({ url, retryForMs: 300 }));
  const { taskRange } = await broker.submitAll(3);
  const greedy = postgres(url, { max: 8, onnotice: () => {} });
  const grab = () => Promise.allSettled(Array.from({ length: 8 }, () => greedy`SELECT pg_sleep(0.05)`));
  const claim = {
    op: "claim",
    from: taskRange.id,
    rangeId: newRangeId(),
    first: 0,
    last: 2,
    attempt: 1,
    worker: ANN,
  } as const;
  const refusal = await until("none is left for the broker", async () => {
    await sql`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'laboro'`;
    await grab();
    await grab();
    // The one that is refused for want of a connection has changed nothing, and neither has any before it.
    return broker.store.commit([{ op: "hold", job: taskRange.job, held: true }], NOW).then(
      () => undefined,
      (cause: unknown) => cause,
    );
  });
  expect(refusal).toMatchObject({ code: "LABORO_STORE_UNAVAILABLE" });
  const taking = insist(broker, [claim]);
  await greedy.end();
  expect(await taking).toEqual([{ op: "claim", lost: false }]);
  await broker.store.close();
  await sql.unsafe("DROP OWNED BY few; DROP ROLE few");
});

async function behindProxy(): Promise<{ proxy: CuttingProxy; broker: Broker }> {
  const proxy = await cuttingProxy(harness.server.port);
  const url = harness.url.replace(`:${harness.server.port}/`, `:${proxy.port}/`);
  return { proxy, broker: await Broker.at(harness.open({ url, statementTimeoutMs: 500 })) };
}

it.each<[Moment]>([["before it arrives"], ["before it is answered"]])(
  "answers a batch as if nothing had happened whose commit is cut off %s",
  async (moment) => {
    const { proxy, broker } = await behindProxy();
    const { job, taskRange } = await broker.submitAll(10);
    const out = newRangeId();
    proxy.cutAt("COMMIT AND CHAIN", moment);
    const answers = await broker.store.commit(
      [
        { op: "claim", from: taskRange.id, rangeId: out, first: 0, last: 4, attempt: 1, worker: ANN },
        { op: "settle", job: job.id, rangeId: out, results: results(0, 4), empty: true },
        { op: "submit", job: request({ name: "once" }), lease: 1, rangeId: newRangeId() },
      ],
      NOW,
    );
    expect(proxy.cuts).toBe(1);
    expect(answers).toMatchObject([
      { op: "claim", lost: false },
      { op: "settle", lost: false, progress: { counters: { succeeded: 5 } } },
      { op: "submit", job: { name: "once" } },
    ]);
    expect((await broker.store.jobs({ limit: 9, filter: { name: "once" } })).jobs).toHaveLength(1);
    expect((await broker.job(job)).counters.succeeded).toBe(5);
    await broker.claim({ ...taskRange, first: 5 }, 5, 9);
    await broker.store.close();
    await proxy.close();
  },
);

it.each(["WITH own AS", "WITH found AS"])(
  "changes nothing by what a broken connection leaves behind (%s)",
  async (text) => {
    const { proxy, broker } = await behindProxy();
    const { job, taskRange } = await broker.submitAll(10);
    const out = await broker.claim(taskRange, 0, 4);
    // Statements are prepared when they are first used: so this is the first time.
    proxy.cutAt(text, "before it is answered");
    const [settled, claimed] = await broker.store.commit(
      [
        { op: "settle", job: job.id, rangeId: out.id, results: results(0, 4), empty: true },
        { op: "claim", from: taskRange.id, rangeId: newRangeId(), first: 5, last: 9, attempt: 1, worker: ANN },
      ],
      NOW,
    );
    expect([settled, claimed]).toMatchObject([
      { lost: false, progress: { counters: { succeeded: 5 } } },
      { lost: false },
    ]);
    expect(await harness.sql`SELECT first, last FROM laboro.task_range`).toMatchObject([{ first: 5, last: 9 }]);
    await broker.store.close();
    await proxy.close();
  },
);

it("tries a batch again whose claim counts against a limit; no failure is left that nobody handles", async () => {
  const { proxy, broker } = await behindProxy();
  const { taskRange } = await broker.submitAll(10);
  proxy.cutAt("INTO laboro.limit_start", "before it is answered");
  const claim = { op: "claim", from: taskRange.id, rangeId: newRangeId(), first: 0, last: 4, attempt: 1 } as const;
  const answers = await broker.store.commit([{ ...claim, worker: ANN, limits: ["api"] }], NOW);
  expect([answers, proxy.cuts]).toEqual([[{ op: "claim", lost: false }], 1]);
  await broker.store.close();
  await proxy.close();
});

it("reads again what transactions have submitted where the connection is lost under the first reading", async () => {
  const { proxy, broker } = await behindProxy();
  const submissions = broker.store.group?.submissions;
  await harness.sql`SELECT laboro.submit('thumb', '1')`;
  proxy.cutAt("FOR UPDATE SKIP LOCKED", "before it is answered");
  const taken: string[] = [];
  const take = () => submissions?.take(async ({ task }) => void taken.push(task));
  await expect(take()).rejects.toMatchObject({ code: "CONNECTION_CLOSED" });
  expect([await take(), proxy.cuts, taken]).toEqual([false, 1, ["thumb"]]);
  expect(await submissions?.waits()).toBe(false);
  await broker.store.close();
  await proxy.close();
});

it("gives up a network that says nothing any more, and goes on when it is back", async () => {
  const { proxy, broker } = await behindProxy();
  const { taskRange } = await broker.submitAll(10);
  proxy.swallow(true);
  const claim = { op: "claim", from: taskRange.id, rangeId: newRangeId(), first: 0, last: 4, attempt: 1 } as const;
  const writes = [{ ...claim, worker: ANN }];
  await expect(broker.store.group?.heartbeat("{}", 1_000)).rejects.toMatchObject({ code: "LABORO_STORE_UNAVAILABLE" });
  await expect(broker.store.commit(writes, NOW)).rejects.toMatchObject({ code: "LABORO_STORE_UNAVAILABLE" });
  proxy.swallow(false);
  expect(await insist(broker, writes)).toEqual([{ op: "claim", lost: false }]);
  await broker.store.group?.heartbeat("{}", 1_000);
  await broker.store.close();
  await proxy.close();
});
