import { readFileSync, writeFileSync } from "node:fs";
import { expect, it } from "vitest";
import { RunLog, resultsOf } from "../support/batch.js";
import { sites } from "../support/site.js";
import { until } from "../support/wait.js";

const newSite = sites();

it("starts a task once and gets its result and whole output when the broker is killed and started again under it", async () => {
  const site = newSite();
  await site.startBroker();
  await site.startWorker("one");
  const client = await site.client();
  const log = new RunLog(site.path("runs"));
  // Lines before the kill, while no broker is there, and after it has come back.
  const [progress, last] = [site.path("progress"), site.path("last")];
  const recipe = log.recipe(
    `i=0; until [ -e '${last}' ]; do echo out $i; echo err $i >&2; i=$((i+1)); echo >>'${progress}'; sleep 0.02; done; exit 0`,
  );
  const job = await client.submit({ recipe, count: 1 });

  await until("the task has started", () => log.count === 1);
  await until("some output is stored", async () => (await job.text(0)) !== "");
  await site.broker.end("SIGKILL");
  const written = (): number => readFileSync(progress).length;
  const before = written();
  await until("the task has written lines meanwhile", () => written() > before + 3);
  await site.startBroker();
  const withBroker = written();
  await until("the task has written lines since", () => written() > withBroker + 3);
  writeFileSync(last, "");
  expect(await job.wait()).toBe("succeeded");

  const results = await resultsOf(job);
  const expected = (stream: string): string => Array.from({ length: written() }, (_, i) => `${stream} ${i}\n`).join("");
  console.log(
    `broker killed under a running task: lost: ${1 - results.length}, run twice: ${log.count - 1}, started ${log.count} time`,
  );
  expect(log.runs()).toEqual([[0, 1]]);
  expect(results).toMatchObject([{ index: 0, attempt: 1, code: 0, state: "succeeded", worker: "one" }]);
  expect(await job.text(0)).toBe(expected("out"));
  expect(await job.text(0, "stderr")).toBe(expected("err"));
  expect(results[0]?.outputBytes).toBe(expected("out").length + expected("err").length);
});
