import { expect, it } from "vitest";
import type { JobHandle } from "../../src/entries/client.js";
import { FULL } from "../support/fault-batch.js";
import { TRUE } from "../support/recipes.js";
import { sites } from "../support/site.js";

const ROUNDS = FULL ? 10 : 4;
const newSite = sites();

it("has every submission, hold and cancel that was answered after an immediate kill of the broker", async () => {
  const site = newSite();
  await site.startBroker();
  let client = await site.client();
  const missing: string[] = [];
  const check = async (
    what: string,
    job: JobHandle,
    holds: (info: Awaited<ReturnType<JobHandle["info"]>>) => boolean,
  ) => {
    const found = await job.info().then(holds, () => false);
    if (!found) missing.push(`${what} of job ${job.id}`);
  };

  // Each job is submitted in one round, held in the next, and loses a task in the one after.
  const recipe = TRUE;
  const entries = ["first", "second", "third"];
  const first = await client.submit({ recipe, entries, held: true });
  let { id: toHold } = await client.submit({ recipe, entries, held: true });
  await client.job(toHold).release();
  let toCancel = first.id;
  for (let round = 0; round < ROUNDS; round++) {
    const name = `round ${round}`;
    const submitted = client.submit({ name, recipe, entries });
    const changed = [client.job(toHold).hold(), client.job(toCancel).cancel([{ first: 1, last: 1 }], "not wanted")];
    const { id } = await submitted;
    await Promise.all(changed);
    await site.broker.end("SIGKILL");
    await site.startBroker();
    client = await site.client();
    await check("submission", client.job(id), (job) => job.name === name && job.count === 3 && job.hasEntries);
    await check("hold", client.job(toHold), (job) => job.held);
    await check("cancel", client.job(toCancel), (job) => JSON.stringify(job.cancels) === '[{"first":1,"last":1}]');
    [toCancel, toHold] = [toHold, id];
  }

  console.log(`broker killed ${ROUNDS} times right after its answers: lost: ${missing.length}`);
  expect(missing).toEqual([]);
  const { jobs } = await client.jobs();
  expect(jobs).toHaveLength(ROUNDS + 2);

  // What was cancelled is so in deed, not only in word.
  await site.startWorker("one");
  for (const { id, cancels } of jobs) {
    await client.job(id).release();
    const cancelled = cancels.length;
    expect(await client.job(id).wait()).toBe(cancelled === 0 ? "succeeded" : "cancelled");
    const { counters } = await client.job(id).info();
    expect(counters).toEqual({ succeeded: 3 - cancelled, failed: 0, cancelled, running: 0, waiting: 0 });
  }
});
