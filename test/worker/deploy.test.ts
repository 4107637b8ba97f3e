/** A deployment: workers are replaced one after another while tasks keep coming. */
import { appendFileSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { expect, it } from "vitest";
import { defineTask } from "../../src/entries/client.js";
import type { Worker } from "../../src/entries/worker.js";
import { openShop, resultsOf } from "../client/shop.js";
import { scaled } from "../support/scale.js";

/** With LABORO_TEST_SCALE=20 these are 20,000, and a worker is replaced every second. */
const TASKS = 2 * scaled(500);
const REPLACE_MS = scaled(50);
/** It ends when the work is done, however slow the machine. */
const TIMEOUT_MS = 60_000 + scaled(60_000);

const mail = defineTask<{ to: number; calls: string }, string>("mail");
const MODULE = new URL("./deploy-tasks.mjs", import.meta.url);

it.each([
  [
    "functions of their process",
    async (worker: Worker) =>
      worker.handle(mail, async ({ to, calls }) => {
        appendFileSync(calls, `${to}\n`);
        await pause(1 + (to % 7));
        return `sent to ${to}`;
      }),
  ],
  ["threads", async (worker: Worker) => void (await worker.handle(MODULE))],
])(
  "workers with %s that are replaced one after another call each handler once, and every result is kept",
  async (_how, handle) => {
    const { client, dir, worker } = await openShop();
    const calls = join(dir, "calls");
    writeFileSync(calls, "");
    const start = async (): Promise<Worker> => {
      const started = worker({ slots: 4 });
      await handle(started);
      await started.ready();
      return started;
    };
    const workers = [await start(), await start()];
    let ended = false;
    const half = Array.from({ length: TASKS / 2 }, (_, to) => ({ to, calls }));
    // One job with many tasks, and as many jobs of one task.
    const batch = await client.addMany(mail, half);
    const singles = half.map(({ to }) => client.add(mail, { to: to + TASKS / 2, calls }, { timeoutMs: 120_000 }));
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
      ...{ state: "succeeded", calls: TASKS, different: TASKS, lost: [] },
    });
    expect(replaced).toBeGreaterThan(1);
  },
  TIMEOUT_MS,
);
