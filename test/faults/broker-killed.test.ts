import { expect, it } from "vitest";
import { account, lostOutputs, RunLog } from "../support/batch.js";
import { SeededRandom } from "../support/random.js";
import { sites } from "../support/site.js";
import { sleep, until } from "../support/wait.js";

const TASKS = 1_500;
const KILLS = 5;
const newSite = sites();

it("loses no task and runs none again when the broker is killed at random moments of a batch", async () => {
  const random = new SeededRandom();
  const site = newSite();
  await site.startBroker();
  await site.startWorker("one", { slots: 2 });
  await site.startWorker("two", { slots: 2 });
  const client = await site.client();
  const log = new RunLog(site.path("runs"));
  const job = await client.submit({ recipe: log.speakingRecipe(), count: TASKS });

  for (const moment of random.spread(KILLS, TASKS)) {
    await until(`${moment} tasks have run`, () => log.count >= moment);
    await sleep(random.next() * 30);
    await site.broker.end("SIGKILL");
    await sleep(random.next() * 300);
    await site.startBroker();
  }
  expect(await job.wait()).toBe("succeeded");

  const { results, lost, unrun, runTwice } = await account(client, job.id, TASKS, log);
  const outputsLost = await lostOutputs(client, job.id, TASKS);
  console.log(
    `broker killed ${KILLS} times in ${TASKS} tasks (seed ${random.seed}): lost: ${lost.length}, ` +
      `run twice: ${runTwice.length}, outputs lost: ${outputsLost.length}`,
  );
  expect(results).toHaveLength(TASKS);
  expect({ lost, unrun, runTwice, outputsLost }).toEqual({ lost: [], unrun: [], runTwice: [], outputsLost: [] });
}, 60_000);
