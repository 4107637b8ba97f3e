import * as fs from "node:fs";
import { expect, it } from "vitest";
import { account, RunLog } from "../support/batch.js";
import { TRUE } from "../support/recipes.js";
import { scaled } from "../support/scale.js";
import { sites } from "../support/site.js";

const OPEN_FILES = 128;
const SHORT = scaled(1_000);
/** Each a job of its own, so that the broker has that many output files to write. */
const JOBS = 100;
const COMMANDS = 5;
const newSite = sites();

it("does many tasks where broker and worker may each have 128 files open", async () => {
  const site = newSite();
  await site.startBroker({ openFiles: OPEN_FILES });
  const worker = await site.startWorker("one", { slots: 8, openFiles: OPEN_FILES });
  const client = await site.client();
  let mostOpen = 0;
  const look = setInterval(() => {
    for (const { pid } of [worker, site.broker]) mostOpen = Math.max(mostOpen, openFilesOf(pid));
  }, 20);
  site.atEnd(() => clearInterval(look));

  const short = await client.submit({ recipe: TRUE, count: SHORT });
  const jobs = await Promise.all(
    Array.from({ length: JOBS }, async (_, i) => {
      const log = new RunLog(site.path(`runs-${i}`));
      return { log, job: await client.submit({ recipe: log.recipe("echo out; echo err >&2"), count: COMMANDS }) };
    }),
  );
  expect(await short.wait()).toBe("succeeded");
  await Promise.all(jobs.map(async ({ job }) => expect(await job.wait()).toBe("succeeded")));

  let { lost, runTwice } = { lost: (await account(client, short.id, SHORT)).lost.length, runTwice: 0 };
  for (const { job, log } of jobs) {
    const outcome = await account(client, job.id, COMMANDS, log);
    lost += outcome.lost.length + outcome.unrun.length;
    runTwice += outcome.runTwice.length;
    expect(await job.text(COMMANDS - 1)).toBe("out\n");
  }
  console.log(
    `${OPEN_FILES} open files, ${SHORT + JOBS * COMMANDS} tasks: lost: ${lost}, run twice: ${runTwice}, most open: ${mostOpen}`,
  );
  expect({ lost, runTwice }).toEqual({ lost: 0, runTwice: 0 });
  expect(mostOpen).toBeLessThanOrEqual(OPEN_FILES);
});

function openFilesOf(pid: number): number {
  try {
    return fs.readdirSync(`/proc/${pid}/fd`).length;
  } catch {
    return 0;
  }
}
