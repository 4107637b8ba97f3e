import * as fs from "node:fs";
import { expect, it } from "vitest";
import { RunLog, resultsOf } from "../support/batch.js";
import { sites } from "../support/site.js";
import { until } from "../support/wait.js";

const newSite = sites();

/** For a shell task: kills the agent, which is the parent of the slot's shell, which is the parent of the task. */
const KILL_AGENT = "kill -9 $(sed 's/.*) [A-Z] \\([0-9]*\\) .*/\\1/' /proc/$PPID/stat); sleep 30";

it("gives running tasks back at an orderly stop, which counts neither as a crash nor as a failure", async () => {
  const site = newSite();
  await site.startBroker();
  const client = await site.client();
  const log = new RunLog(site.path("runs"));
  const go = site.path("go");
  await site.startWorker("one", { slots: 2 });
  const waiting = `while [ ! -e '${go}' ]; do sleep 0.02; done`;
  const job = await client.submit({ recipe: log.recipe(waiting), count: 2, crashLimit: 1, retries: 0 });
  const stops = 3;
  for (let i = 1; i <= stops; i++) {
    await until("both tasks run", () => log.count === 2 * i);
    const worker = site.workerNamed("one");
    await worker.end("SIGHUP");
    expect(worker.exitCode).toBe(0);
    await site.startWorker("one", { slots: 2 });
  }
  await until("both tasks run once more", () => log.count === 2 * (stops + 1));
  fs.writeFileSync(go, "");
  expect(await job.wait()).toBe("succeeded");
  const results = await resultsOf(job);
  console.log(`worker stopped in order ${stops} times: lost: ${2 - results.length}, runs: ${log.count}`);
  expect(results).toMatchObject([
    { state: "succeeded", attempt: stops + 1 },
    { state: "succeeded", attempt: stops + 1 },
  ]);
});

it("fails a task that has killed as many workers as the crash limit, counted across a restart of the broker", async () => {
  const site = newSite();
  await site.startBroker({ heartbeatMs: 100, graceMs: 300 });
  const client = await site.client();
  const log = new RunLog(site.path("runs"));
  // By then the broker knows that it has started.
  const job = await client.submit({ recipe: log.recipe(`sleep 0.3; ${KILL_AGENT}`), crashLimit: 2 });
  // It must not suffer from its neighbour.
  const other = await client.submit({ recipe: { kind: "command", argv: ["true"] }, count: 50 });

  const first = await site.startWorker("one");
  await first.ended();
  await until("the broker has given the worker up", async () => (await client.workers()).length === 0);
  // Durable after what was decided before it.
  await job.hold();
  await job.release();
  await site.broker.end("SIGKILL");
  await site.startBroker();

  expect(await resultsOf(job)).toEqual([]);
  const second = await site.startWorker("one");
  await second.ended();
  expect(await job.wait()).toBe("failed");

  const results = await resultsOf(job);
  await site.startWorker("one");
  expect(await other.wait()).toBe("succeeded");
  console.log(
    `a task that kills its worker, crash limit 2: lost: ${1 - results.length}, runs: ${log.count}, ${results[0]?.error}`,
  );
  expect(log.runs()).toEqual([
    [0, 1],
    [0, 2],
  ]);
  expect(results).toMatchObject([{ state: "failed", attempt: 2 }]);
  expect(results[0]?.error).toMatch(/2 workers were lost/);
});

it("counts a kill of the worker as a crash at once when the worker comes back", async () => {
  const site = newSite();
  await site.startBroker({ graceMs: 60_000 });
  const client = await site.client();
  const log = new RunLog(site.path("runs"));
  const job = await client.submit({ recipe: log.recipe("sleep 30"), crashLimit: 1 });
  const worker = await site.startWorker("one");
  await until("the task runs", () => log.count === 1);
  await until("the broker knows", async () => (await job.explain(0)) === "it runs on one");
  await worker.end("SIGKILL");
  await site.startWorker("one");
  expect(await job.wait()).toBe("failed");
  const results = await resultsOf(job);
  console.log(`worker killed and started again, crash limit 1: lost: ${1 - results.length}, runs: ${log.count}`);
  expect(log.count).toBe(1);
  expect(results[0]?.error).toMatch(/1 workers? (was|were) lost/);
});
