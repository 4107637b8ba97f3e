import { execFileSync } from "node:child_process";
import * as fs from "node:fs";
import type { Socket } from "node:net";
import { expect, it } from "vitest";
import { account, RunLog } from "../support/batch.js";
import { rawSocket } from "../support/intruder.js";
import { TRUE } from "../support/recipes.js";
import { sites } from "../support/site.js";
import { until } from "../support/wait.js";

const FULL = process.env.LABORO_FAULTS === "full";
const OPEN_FILES = FULL ? 1_024 : 160;
const IDLE = FULL ? 1_200 : 250;
const TASKS = 100;
const newSite = sites();

it(`goes on beside ${IDLE} idle connections where it may have ${OPEN_FILES} files open`, async () => {
  const site = newSite();
  const broker = await site.startBroker({ openFiles: OPEN_FILES });
  await site.startWorker("one", { slots: 4 });
  const idle: Socket[] = [];
  site.atEnd(() => idle.forEach((socket) => void socket.destroy()));
  let connected = 0;
  for (let i = 0; i < IDLE; i++) {
    const socket = rawSocket(site, i % 2 === 0 ? "" : "GET / HTTP/1.1\r\nx: y\r\n");
    idle.push(socket.once("connect", () => connected++));
  }
  await until("all have connected", () => connected === IDLE);

  const client = await site.client();
  const log = new RunLog(site.path("runs"));
  // More than rides in the message of the end: output is written to a segment.
  const job = await client.submit({ recipe: log.recipe("head -c 6000 /dev/zero"), count: TASKS });
  expect(await job.wait()).toBe("succeeded");
  const { lost, runTwice } = await account(client, job.id, TASKS, log);
  const openFiles = (): number => fs.readdirSync(`/proc/${broker.pid}/fd`).length;
  console.log(
    `${IDLE} idle connections: lost: ${lost.length}, run twice: ${runTwice.length}, open files: ${openFiles()}`,
  );
  expect({ lost, runTwice, over: broker.over }).toEqual({ lost: [], runTwice: [], over: false });
  if (FULL) await until("the idle ones are gone", () => openFiles() < 60, 10_000);
});

it("stops hand-outs while no descriptor is left, and goes on by itself", async () => {
  const site = newSite();
  const broker = await site.startBroker();
  await site.startWorker("one", { slots: 1 });
  const client = await site.client();
  const log = new RunLog(site.path("runs"));
  const script = `while ! [ -e ${site.path("go")} ]; do sleep 0.02; done; head -c 6000 /dev/zero`;
  const job = await client.submit({ recipe: log.recipe(script), count: 2 });
  await until("a task runs", () => log.count === 1);
  const limit = (files: number): void => void execFileSync("prlimit", [`--pid=${broker.pid}`, `--nofile=${files}:`]);
  limit(8);
  fs.writeFileSync(site.path("go"), "");
  await broker.says("LABORO_NO_DESCRIPTORS");
  await expect(client.submit({ recipe: TRUE })).rejects.toMatchObject({ code: "LABORO_NO_DESCRIPTORS" });
  limit(1_024);
  expect(await job.wait()).toBe("succeeded");
  const { lost, runTwice } = await account(client, job.id, 2, log);
  console.log(`no descriptor for a while: lost: ${lost.length}, run twice: ${runTwice.length}`);
  expect({ lost, runTwice, over: broker.over }).toEqual({ lost: [], runTwice: [], over: false });
});
