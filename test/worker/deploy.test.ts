/** A deployment: workers are replaced one after another while tasks keep coming. */
import { appendFileSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { defineTask } from "../../src/entries/client.js";
import type { Worker } from "../../src/entries/worker.js";
import { launchWorker } from "../handlers/launch.js";
import { scaled } from "../support/scale.js";
import { openTestBroker, resultsOf, type TestBroker } from "../support/test-broker.js";

/** With LABORO_TEST_SCALE=20 these are 20,000, and a worker is replaced every second. */
const TASKS = 2 * scaled(500);
const REPLACE_MS = scaled(50);
/** It ends when the work is done, however slow the machine. */
const TIMEOUT_MS = 60_000 + scaled(60_000);

const mail = defineTask<{ to: number; calls: string; ms: number }, string>("mail");
const MODULE = new URL("./deploy-tasks.mjs", import.meta.url);

interface Replaceable {
  stop(): Promise<void>;
}

const inThisProcess =
  (handle: (worker: Worker) => unknown) =>
  async ({ worker }: TestBroker): Promise<Replaceable> => {
    const started = worker({ slots: 4 });
    await handle(started);
    await started.ready();
    return started;
  };

let launched = 0;

async function launch(setup: TestBroker): Promise<Replaceable> {
  const worker = launchWorker(setup, `w${++launched}`, "--handlers", fileURLToPath(MODULE), "--slots", "4");
  await worker.says("has joined");
  return { stop: () => worker.end("SIGTERM") };
}

it.each([
  [
    "functions of their process",
    1,
    TASKS,
    inThisProcess((worker) =>
      worker.handle(mail, async ({ to, calls, ms }, { signal }) => {
        appendFileSync(calls, `${to}\n`);
        await pause(ms, undefined, { signal });
        return `sent to ${to}`;
      }),
    ),
  ],
  ["threads", 1, TASKS, inThisProcess((worker) => worker.handle(MODULE))],
  ["laboro worker and SIGTERM", 20, TASKS / 2, launch],
])(
  "workers with %s that are replaced one after another call each handler once, and every result is kept",
  async (_how, unitMs, tasks, startIn) => {
    const setup = await openTestBroker();
    const { client, dir } = setup;
    const calls = join(dir, "calls");
    writeFileSync(calls, "");
    const start = (): Promise<Replaceable> => startIn(setup);
    const workers = [await start(), await start()];
    let ended = false;
    const half = Array.from({ length: tasks / 2 }, (_, to) => ({ to, calls, ms: unitMs * (1 + (to % 7)) }));
    // One job with many tasks, and as many jobs of one task.
    const batch = await client.addMany(mail, half);
    const singles = half.map((one) => client.add(mail, { ...one, to: one.to + tasks / 2 }, { timeoutMs: 120_000 }));
    const results = Promise.all(singles.map(async (job) => (await job).result()));
    const end = Promise.all([batch.wait(), results]).finally(() => (ended = true));
    let replaced = 0;
    while (!ended) {
      workers.push(await start());
      await pause(REPLACE_MS);
      await workers.shift()?.stop();
      replaced++;
    }
    const [state, values] = await end;
    const called = readFileSync(calls, "utf8").trimEnd().split("\n");
    const kept = (await resultsOf(batch)).map(({ value }) => value);
    const lost = [...kept, ...values].filter((value, to) => value !== `sent to ${to}`);
    expect({ state, calls: called.length, different: new Set(called).size, lost }).toEqual({
      ...{ state: "succeeded", calls: tasks, different: tasks, lost: [] },
    });
    expect(replaced).toBeGreaterThan(1);
  },
  TIMEOUT_MS,
);
