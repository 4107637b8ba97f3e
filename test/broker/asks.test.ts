/** Clients that ask for more than they may have unanswered. */
import { request as httpRequest } from "node:http";
import { expect, it } from "vitest";
import { WebSocket } from "ws";
import type { Role } from "../../src/broker/access/tokens.js";
import { ASK_BOUNDS } from "../../src/broker/operations/asks.js";
import type { RunningBroker } from "../../src/broker/options.js";
import { decodeFrame, encodeFrame } from "../../src/protocols/laboro/codec.js";
import { type FromClient, LINK_VERSION, SUBPROTOCOL, type ToClient } from "../../src/protocols/laboro/messages.js";
import { apiOf, codeOf, post } from "../api/kit.js";
import { atEnd } from "../support/at-end.js";
import { TRUE } from "../support/recipes.js";
import { openTestBroker } from "../support/test-broker.js";
import { until } from "../support/wait.js";

/** A link with the token of a role, and what came on it. */
async function openLink(broker: RunningBroker, role: Role) {
  const socket = new WebSocket(`${broker.url.replace("http", "ws")}/node/persistent`, SUBPROTOCOL, {
    headers: { authorization: `Bearer ${broker.tokenOf(role)}` },
  });
  atEnd(() => socket.terminate());
  const received: ToClient[] = [];
  socket.on("message", (data: Buffer) => received.push(...decodeFrame(data, "brokerToClient")));
  await new Promise((resolve) => socket.once("open", resolve));
  const send = (...messages: FromClient[]): void => socket.send(encodeFrame(messages));
  send({ type: "HELLO", version: LINK_VERSION, name: role });
  return { send, received, of: <T extends ToClient["type"]>(type: T) => received.filter((one) => one.type === type) };
}

const operation = (id: number, name: string, input: object): FromClient => ({
  type: "OPERATION",
  id,
  operation: name,
  input,
});

it("lets a connection follow so much, refuses the rest by name, and answers others", async () => {
  const { broker, client } = await openTestBroker();
  const link = await openLink(broker, "read");
  const { follows } = ASK_BOUNDS.perConnection;
  link.send(...Array.from({ length: 5_000 }, (_, i) => operation(i, "events", { waitMs: 60_000 })));
  await until("all but those are refused", () => link.of("ERROR").length === 5_000 - follows);
  expect(new Set(link.received.map((one) => one.type === "ERROR" && one.code))).toEqual(
    new Set([false, "LABORO_QUEUE_FULL"]),
  );
  await until("the others follow", () => broker.core.events.followers.count === follows);
  const job = await client.submit({ recipe: TRUE });
  await until("they hear of it", () => link.of("RESULT").length === follows);
  expect(link.of("RESULT")[0]).toMatchObject({ value: { events: [{ kind: "job-added", job: job.id }] } });
  link.send(operation(9_999, "events", { waitMs: 1 }));
  await until("it may follow again", () => link.of("RESULT").length === follows + 1);
});

it("answers more operations of one connection than it reads at a time", async () => {
  const { broker } = await openTestBroker();
  const link = await openLink(broker, "read");
  link.send(...Array.from({ length: 1_000 }, (_, i) => operation(i, "jobs", {})));
  await until("all are answered", () => link.of("RESULT").length === 1_000);
  expect(link.of("ERROR")).toEqual([]);
});

it("keeps so many bytes of requests, refuses the next, and takes more when one is cancelled", async () => {
  const small = { asks: 100, bytes: 100_000, follows: 1 };
  const { broker } = await openTestBroker({ askBounds: { perConnection: small, perRole: small, inAll: small } });
  const link = await openLink(broker, "client");
  const request = (id: number): FromClient => ({
    ...{ type: "REQUEST", id, service: "none", body: Buffer.alloc(30_000), deadline: 60_000 },
    ...{ pool: "default", retry: false },
  });
  for (let id = 1; id <= 4; id++) link.send(request(id));
  await until("the last is refused", () => link.of("RESPONSE").length === 1);
  expect(link.of("RESPONSE")[0]).toMatchObject({ id: 4, error: "LABORO_QUEUE_FULL" });
  expect(broker.core.state.requests.size).toBe(3);
  const refused = await apiOf(broker)("/services/none", { method: "POST", body: Buffer.alloc(30_000) });
  expect([refused.status, codeOf(refused)]).toEqual([503, "LABORO_QUEUE_FULL"]);
  link.send({ type: "CANCEL_REQUEST", id: 1 });
  link.send(request(5));
  await until("it is taken", () => broker.core.state.requests.size === 3);
  expect(link.of("RESPONSE")).toHaveLength(1);
});

it("reads a submission of many bytes elsewhere, as it reads a small one", async () => {
  const { broker, client } = await openTestBroker();
  const entries = Array.from({ length: 100_000 }, (_, i) =>
    i === 7 ? new Uint8Array([255, 1]) : `entry ${i} \u{1f4a9}`,
  );
  const job = await client.submit({ recipe: TRUE, entries, held: true });
  const { entries: some } = await client.ask("entries", { job: job.id, from: 6, limit: 3 });
  expect(some).toEqual([entries[6], Buffer.from([255, 1]), entries[8]]);
  await expect(client.submit({ recipe: TRUE, entries, count: 3 })).rejects.toMatchObject({ code: "LABORO_BAD_INPUT" });
  const api = apiOf(broker);
  const bad = await api("/jobs", post(`{"recipe": ${" ".repeat(2_000_000)}`));
  expect([bad.status, codeOf(bad)]).toEqual([400, "LABORO_BAD_INPUT"]);
  const asReader = { authorization: `Bearer ${broker.tokenOf("read")}`, "content-type": "application/json" };
  const refused = await fetch(`${broker.url}/api/v1/jobs`, {
    method: "POST",
    headers: asReader,
    body: " ".repeat(2e6),
  });
  expect(refused.status).toBe(403);
});

it("counts a body that comes without a length as it is, once it is read", async () => {
  const { broker } = await openTestBroker();
  const statuses: number[] = [];
  for (let i = 0; i < 20; i++) {
    const request = httpRequest(`${broker.url}/api/v1/services/none`, {
      ...{ method: "POST", agent: false },
      headers: { authorization: `Bearer ${broker.tokenOf("client")}` },
    });
    request.on("error", () => {});
    request.on("response", ({ statusCode = 0 }) => statuses.push(statusCode));
    // Without a length Node sends chunks.
    request.write("a");
    request.end("b");
    atEnd(() => request.destroy());
    await until("it waits, or is refused", () => broker.core.state.requests.size + statuses.length === i + 1);
  }
  expect(statuses).toEqual([]);
});
