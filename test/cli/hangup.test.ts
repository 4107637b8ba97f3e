/** SIGHUP and a closed terminal end broker and worker in order. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { RunLog, resultsOf } from "../support/batch.js";
import { sites } from "../support/site.js";
import { until } from "../support/wait.js";
import { openPlace } from "./run/place.js";

const newSite = sites();

it("SIGHUP ends worker and broker in order: a running task is stopped and goes back without a crash", async () => {
  const site = newSite();
  await site.startBroker();
  const client = await site.client();
  const worker = await site.startWorker("one");
  const log = new RunLog(site.path("runs"));
  const job = await client.submit({ recipe: log.recipe("[ $LABORO_ATTEMPT = 2 ] || sleep 60"), crashLimit: 1 });
  await until("it runs", () => log.count === 1);
  // A closing terminal and its shell each send one.
  worker.signal("SIGHUP");
  await worker.end("SIGHUP");
  expect(worker.exitCode).toBe(0);
  await site.startWorker("one");
  expect(await job.wait()).toBe("succeeded");
  expect(await resultsOf(job)).toMatchObject([{ attempt: 2 }]);
  await site.broker.end("SIGHUP");
  expect(site.broker.exitCode).toBe(0);
});

it("a closed terminal ends a broker in order", async () => {
  const place = openPlace();
  const data = place.file("data");
  const terminal = place.begin(["serve", "--data", data, "--listen", "127.0.0.1:0"], true);
  await until("it listens", () => terminal.output().includes("listening on"));
  // A log that was not closed stays beside the database.
  expect(existsSync(join(data, "store.db-wal"))).toBe(true);
  terminal.child.kill("SIGKILL");
  await until("it has closed its store", () => !existsSync(join(data, "store.db-wal")));
});
