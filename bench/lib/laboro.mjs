/** laboro as its users run it: broker and workers are processes of their own, started by `bin/laboro`. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { startBroker } from "../../dist/entries/broker.js";
import { connect } from "../../dist/entries/client.js";
import { startWorker } from "../../dist/entries/worker.js";
import { removeFolder, start, startModule, temporaryFolder } from "./children.mjs";
import { profileArguments } from "./profile.mjs";

const LABORO = fileURLToPath(new URL("../../bin/laboro", import.meta.url));
const ECHO = fileURLToPath(new URL("echo-worker.mjs", import.meta.url));
const CROWD = fileURLToPath(new URL("crowd.mjs", import.meta.url));

/** Calls a function that does nothing, at an `echoWorker` or at the links of a `crowd`. */
export const CALL = { kind: "call", service: "nothing" };

/** A broker with an empty data directory, and a client of it. `more` goes to `serve`. */
export async function startLaboro(more = []) {
  const dir = temporaryFolder("broker");
  const serve = [LABORO, "serve", "--data", dir, "--listen", "127.0.0.1:0", ...more];
  const broker = start(process.execPath, [...profileArguments("broker"), ...serve]);
  await broker.says(/listening on \S+/);
  const { url, token } = JSON.parse(readFileSync(join(dir, "access.json"), "utf8"));
  const client = await connect({ broker: url, token });
  const workers = [];
  const joined = async (count) => {
    const deadline = Date.now() + 30_000;
    while ((await client.workers()).filter(({ connected }) => connected).length < count) {
      if (Date.now() > deadline) throw new Error(`fewer than ${count} workers joined`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  };
  const add = async (worker, count = 1) => {
    const before = (await client.workers()).length;
    workers.push(worker);
    await joined(before + count);
    return worker;
  };
  return {
    dir,
    url,
    token,
    broker,
    client,
    /** Resolves when so many workers are connected. */
    joined,
    /** `laboro worker` */
    worker: (slots) => {
      const name = `worker-${workers.length}`;
      const args = [LABORO, "worker", "--data", dir, "--slots", String(slots), "--name", name];
      return add(start(process.execPath, [...profileArguments("worker"), ...args]));
    },
    /** A worker with the services `echo`, which returns its body, and `nothing`. */
    echoWorker: (slots) => add(startModule(ECHO, [url, token, String(slots)], profileArguments("worker"))),
    /** One process with the links of so many workers, which report each task as done when it arrives. */
    crowd: async (count, slots = 1) => {
      const crowd = startModule(CROWD, [url, token, String(count), String(slots)]);
      workers.push(crowd);
      await crowd.ask({});
      return crowd;
    },
    run: (submission) => run(client, submission),
    /** Checks that all tasks of a job are recorded; not part of the measured time. */
    async verify(job, count) {
      const { counters } = await job.info();
      if (counters.succeeded !== count) throw new Error(`${counters.succeeded} of ${count} tasks are recorded`);
    },
    async stop() {
      client.close();
      await Promise.all(workers.map((worker) => worker.stop()));
      await broker.stop();
      removeFolder(dir);
    },
  };
}

/** Broker, worker and client in this process: no socket between them. */
export async function startInProcess(slots) {
  const dir = temporaryFolder("in-process");
  const broker = await startBroker({ dir });
  const worker = startWorker({ broker, slots, services: { nothing: () => undefined } });
  const client = await connect({ broker });
  return {
    run: (submission) => run(client, submission),
    async stop() {
      client.close();
      await worker.stop();
      await broker.stop();
      removeFolder(dir);
    },
  };
}

/** Submits, waits for the end, throws unless all tasks succeeded. */
async function run(client, submission) {
  const job = await client.submit(submission);
  const end = await job.wait();
  if (end !== "succeeded") throw new Error(`job ${job.id} ${end}`);
  return job;
}
