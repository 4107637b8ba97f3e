import { describe, expect, it } from "vitest";
import { connect } from "../../src/entries/client.js";
import { startWorker } from "../../src/entries/worker.js";
import { JobId } from "../../src/model/ids.js";
import type { EndedTask } from "../../src/model/outcome.js";
import type { ToClient } from "../../src/protocols/laboro/messages.js";
import { startBroker } from "../../src/server.js";
import { atEnd } from "../support/at-end.js";
import { CALL_NOTHING, NOTHING, TRUE } from "../support/recipes.js";
import { openTestBroker } from "../support/test-broker.js";
import { until } from "../support/wait.js";
import { CuttableBroker } from "./cuttable-broker.js";

const ECHO = {
  kind: "command",
  argv: ["echo hello $LABORO_TASK"],
  shell: true,
  array: [{ first: 1, last: 20, step: 1 }],
} as const;

const textOf = ({ output = [] }: Pick<EndedTask, "output">): string =>
  Buffer.concat(output.map(({ bytes }) => bytes)).toString();

const inOrder = (indices: readonly number[]): number[] => [...indices].sort((a, b) => a - b);
const upTo = (count: number): number[] => Array.from({ length: count }, (_, index) => index);

async function openCuttable() {
  const setup = await openTestBroker();
  const link = new CuttableBroker(setup.broker);
  const client = await connect({ broker: link });
  atEnd(async () => client.close());
  return { ...setup, direct: setup.client, client, link };
}

it("sends tasks that ended before it, although the job ends while the follow begins", async () => {
  const { client, worker, broker } = await openTestBroker();
  let finish = (): void => {};
  const finished = new Promise<void>((resolve) => {
    finish = resolve;
  });
  const wait = async (body: Uint8Array): Promise<string> => {
    if (Buffer.from(body).toString() === "late") await finished;
    return "";
  };
  worker({ slots: 2, services: { wait } });
  const job = await client.submit({ recipe: { kind: "call", service: "wait" }, entries: ["early", "late"] });
  await until("the first has ended", async () => (await job.info()).counters.succeeded === 1);
  const ended = job.wait();
  // Answered after the messages before it.
  await client.ask("status", {});
  // A broker that has to look for the job takes as long as the job does.
  Object.assign(broker.core, { loadJobs: () => ended });
  const indices: number[] = [];
  const follow = (async () => {
    for await (const { tasks } of client.follow(job.id)) indices.push(...tasks.map(({ index }) => index));
  })();
  await client.ask("status", {});
  finish();
  await follow;
  expect(inOrder(indices)).toEqual([0, 1]);
});

it("ends although more tasks are queued than the client may be sent, all of which came from the store", async () => {
  const { client, worker, broker } = await openTestBroker();
  let finish = (): void => {};
  const finished = new Promise<void>((resolve) => {
    finish = resolve;
  });
  let calls = 0;
  worker({ services: { nothing: async () => (calls++ === 0 ? "" : finished.then(() => "")) } });
  const job = await client.submit({ recipe: CALL_NOTHING, count: 1_000 });
  await until("one task has ended", async () => (await job.info()).counters.succeeded === 1);
  const ended = job.wait();
  await client.ask("status", {});
  const { store } = broker.core;
  const results = store.results.bind(store);
  Object.assign(store, { results: (...args: Parameters<typeof results>) => ended.then(() => results(...args)) });
  const indices: number[] = [];
  // Fewer than those for which the client gives credit back.
  const has = [{ first: 0, last: 799 }];
  const follow = (async () => {
    for await (const { tasks } of client.follow(job.id, { has })) indices.push(...tasks.map(({ index }) => index));
  })();
  await client.ask("status", {});
  finish();
  await follow;
  expect(inOrder(indices)).toEqual(upTo(1_000).slice(800));
});

it("sends every task once, however few the client takes at a time", async () => {
  const { client, worker, broker } = await openTestBroker();
  worker({ slots: 4, services: NOTHING });
  const job = await client.submit({ recipe: CALL_NOTHING, count: 1_100 });
  await job.wait();
  const indices: number[] = [];
  let ended = false;
  const follow = broker.core.follows.follow({
    ...{ job: JobId(job.id), has: [], tasks: true, live: false },
    send: ({ tasks }) => void indices.push(...tasks.map(({ index }) => index)),
    onEnd: () => {
      ended = true;
    },
  });
  for (const sent of [1_000, 1_050, 1_100]) {
    await until(`${sent} are sent`, () => indices.length >= sent || ended);
    expect(indices).toHaveLength(sent);
    follow.credit(50);
  }
  await until("it has ended", () => ended);
  expect(inOrder(indices)).toEqual(upTo(1_100));
});

describe.each(["sockets", "memory"])("a job that is followed over %s", (way) => {
  const open = async () => {
    const setup = await openTestBroker();
    if (way === "sockets") return setup;
    const client = await connect({ broker: setup.broker });
    atEnd(async () => client.close());
    const worker = (): void => {
      const started = startWorker({ broker: setup.broker, slots: 2, services: NOTHING });
      atEnd(() => started.stop({ graceMs: 0 }));
    };
    return { ...setup, client, worker };
  };

  it("gives each task as it ends, with its number and its small output, then ends", async () => {
    const { client, worker } = await open();
    worker();
    const job = await client.submit({ recipe: ECHO });
    const ended: EndedTask[] = [];
    let counters: unknown;
    for await (const progress of client.follow(job.id)) {
      ended.push(...progress.tasks);
      counters = progress.counters ?? counters;
    }
    expect(inOrder(ended.map(({ index }) => index))).toEqual(upTo(20));
    for (const { index, number, state } of ended) expect([number, state]).toEqual([index + 1, "succeeded"]);
    for (const task of ended) if (task.output !== undefined) expect(textOf(task)).toBe(`hello ${task.number}\n`);
    expect(counters).toEqual({ succeeded: 20, failed: 0, cancelled: 0 });
  });

  it("gives what ended before, too, and a job that has ended", async () => {
    const { client, worker } = await open();
    worker();
    const job = await client.submit({ recipe: ECHO });
    expect(await job.wait()).toBe("succeeded");
    const numbers: number[] = [];
    for await (const { number } of job.results({ follow: true })) numbers.push(number);
    expect(numbers).toEqual(upTo(20).map((index) => index + 1));
  });

  it("does not give what the client has", async () => {
    const { client, worker } = await open();
    worker();
    const job = await client.submit({ recipe: ECHO });
    const indices: number[] = [];
    for await (const { tasks } of client.follow(job.id, { has: [{ first: 2, last: 18 }] }))
      for (const { index } of tasks) indices.push(index);
    expect(inOrder(indices)).toEqual([0, 1, 19]);
  });

  it("tells of a hold and of a release", async () => {
    const { client, worker } = await open();
    const job = await client.submit({ recipe: TRUE });
    await job.hold();
    const seen: string[] = [];
    const following = (async () => {
      for await (const { tasks, held, ended } of client.follow(job.id)) {
        if (held !== undefined) seen.push(held ? "held" : "released");
        for (const { index, state } of tasks) seen.push(`${index} ${state}`);
        if (ended !== undefined) seen.push(ended);
      }
    })();
    await until("the hold is told", () => seen.length === 1);
    worker();
    await job.release();
    await following;
    expect(seen).toEqual(["held", "released", "0 succeeded", "succeeded"]);
  });

  it("ends with a code where there is none, at its deadline, and by its signal", async () => {
    const { client } = await open();
    await expect(client.follow(99).next()).rejects.toMatchObject({ code: "LABORO_NO_SUCH_JOB" });
    const job = await client.submit({ recipe: TRUE });
    await expect(client.follow(job.id, { tasks: false, timeoutMs: 50 }).next()).rejects.toMatchObject({
      code: "LABORO_DEADLINE",
    });
    const abort = new AbortController();
    const next = client.follow(job.id, { tasks: false, signal: abort.signal }).next();
    abort.abort(new Error("enough"));
    await expect(next).rejects.toThrow("enough");
    await expect(client.follow(job.id, { timeoutMs: -1 }).next()).rejects.toMatchObject({ code: "LABORO_BAD_INPUT" });
  });
});

describe("nothing is missing and nothing comes twice", () => {
  const COUNT = 40;

  /** Follows a job whose link is cut at the n-th message, before or after it arrives. Returns how many messages there were. */
  async function cutAt(position: number, when: "pass" | "passed"): Promise<number> {
    const { client, link, worker } = await openCuttable();
    worker({ services: NOTHING });
    const job = await client.submit({ recipe: CALL_NOTHING, count: COUNT });
    let messages = 0;
    link[when] = ({ type }: ToClient) => type !== "PROGRESS" || messages++ !== position;
    const indices: number[] = [];
    for await (const { index } of job.results({ follow: true })) indices.push(index);
    expect(inOrder(indices)).toEqual(upTo(COUNT));
    expect(await job.wait()).toBe("succeeded");
    return messages;
  }

  it.each(["pass", "passed"] as const)("where the link is cut at every position (%s)", async (when) => {
    let position = 0;
    for (; position < 12; position++) if ((await cutAt(position, when)) <= position) break;
    expect(position).toBeGreaterThan(0);
  });

  it("where the link is cut again and again", async () => {
    const { client, link, worker } = await openCuttable();
    const job = await client.submit({ recipe: CALL_NOTHING, count: 2_000 });
    let messages = 0;
    link.passed = ({ type }) => type !== "PROGRESS" || ++messages % 3 !== 0 || messages > 30;
    worker({ services: NOTHING, slots: 1 });
    const indices: number[] = [];
    for await (const { index } of job.results({ follow: true })) indices.push(index);
    expect(inOrder(indices)).toEqual(upTo(2_000));
    expect(messages).toBeGreaterThan(3);
  });

  it("where the broker is stopped and started again on the way", async () => {
    const { broker, client, direct, dir, link, worker } = await openCuttable();
    worker({ services: NOTHING });
    const job = await client.submit({ recipe: CALL_NOTHING, count: 20_000 });
    const indices: number[] = [];
    let restarted: Promise<void> | undefined;
    for await (const { tasks } of client.follow(job.id)) {
      for (const { index } of tasks) indices.push(index);
      if (indices.length < 100) continue;
      restarted ??= (async () => {
        link.broker = undefined;
        link.cut();
        const port = Number(new URL(broker.url).port);
        await broker.stop();
        const again = await startBroker({ dir: `${dir}/data`, port });
        atEnd(() => again.stop());
        link.broker = again;
      })();
      await restarted;
    }
    expect(inOrder(indices)).toEqual(upTo(20_000));
    expect((await direct.job(job.id).info()).counters.succeeded).toBe(20_000);
  });

  it("where the client is slow, and then no more than a window is under way", async () => {
    const { client, direct, link, worker } = await openCuttable();
    worker({ services: NOTHING });
    const job = await client.submit({ recipe: CALL_NOTHING, count: 10_000 });
    let sent = 0;
    link.passed = (message) => {
      if (message.type === "PROGRESS") sent += message.tasks.length;
      return true;
    };
    const indices: number[] = [];
    let first = true;
    for await (const { tasks } of client.follow(job.id)) {
      for (const { index } of tasks) indices.push(index);
      if (!first || tasks.length === 0) continue;
      first = false;
      expect(await direct.job(job.id).wait()).toBe("succeeded");
      await until("the window is used", () => sent >= 500);
      expect(sent).toBeLessThanOrEqual(1_000);
    }
    expect(inOrder(indices)).toEqual(upTo(10_000));
  });
});
