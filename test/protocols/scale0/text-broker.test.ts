/** The text, rule by rule, with literal workers and clients at the broker. docs/reference/protocols/scale0.md lists these tests. */
import { join } from "node:path";
import { expect, it } from "vitest";
import { startBroker } from "../../../src/server.js";
import { openGroup, PATIENCE_MS } from "../../broker/group/kit.js";
import { freePort } from "../../support/free-port.js";
import { until } from "../../support/wait.js";
import { atEnd, dealer, type Literal, openScale0, type Said, type Scale0Broker, startedWorker } from "./kit.js";

const WEST = { identity: "west", worker_uri: "tcp://10.0.0.2:8081", client_uri: "tcp://10.0.0.2:8080" };
const WEST_IN_GROUP = {
  identity: "west",
  listeners: [WEST.client_uri, WEST.worker_uri, "tcp://10.0.0.2:8082"].map((url) => ({ name: "scale0", url })),
};

const identities = ([, { brokers }]: Said): string[] => (brokers as { identity: string }[]).map((one) => one.identity);
const configIn = ([, , body = ""]: Said): Record<string, unknown> => JSON.parse(body) as Record<string, unknown>;
const selfOf = (setup: Scale0Broker) => ({
  identity: expect.any(String),
  worker_uri: setup.workers,
  client_uri: setup.clients,
});

/** A worker that has a request, and the client that asked. */
async function busyWorker(): Promise<{ setup: Scale0Broker; worker: Literal; client: Literal; request: Said }> {
  const setup = await openScale0();
  const worker = await startedWorker(setup, "w1");
  const client = dealer(setup.clients, "c1");
  await client.say("WORKREQUEST", { service: "echo", message_id: "m1" }, "hello");
  return { setup, worker, client, request: await worker.hear() };
}

it("CONNECT: a new connection must validate its config first", async () => {
  const setup = await openScale0();
  const worker = dealer(setup.workers, "w1");
  expect((await worker.ask("PING", { time: Date.now() }))[0]).toBe("FORCENEGOTIATE");
  expect((await worker.ask("CONNECT", { config_type: "JSON" }))[0]).toBe("CONFIG");
  expect((await worker.ask("PING", { time: Date.now() }))[0]).toBe("PONG");
});

it("CONNECT: config_type can be JSON, XML or ZFL", async () => {
  const setup = await openScale0();
  const worker = dealer(setup.workers, "w1");
  for (const [config_type, body] of [
    ["JSON", /^\{\n {2}"identity": "w1",\n/],
    ["XML", /^<config version="0">\n {2}<identity>w1<\/identity>\n/],
    ["ZFL", /^# config version 0\nidentity = w1\n/],
  ] as const) {
    expect((await worker.ask("CONNECT", { config_type }))[2]).toMatch(body);
  }
  expect((await worker.ask("CONNECT", { config_type: "YAML" }))[1]).toMatchObject({ code: 400 });
});

it("CONNECT: configversion is passed by a worker that has a config, under both spellings", async () => {
  const setup = await openScale0();
  await setup.client.ask("configSet", { settings: { motd: "hi" } });
  const worker = dealer(setup.workers, "w1");
  for (const given of [{ configversion: 1 }, { config_version: 1 }, { configversion: "0" }, {}]) {
    const answer = await worker.ask("CONNECT", { config_type: "JSON", ...given });
    expect([answer[0], answer[1].config_version, configIn(answer).motd]).toEqual(["CONFIG", 1, "hi"]);
  }
});

it("CONFIG: config_type is the format, and config is the config", async () => {
  const setup = await openScale0();
  const answer = await dealer(setup.workers, "w1").ask("CONNECT", { config_type: "JSON", services: ["a", "b"] });
  expect(answer).toEqual(["CONFIG", { config_type: "JSON", config_version: 0, config: answer[2] }, answer[2]]);
  expect(configIn(answer)).toEqual({
    identity: "w1",
    services: ["a", "b"],
    heartbeat_interval: 2000,
    preferred_broker: selfOf(setup),
    brokers: [selfOf(setup)],
  });
});

it("NEEDBROKER: its identity and services are those of the worker that connects next", async () => {
  const setup = await openScale0();
  const anybody = dealer(setup.workers);
  expect((await anybody.ask("NEEDBROKER", { identity: "w1", services: ["upper"] }))[0]).toBe("CHANGEBROKER");
  anybody.close();
  const worker = dealer(setup.workers, "w1");
  expect(configIn(await worker.ask("CONNECT", { config_type: "JSON" })).services).toEqual(["upper"]);
  expect((await worker.ask("PING", {}))[0]).toBe("PONG");
  expect(await setup.client.workers()).toMatchObject([{ name: "w1", services: ["upper"] }]);
  // Of another identity nothing was said.
  expect(configIn(await dealer(setup.workers, "w2").ask("CONNECT", {})).services).toEqual([]);
  expect((await dealer(setup.workers, "w3").ask("NEEDBROKER", { services: [7] }))[1]).toMatchObject({ code: 400 });
});

it("NEEDBROKER: the group routes the worker to a broker, which is its preferred one then", async () => {
  const setup = await openScale0();
  Object.assign(setup.broker.core, { group: { identity: "east", brokers: () => [WEST_IN_GROUP] } });
  const worker = dealer(setup.workers, "w1");
  const need = { identity: "w1", services: ["echo"] };
  expect(await worker.ask("NEEDBROKER", need)).toEqual([
    "CHANGEBROKER",
    { brokers: [{ ...selfOf(setup), identity: "east" }, WEST] },
  ]);
  expect(configIn(await worker.ask("CONNECT", {})).preferred_broker).toMatchObject({ identity: "east" });
  // There is a problem here: the other one is the new one.
  await setup.client.ask("drainBroker", { draining: true });
  expect(identities(await dealer(setup.workers, "w2").ask("NEEDBROKER", need))).toEqual(["west"]);
});

it("NEEDBROKER: a broker that is there again gets its workers back, if that is set", async () => {
  const setup = await openScale0();
  const brokers: (typeof WEST_IN_GROUP)[] = [];
  Object.assign(setup.broker.core, { group: { identity: "east", brokers: () => brokers } });
  await setup.client.ask("configSet", { settings: { switch_back: true } });
  // Asked on one connection, and connected on the next.
  const asking = dealer(setup.workers);
  await asking.ask("NEEDBROKER", { identity: "w1", services: ["echo"], preferred_broker: "west" });
  asking.close();
  const worker = dealer(setup.workers, "w1");
  await worker.ask("CONNECT", {});
  expect((await worker.ask("PING", {}))[0]).toBe("PONG");
  brokers.push(WEST_IN_GROUP);
  expect((await worker.ask("PING", {}))[0]).toBe("PONG");
  expect(identities(await worker.hear())).toEqual(["west", "east"]);
});

it("PING: the worker is added to the LRU queue if it is not in it", async () => {
  const { setup, worker, client, request } = await busyWorker();
  await worker.say("WORKREPLY", { work_request_indentifier: request[1].work_request_indentifier }, "1");
  await client.hear();
  for (const message_id of [2, 3]) await client.say("WORKREQUEST", { service: "echo", message_id });
  await until("both wait", async () => (await setup.client.ask("status", {})).requests.waiting === 2);
  // Twice in a row it is in the queue once.
  for (let i = 0; i < 2; i++) await worker.say("PING", {});
  expect((await worker.hear())[0]).toBe("PONG");
  expect((await worker.hear())[1]).toMatchObject({ message_id: 2 });
  expect((await worker.hear())[0]).toBe("PONG");
  expect((await setup.client.ask("status", {})).requests).toEqual({ waiting: 1, running: 1 });
});

it("PING: heartbeat_interval is when the next one can be expected", async () => {
  const setup = await openScale0();
  await setup.client.ask("configSet", { settings: { heartbeat_interval: 500 } });
  const seldom = dealer(setup.workers, "seldom");
  await seldom.ask("CONNECT", {});
  expect((await seldom.ask("PING", { heartbeat_interval: 60_000, config_version: 1 }))[0]).toBe("PONG");
  // The first PING must come within three heartbeats of CONNECT.
  const often = dealer(setup.workers, "often");
  await often.ask("CONNECT", {});
  expect((await often.ask("PING", { heartbeat_interval: 700, config_version: 1 }))[0]).toBe("PONG");
  expect((await often.hear())[1]).toMatchObject({ code: 408, message: expect.stringContaining("2100 ms") });
  expect((await setup.client.workers()).map(({ name }) => name)).toEqual(["seldom"]);
});

it("PING: time that is way off is an error, and the worker is disconnected", async () => {
  const setup = await openScale0();
  const worker = await startedWorker(setup, "w1");
  expect((await worker.ask("PING", { time: Date.now() - 30_000 }))[0]).toBe("PONG");
  expect(await worker.ask("PING", { time: Date.now() - 70_000 })).toEqual([
    "DISCONNECTERROR",
    { code: 409, message: expect.stringContaining("behind") },
  ]);
  expect(await setup.client.workers()).toEqual([]);
  expect((await worker.ask("PING", { time: Date.now() }))[0]).toBe("FORCENEGOTIATE");
});

it("PING: config_version ensures that a worker has the current config", async () => {
  const setup = await openScale0();
  const worker = await startedWorker(setup, "w1");
  await setup.client.ask("configSet", { settings: { motd: "new" } });
  expect((await worker.hear())[1]).toMatchObject({ config_version: 1 });
  expect(await worker.ask("PING", { config_version: 0 })).toEqual([
    "FORCENEGOTIATE",
    { reason: expect.stringContaining("version 0"), config_version: 1 },
  ]);
  await worker.ask("CONNECT", {});
  for (const config_version of [1, "1", undefined])
    expect((await worker.ask("PING", { config_version }))[0]).toBe("PONG");
});

it("PONG: the response to PING has its time and the config version", async () => {
  const setup = await openScale0();
  const worker = await startedWorker(setup, "w1");
  const time = Date.now() - 5;
  const pong = ["PONG", { time, broker_time: expect.any(Number), config_version: 0 }];
  expect(await worker.ask("PING", { time, config_version: 0 })).toEqual(pong);
  expect(await dealer(setup.clients, "c1").ask("PING", { time })).toEqual(pong);
});

it("WORKREQUEST: removes the worker from the LRU queue and adds it to the wait queue", async () => {
  const { setup, worker, client, request } = await busyWorker();
  expect((await setup.client.workers())[0]).toMatchObject({ requests: 1, free: { slots: 0 } });
  await client.say("WORKREQUEST", { service: "echo", message_id: "m2" });
  await until("it waits", async () => (await setup.client.ask("status", {})).requests.waiting === 1);
  const { work_request_indentifier } = request[1];
  for (const text of ["once", "twice"]) await worker.say("WORKREPLY", { work_request_indentifier }, text);
  expect(await client.hear()).toEqual(["WORKREPLY", { message_id: "m1" }, "once"]);
  await worker.say("PING", {});
  // The second reply was not in the wait queue any more.
  expect((await worker.hearOf("WORKREQUEST"))[1]).toMatchObject({ message_id: "m2" });
  expect((await setup.client.ask("status", {})).requests).toEqual({ waiting: 0, running: 1 });
});

it("WORKREQUEST: optionally brokers have fallbacks, whose address workers know", async () => {
  const listeners = async () => [
    { name: "scale0" as const, host: "127.0.0.1", ports: [await freePort(), await freePort(), await freePort()] },
  ];
  // Longer than this process may come to a halt: a lease that ends in between changes the list of brokers.
  const leaseMs = 4_000;
  const group = await openGroup(1, { leaseMs, listeners: await listeners() });
  const [member] = group.members;
  const [clients = "", workers = ""] = member?.broker.listeners[0]?.urls ?? [];
  const worker = await startedWorker({ workers }, "w1");
  const fallback = await listeners();
  const broker = await startBroker({
    ...{ dir: join(group.dir, "fallback"), port: 0, listeners: fallback, leaseMs, fallback: true },
    store: () => group.world.store(),
  });
  atEnd(() => broker.stop());
  const [client = 0, own = 0] = fallback[0]?.ports ?? [];
  const uris = [
    { identity: expect.any(String), worker_uri: workers, client_uri: clients },
    {
      identity: expect.any(String),
      worker_uri: `tcp://127.0.0.1:${own}`,
      client_uri: `tcp://127.0.0.1:${client}`,
    },
  ];
  // The worker was there before the fallback.
  const inConfig = async () => configIn(await worker.hearOf("CONFIG")).brokers as unknown[];
  await until("its config has both", async () => (await inConfig()).length === 2, PATIENCE_MS);
  // The list can be pushed again at any time.
  await worker.say("CONNECT", { services: ["echo"] });
  expect(configIn(await worker.hearOf("CONFIG")).brokers).toEqual(uris);
  await worker.say("NEEDBROKER", {});
  expect(await worker.hearOf("CHANGEBROKER")).toEqual(["CHANGEBROKER", { brokers: uris }]);
  await member?.broker.stop();
  const moved = dealer(`tcp://127.0.0.1:${own}`, "w1");
  expect((await moved.ask("CONNECT", { services: ["echo"] }))[0]).toBe("CONFIG");
  expect((await moved.ask("PING", {}))[0]).toBe("PONG");
});

it("WORKREQUEST: time and config_version are the broker's", async () => {
  const before = Date.now();
  const { request } = await busyWorker();
  expect(request[1]).toMatchObject({ time: expect.any(Number), config_version: 0 });
  expect(request[1].time).toBeGreaterThanOrEqual(before);
});

it("WORKREQUEST: work_request_indentifier is the identity of the frontend and the message id", async () => {
  const { worker, client, request } = await busyWorker();
  const { work_request_indentifier, work_request_identifier } = request[1];
  expect(work_request_indentifier).toMatch(/^c1\/m1\//);
  expect(work_request_identifier).toBe(work_request_indentifier);
  await worker.say("WORKREPLY", { work_request_indentifier }, "a");
  expect((await client.hear())[2]).toBe("a");
  await worker.say("PING", {});
  await client.say("WORKREQUEST", { service: "echo", message_id: 2 });
  const [, second] = await worker.hearOf("WORKREQUEST");
  await worker.say("WORKREPLY", { work_request_identifier: second.work_request_identifier }, "b");
  expect((await client.hear())[2]).toBe("b");
});

it("WORKREQUEST: body is of no interest to the broker", async () => {
  const setup = await openScale0();
  const worker = await startedWorker(setup, "w1");
  const client = dealer(setup.clients, "c1");
  const binary = Buffer.from([0, 255, 1, 128]);
  await client.sayFrames("WORKREQUEST", '{"service":"echo","message_id":1}', binary, "", "{");
  const [, parameters, ...body] = await worker.hearFrames();
  expect(body).toEqual([binary, Buffer.alloc(0), Buffer.from("{")]);
  const { work_request_indentifier: first } = JSON.parse(String(parameters)) as Record<string, unknown>;
  await worker.say("WORKREPLY", { work_request_indentifier: first }, "", binary);
  expect((await client.hearFrames()).slice(2)).toEqual([Buffer.alloc(0), binary]);
  // Among the parameters, as the text has it.
  const other = await startedWorker(setup, "w2", { services: ["other"] });
  await client.say("WORKREQUEST", { service: "other", message_id: 2, body: "text" });
  const [, { body: inline, work_request_indentifier }, frame] = await other.hear();
  expect([inline, frame]).toEqual(["text", "text"]);
  await other.say("WORKREPLY", { work_request_indentifier, body: "answer" });
  expect(await client.hear()).toEqual(["WORKREPLY", { message_id: 2, body: "answer" }, "answer"]);
});

it("WORKREPLY: errors of the work are the frontend's to manage", async () => {
  const { setup, worker, client, request } = await busyWorker();
  const { work_request_indentifier } = request[1];
  await worker.say("WORKREPLY", { work_request_indentifier, error: { mine: 7 } }, "no luck");
  expect(await client.hear()).toEqual(["WORKREPLY", { message_id: "m1", error: { mine: 7 } }, "no luck"]);
  expect((await worker.ask("PING", {}))[0]).toBe("PONG");
  expect(await setup.client.workers()).toMatchObject([{ name: "w1" }]);
});

it("DISCONNECTERROR: has an error code and an error message", async () => {
  const setup = await openScale0();
  const worker = await startedWorker(setup, "w1");
  expect(await worker.ask("DANCE", {})).toEqual([
    "DISCONNECTERROR",
    { code: 501, message: expect.stringMatching(/^unknown command: "DANCE"/) },
  ]);
  expect(await setup.client.workers()).toEqual([]);
});

it("FORCENEGOTIATE: is sent when the broker is not sure of the worker's state, and CONNECT mends it", async () => {
  const setup = await openScale0();
  const worker = await startedWorker(setup, "w1");
  const [{ id } = { id: "" }] = await setup.client.workers();
  await setup.client.stopWorker(id);
  expect((await worker.hear())[1]).toMatchObject({ code: 444 });
  expect(await worker.ask("PING", {})).toEqual(["FORCENEGOTIATE", { reason: expect.any(String) }]);
  expect((await worker.ask("CONNECT", { services: ["echo"] }))[0]).toBe("CONFIG");
  expect((await worker.ask("PING", {}))[0]).toBe("PONG");
});

it("CONNECTIONS: worker startup, broker up: CONNECT, CONFIG, PING, PONG, and only then it is in the LRU queue", async () => {
  const setup = await openScale0();
  const client = dealer(setup.clients, "c1");
  await client.say("WORKREQUEST", { service: "echo", message_id: 1 }, "x");
  const worker = dealer(setup.workers, "w1");
  expect((await worker.ask("CONNECT", { config_type: "JSON", services: ["echo"] }))[0]).toBe("CONFIG");
  expect(await setup.client.workers()).toEqual([]);
  expect((await worker.ask("PING", { time: Date.now(), config_version: 0 }))[0]).toBe("PONG");
  expect((await worker.hear())[0]).toBe("WORKREQUEST");
  expect(await setup.client.workers()).toMatchObject([{ name: "w1", protocol: "scale0", services: ["echo"] }]);
});
