/** Who may speak for a worker: peers that have the worker's token and know the id of another worker. */

import { writeFileSync } from "node:fs";
import { join as joinPath } from "node:path";
import { expect, it } from "vitest";
import { WebSocket } from "ws";
import type { RunningBroker } from "../../../src/broker/options.js";
import { JobId } from "../../../src/model/ids.js";
import { decodeFrame, encodeFrame } from "../../../src/protocols/laboro/codec.js";
import { type FromWorker, LINK_VERSION, SUBPROTOCOL, type ToWorker } from "../../../src/protocols/laboro/messages.js";
import { atEnd } from "../../support/at-end.js";
import { join } from "../../support/intruder.js";
import { packr } from "../../support/packr.js";
import { openTestBroker } from "../../support/test-broker.js";
import { until } from "../../support/wait.js";

interface Peer {
  readonly heard: ToWorker[];
  readonly closed: () => string | undefined;
  send(...messages: readonly FromWorker[]): void;
  /** One message as it is on the wire, right or wrong. */
  sendRow(row: readonly unknown[]): void;
}

/** A literal peer with the worker's token. */
async function openPeer(broker: RunningBroker): Promise<Peer> {
  const socket = new WebSocket(`${broker.url.replace("http", "ws")}/node/persistent`, SUBPROTOCOL, {
    headers: { authorization: `Bearer ${broker.tokenOf("worker")}` },
  });
  atEnd(() => socket.terminate());
  const heard: ToWorker[] = [];
  let closed: string | undefined;
  socket.on("message", (frame: Buffer) => heard.push(...(decodeFrame(frame, "brokerToWorker") as ToWorker[])));
  socket.on("close", (_code, reason) => {
    closed = reason.toString();
  });
  await new Promise((resolve) => socket.once("open", resolve));
  return {
    heard,
    closed: () => closed,
    send: (...messages) => socket.send(encodeFrame(messages)),
    sendRow: (row) => socket.send(packr.pack([row])),
  };
}

it("takes no result and no output from a peer that joins with another worker's id, and leaves that worker connected", async () => {
  const { broker, client, worker, dir } = await openTestBroker();
  const gate = joinPath(dir, "gate");
  const one = worker({ name: "one", dir: joinPath(dir, "one") });
  const argv = [`echo mine; until [ -e ${gate} ]; do sleep 0.02; done`];
  const job = await client.submit({ recipe: { kind: "command", argv, shell: true } });
  await until("the task runs", async () => (await client.ask("job", { job: job.id })).counters.running === 1);
  const [known] = (await client.ask("workers", {})).workers;
  expect(known?.id).toBe(one.id);

  const task = { job: JobId(job.id), index: 0, attempt: 1 };
  const held = [{ job: task.job, first: 0, last: 0, attempt: 1, state: "running" }] as const;
  const peer = await openPeer(broker);
  peer.send(
    join({ secret: one.id, pool: "default", held }),
    { type: "OUTPUT", ...task, stream: "stdout", offset: 0, bytes: Buffer.from("forged") },
    { type: "DONE", seq: 1, tasks: [{ ...task, code: 7, started: 1, ended: 2, outputBytes: 6 }] },
  );
  await until("it was answered", () => peer.heard.some(({ type }) => type === "ACK"));
  expect(peer.heard).toMatchObject([{ type: "WELCOME", keep: [] }, { type: "CREDIT" }, { type: "ACK" }]);
  expect(one.joined).toBe(true);
  expect((await client.ask("workers", {})).workers.map(({ id }) => id === one.id)).toEqual([true, false]);

  writeFileSync(gate, "");
  expect(await job.wait()).toBe("succeeded");
  expect(await job.text(0)).toBe("mine\n");
  expect((await client.ask("task", { job: job.id, index: 0 })).result).toMatchObject({ code: 0, worker: "one" });
});

it("refuses a secret that could be guessed, and one that is none", async () => {
  const { broker } = await openTestBroker();
  for (const secret of ["", "x", "0".repeat(31), 7, null]) {
    const peer = await openPeer(broker);
    peer.sendRow([1, LINK_VERSION, secret, "session", "guesser", { slots: 1 }, [], "default", [], 0, []]);
    await until("it is closed", () => peer.closed() !== undefined);
    expect([secret, peer.closed()]).toEqual([secret, expect.stringMatching(/^LABORO_BAD_MESSAGE: .*secret/)]);
    expect(peer.heard).toEqual([]);
  }
});

it("shows the secret to nobody: not to an admin who reads the messages of the connection, not in a view", async () => {
  const { broker, client } = await openTestBroker();
  const peer = await openPeer(broker);
  const { connections } = await client.ask("connections", {});
  const views = await Promise.all(connections.map(({ id }) => client.ask("connection", { id })));
  const secret = "a secret that nobody should be able to read";
  peer.send(join({ secret, name: "secretive" }));
  await until("it has joined", () => peer.heard.some(({ type }) => type === "WELCOME"));
  const recorded = await Promise.all(views.map(({ id }) => client.ask("connection", { id })));
  const joins = recorded.flatMap(({ messages }) => messages).filter(({ name }) => name === "JOIN");
  expect(joins).toMatchObject([{ from: "peer", fields: { name: "secretive", secret: "(hidden)" } }]);
  const seen = [recorded, await client.ask("workers", {}), await client.ask("workerPage", {})];
  expect(JSON.stringify(seen)).not.toContain(secret);
});
