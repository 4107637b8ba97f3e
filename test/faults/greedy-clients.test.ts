import { expect, it } from "vitest";
import { WebSocket } from "ws";
import { encodeFrame } from "../../src/protocols/laboro/codec.js";
import { type FromClient, LINK_VERSION } from "../../src/protocols/laboro/messages.js";
import { encodeCommand, encodeGreeting, makeCommand, makeProperties } from "../../src/protocols/zeromq/zmtp-codec.js";
import { freePort } from "../support/free-port.js";
import { busySite, expectUnharmed, openLink, rawSocketAt } from "../support/intruder.js";
import { memoryOf } from "../support/process-table.js";
import { sites } from "../support/site.js";
import { until } from "../support/wait.js";

const FULL = process.env.LABORO_FAULTS === "full";
const MIB = 1024 * 1024;
const TASKS = 200;
const newSite = sites();

const HELLO: FromClient = { type: "HELLO", version: LINK_VERSION, name: "greedy" };

it("keeps its memory beside clients with much that waits", async () => {
  const busy = await busySite(newSite(), TASKS, { heartbeatMs: 60_000 });
  const before = memoryOf(busy.broker.pid).now;
  const link = await openLink(busy.site);
  link.send(encodeFrame([HELLO]));
  const asks = FULL ? 40_000 : 5_000;
  const events = Array.from({ length: asks }, (_, id): FromClient => {
    return { type: "OPERATION", id, operation: "events", input: { waitMs: 60_000 } };
  });
  link.send(encodeFrame(events));
  const body = Buffer.alloc(30 * MIB);
  for (let id = asks; id < asks + (FULL ? 40 : 4); id++) {
    const rest = { body, deadline: 60_000, pool: "nobody", retry: false };
    link.send(encodeFrame([{ type: "REQUEST", id, service: "x", ...rest }]));
  }
  await until("all was sent", () => link.bufferedAmount === 0);
  const entries = `${'"",'.repeat(FULL ? 8_000_000 : 500_000)}""`;
  const submission = `{"recipe":{"kind":"command","argv":["true"]},"pool":"nobody","entries":[${entries}]}`;
  const headers = { authorization: `Bearer ${busy.site.token}`, "content-type": "application/json" };
  const url = `${busy.site.url}/api/v1/jobs`;
  expect((await fetch(url, { method: "POST", headers, body: submission })).status).toBe(200);
  await expectUnharmed("a greedy client", busy, TASKS);
  expect(link.readyState).toBe(WebSocket.OPEN);
  const grown = memoryOf(busy.broker.pid).most - before;
  console.log(`a greedy client: ${Math.round(grown)} MiB more at most`);
  expect(grown).toBeLessThan(900);
});

it("keeps its memory beside ZeroMQ peers with unfinished messages", async () => {
  const port = await freePort();
  const busy = await busySite(newSite(), TASKS, { listeners: [`round-robin=${port}`] });
  const before = memoryOf(busy.broker.pid).now;
  const ready = makeCommand("READY", makeProperties({ "Socket-Type": Buffer.from("DEALER") }));
  const head = Buffer.concat([encodeGreeting(), encodeCommand(ready), Buffer.from([2, 0, 0, 0, 0])]);
  const length = Buffer.alloc(4);
  length.writeUInt32BE(61 * MIB);
  const peers = Array.from({ length: 24 }, () => rawSocketAt(port, Buffer.concat([head, length])));
  busy.site.atEnd(() => peers.forEach((peer) => void peer.destroy()));
  const part = Buffer.alloc(60 * MIB);
  for (const peer of peers) peer.write(part);
  await until("all was sent or cut off", () => peers.every((peer) => peer.destroyed || peer.writableLength === 0));
  await expectUnharmed("half messages", busy, TASKS);
  const grown = memoryOf(busy.broker.pid).most - before;
  console.log(`half messages: ${Math.round(grown)} MiB more at most`);
  // Of 1,440 MiB. What is cut off is freed some time later.
  expect(grown).toBeLessThan(1_000);
});
