import { expect, it } from "vitest";
import type { JobHandle } from "../../src/entries/client.js";
import { account, lostOutputs, RunLog, resultsOf } from "../support/batch.js";
import { SeededRandom } from "../support/random.js";
import { type Site, sites } from "../support/site.js";
import { sleep, until } from "../support/wait.js";

const TASKS = 1_200;
const SLOTS = 4;
const KILLS = 5;
/** Ends that are neither spooled nor recorded yet: those of the last moments, as a sync takes some milliseconds. */
const UNACKNOWLEDGED = 50;
const newSite = sites();

/** Runs a batch with one worker through several kills; `kill` ends processes and starts them again. */
async function batchThroughKills(what: string, kill: (site: Site) => Promise<void>): Promise<void> {
  const random = new SeededRandom();
  const site = newSite();
  await site.startBroker();
  await site.startWorker("one", { slots: SLOTS });
  const client = await site.client();
  const log = new RunLog(site.path("runs"));
  const job = await client.submit({ recipe: log.speakingRecipe(), count: TASKS });

  const before: { readonly recorded: ReadonlySet<number>; readonly runs: number }[] = [];
  for (const moment of random.spread(KILLS, TASKS)) {
    await until(`${moment} tasks have run`, () => log.count >= moment);
    await sleep(random.next() * 30);
    before.push({ recorded: await recorded(job), runs: log.count });
    await kill(site);
  }
  expect(await job.wait()).toBe("succeeded");

  const { results, lost, unrun, runTwice } = await account(client, job.id, TASKS, log);
  const runs = log.runs();
  const runAgain = before.flatMap((kill) => runs.slice(kill.runs).filter(([task]) => kill.recorded.has(task)));
  const outputsLost = await lostOutputs(client, job.id, TASKS);
  const most = KILLS * (SLOTS + UNACKNOWLEDGED);
  console.log(
    `${what} killed ${KILLS} times in ${TASKS} tasks (seed ${random.seed}): lost: ${lost.length}, ` +
      `run twice: ${runTwice.length} (at most ${most}), recorded and run again: ${runAgain.length}, ` +
      `outputs lost: ${outputsLost.length}`,
  );
  expect(results).toHaveLength(TASKS);
  expect({ lost, unrun, runAgain, outputsLost }).toEqual({ lost: [], unrun: [], runAgain: [], outputsLost: [] });
  expect(runTwice.length).toBeLessThanOrEqual(most);
}

async function recorded(job: JobHandle): Promise<ReadonlySet<number>> {
  return new Set((await resultsOf(job)).map(({ index }) => index));
}

it("loses no task when the worker is killed at random moments, and runs again only what it was at", async () => {
  await batchThroughKills("worker", async (site) => {
    const worker = site.workerNamed("one");
    await worker.end("SIGKILL");
    await site.startWorker("one", { slots: SLOTS });
  });
}, 60_000);

it("loses no task when broker and worker are killed at the same moment", async () => {
  await batchThroughKills("broker and worker", async (site) => {
    const worker = site.workerNamed("one");
    await Promise.all([site.broker.end("SIGKILL"), worker.end("SIGKILL")]);
    await Promise.all([site.startBroker(), site.startWorker("one", { slots: SLOTS })]);
  });
}, 60_000);
