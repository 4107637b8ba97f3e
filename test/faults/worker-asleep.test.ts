import * as fs from "node:fs";
import { expect, it } from "vitest";
import { resultsOf } from "../support/batch.js";
import { isRunning } from "../support/process-table.js";
import { type Site, sites } from "../support/site.js";
import { until } from "../support/wait.js";

const newSite = sites();

/** The process ids that attempt 1, 2… of the one task wrote down, in order. */
const pidsIn = (path: string): number[] =>
  fs.existsSync(path) ? fs.readFileSync(path, "utf8").split("\n").filter(Boolean).map(Number) : [];

const waitFor = (path: string): string => `while [ ! -e '${path}' ]; do sleep 0.02; done`;

/** A task at worker one, which then sleeps for so long that worker two has the task when it wakes. */
async function asleepUntilTaken(site: Site, first: string, second: string) {
  await site.startBroker({ heartbeatMs: 100, graceMs: 500 });
  const one = await site.startWorker("one");
  const client = await site.client();
  const pids = site.path("pids");
  const body = `echo $$ >> '${pids}'; if [ "$LABORO_ATTEMPT" = 1 ]; then ${first}; else ${second}; fi`;
  const job = await client.submit({ recipe: { kind: "command", argv: ["/bin/sh", "-c", body] } });
  await until("worker one runs it", () => pidsIn(pids).length === 1);
  await site.startWorker("two");
  one.signal("SIGSTOP");
  fs.writeFileSync(site.path("asleep"), "");
  await until("worker two runs it", () => pidsIn(pids).length === 2);
  const [stale = 0, current = 0] = pidsIn(pids);
  return { job, one, stale, current };
}

it("refuses the late result of a worker that slept while its task was given to another", async () => {
  const site = newSite();
  const go = site.path("go");
  const wait = waitFor(go);
  // The first attempt ends while its worker sleeps, so its end is the first thing that the worker sees when it wakes.
  const { job, one, stale } = await asleepUntilTaken(
    site,
    `${waitFor(site.path("asleep"))}; echo first`,
    `${wait}; echo second`,
  );
  await until("the first attempt is over", () => !isRunning(stale));
  one.signal("SIGCONT");
  await one.says(/joined the broker.*joined the broker/s);
  const early = await resultsOf(job);
  fs.writeFileSync(go, "");

  expect(await job.wait()).toBe("succeeded");
  const results = await resultsOf(job);
  console.log(
    `worker slept past its grace: lost: ${1 - results.length}, runs: ${pidsIn(site.path("pids")).length}, late results recorded: ${early.length}`,
  );
  expect(early).toEqual([]);
  expect(results).toMatchObject([{ index: 0, attempt: 2, worker: "two", state: "succeeded" }]);
  expect(await job.text(0)).toBe("second\n");
  // Nothing is kept for a result that nobody wants.
  await until("the spool of worker one is empty", () => fs.statSync(site.path("one/results")).size === 0);
});

it("stops the stale process of a worker that wakes, and leaves the other's alone", async () => {
  const site = newSite();
  const go = site.path("go");
  const wait = waitFor(go);
  const { job, one, stale, current } = await asleepUntilTaken(site, "sleep 60 & wait; exit 7", wait);
  expect(isRunning(stale)).toBe(true);
  one.signal("SIGCONT");
  await until("the stale process is gone", () => !isRunning(stale));
  expect(isRunning(current)).toBe(true);
  fs.writeFileSync(go, "");
  expect(await job.wait()).toBe("succeeded");
  const results = await resultsOf(job);
  console.log(
    `worker woke with a stale task: lost: ${1 - results.length}, runs: ${pidsIn(site.path("pids")).length}, stale left running: ${Number(isRunning(stale))}`,
  );
  expect(results).toMatchObject([{ index: 0, attempt: 2, worker: "two", code: 0 }]);
  // The woken worker is as good as any.
  await site.workerNamed("two").end("SIGKILL");
  const client = await site.client();
  expect(await (await client.submit({ recipe: { kind: "command", argv: ["true"] } })).wait()).toBe("succeeded");
});
