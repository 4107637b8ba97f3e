/** All of it in one process: `npm test`. The broker keeps its data in a temporary folder. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { FastifyInstance } from "fastify";
import { type Client, connect } from "laboro";
import { type Broker, startBroker } from "laboro/broker";
import { startWorker, type Worker } from "laboro/worker";
import { createApp } from "./app.js";

let broker: Broker;
let worker: Worker;
let client: Client;
let app: FastifyInstance;

before(async () => {
  broker = await startBroker({ dir: ":memory:", port: 0 });
  worker = startWorker({ broker, slots: 2 });
  await worker.handle(new URL("./handlers.js", import.meta.url));
  client = await connect({ broker });
  app = createApp(client);
});

after(async () => {
  await app.close();
  client.close();
  await worker.stop();
  await broker.stop();
});

const octets = { "content-type": "application/octet-stream" };
const square = Buffer.from([0, 0, 10, 10, 0, 0, 10, 10, 4, 4, 8, 8, 4, 4, 8, 8]);

test("a picture becomes smaller", async () => {
  const added = await app.inject({ method: "POST", url: "/pictures?width=4", payload: square, headers: octets });
  assert.equal(added.statusCode, 202);
  const { job } = added.json();
  const got = await app.inject({ url: `/pictures/${job}` });
  assert.deepEqual([...got.rawPayload], [0, 10, 4, 8]);
  assert.equal(await client.job(job).text(0), "4 x 4 becomes 2 x 2\n");
});

test("what is no picture fails at once, with the reason", async () => {
  const added = await app.inject({ method: "POST", url: "/pictures?width=5", payload: square, headers: octets });
  const got = await app.inject({ url: `/pictures/${added.json().job}` });
  assert.equal(got.statusCode, 422);
  assert.deepEqual(got.json(), { code: "LABORO_TASK_FAILED", error: "no picture of width 5 to be divided by 2" });
  assert.equal((await app.inject({ url: "/pictures/999" })).statusCode, 404);
});

test("an album counts its pictures, those that failed as well", async () => {
  const pixels = square.toString("base64");
  const pictures = [4, 4, 5].map((width) => ({ width, pixels }));
  const added = await app.inject({ method: "POST", url: "/albums", payload: { title: "Summer", pictures } });
  const got = await app.inject({ url: `/albums/${added.json().job}` });
  assert.deepEqual(got.json(), { title: "Summer", pictures: 2, bytes: 8, failed: 1 });
});
