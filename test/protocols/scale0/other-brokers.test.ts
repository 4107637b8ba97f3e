import { describe, expect, it } from "vitest";
import type { GroupBroker } from "../../../src/broker/group/membership.js";
import { until } from "../../support/wait.js";
import { answerOne, dealer, openScale0, req, type Scale0Broker, startedWorker } from "./kit.js";

const ELSEWHERE = { identity: "west", worker_uri: "tcp://10.0.0.2:8081", client_uri: "tcp://10.0.0.2:8080" };
const WEST: GroupBroker = {
  identity: "west",
  listeners: [
    { name: "main", url: "https://10.0.0.2:5429" },
    { name: "scale0", url: ELSEWHERE.client_uri },
    { name: "scale0", url: ELSEWHERE.worker_uri },
    { name: "scale0", url: "tcp://10.0.0.2:8082" },
  ],
};

const selfOf = (setup: Scale0Broker) => ({
  identity: expect.any(String),
  worker_uri: setup.workers,
  client_uri: setup.clients,
});

const told = (setup: Scale0Broker) => setup.client.ask("configSet", { settings: { brokers: [ELSEWHERE] } });

describe("NEEDBROKER", () => {
  it("is answered with this broker first, then those of the config", async () => {
    const setup = await openScale0();
    const worker = dealer(setup.workers, "w1");
    const need = { identity: "w1", services: ["echo"] };
    expect(await worker.ask("NEEDBROKER", need)).toEqual(["CHANGEBROKER", { brokers: [selfOf(setup)] }]);
    await told(setup);
    const both = ["CHANGEBROKER", { brokers: [selfOf(setup), ELSEWHERE] }];
    expect(await worker.ask("NEEDBROKER", need)).toEqual(both);
    expect(await dealer(setup.clients, "c1").ask("NEEDBROKER", need)).toEqual(both);
    expect(await req(setup.clients).ask("NEEDBROKER", need)).toEqual(both);
  });

  it("is answered from the group, where there is one", async () => {
    const setup = await openScale0();
    const brokers: GroupBroker[] = [
      WEST,
      { identity: "north", listeners: [{ name: "main", url: "https://10.0.0.3:5429" }] },
    ];
    setup.broker.core.joinGroup({ group: { identity: "east", brokers: () => brokers } });
    const answer = await dealer(setup.workers, "w1").ask("NEEDBROKER", {});
    expect(answer).toEqual(["CHANGEBROKER", { brokers: [selfOf(setup), ELSEWHERE] }]);
  });
});

describe("draining the broker", () => {
  it("sends idle workers away with 301 and CHANGEBROKER, busy ones when they are done, and clients too", async () => {
    const setup = await openScale0();
    await told(setup);
    const idle = await startedWorker(setup, "idle", { services: ["other"] });
    const busy = await startedWorker(setup, "busy");
    const client = dealer(setup.clients, "c1");
    const asker = req(setup.clients);
    await asker.ask("PING", {});
    await client.say("WORKREQUEST", { service: "echo", message_id: 1 }, "x");
    const [, { work_request_identifier }] = await busy.hear();
    await setup.client.ask("drainBroker", { draining: true });
    const change = ["CHANGEBROKER", { brokers: [ELSEWHERE] }];
    const moved = ["DISCONNECTERROR", { code: 301, message: expect.any(String) }];
    expect([await idle.hear(), await idle.hear()]).toEqual([moved, change]);
    expect(await busy.hear()).toEqual(change);
    expect(await client.hear()).toEqual(change);
    await busy.say("WORKREPLY", { work_request_identifier }, "done");
    expect(await client.hear()).toEqual(["WORKREPLY", { message_id: 1 }, "done"]);
    expect(await busy.hear()).toEqual(moved);
    expect(await setup.client.workers()).toEqual([]);
    // Who comes now is sent on.
    const refused = ["DISCONNECTERROR", { code: 301, message: expect.any(String), message_id: 2 }];
    expect(await client.ask("WORKREQUEST", { service: "echo", message_id: 2 })).toEqual(refused);
    expect(await client.hear()).toEqual(change);
    expect(await asker.ask("WORKREQUEST", { service: "echo", message_id: 2 })).toEqual(refused);
    expect(await asker.ask("NEEDBROKER", {})).toEqual(change);
    const late = dealer(setup.workers, "late");
    expect([await late.ask("CONNECT", {}), await late.hear()]).toEqual([moved, change]);
    expect(await late.ask("NEEDBROKER", {})).toEqual(change);
    await setup.client.ask("drainBroker", { draining: false });
    expect((await late.ask("CONNECT", {}))[0]).toBe("CONFIG");
  });

  it("with no other broker refuses with 503, and keeps its workers for when it is over", async () => {
    const setup = await openScale0();
    const worker = await startedWorker(setup, "w1");
    const client = dealer(setup.clients, "c1");
    await setup.client.ask("drainBroker", { draining: true });
    expect(await client.ask("WORKREQUEST", { service: "echo", message_id: 1 })).toEqual([
      "DISCONNECTERROR",
      { code: 503, message: expect.stringContaining("taken down"), message_id: 1 },
    ]);
    expect((await client.ask("NEEDBROKER", {}))[1]).toMatchObject({ code: 503 });
    expect((await worker.ask("NEEDBROKER", {}))[1]).toMatchObject({ code: 503 });
    expect((await worker.ask("PING", {}))[0]).toBe("PONG");
    // One that comes now is let in, and waits like the others.
    const late = await startedWorker(setup, "late");
    await setup.client.ask("drainBroker", { draining: false });
    expect((await late.ask("PING", {}))[0]).toBe("PONG");
    late.close();
    await until("only the first is left", async () => (await setup.client.workers()).length === 1);
    await worker.ask("PING", {});
    await client.say("WORKREQUEST", { service: "echo", message_id: 2 }, "x");
    await answerOne(worker);
    expect((await client.hear())[0]).toBe("WORKREPLY");
  });
});

describe("a broker that stops", () => {
  it("answers every request, and tells all that there is no more to come", async () => {
    const setup = await openScale0();
    const worker = await startedWorker(setup, "w1");
    const client = dealer(setup.clients, "c1");
    for (const message_id of [1, 2]) await client.say("WORKREQUEST", { service: "echo", message_id });
    await worker.hear();
    await setup.stop();
    expect((await worker.hear())[1]).toMatchObject({ code: 503 });
    const said = [await client.hear(), await client.hear(), await client.hear()].map(([, { code, message_id }]) => [
      code,
      message_id,
    ]);
    expect(said).toEqual([
      [503, 1],
      [503, 2],
      [444, undefined],
    ]);
  });
});

describe("switching back", () => {
  it("is off by default, and by a setting sends a worker home when its broker is there again", async () => {
    const setup = await openScale0();
    const brokers: GroupBroker[] = [];
    setup.broker.core.joinGroup({ group: { identity: "east", brokers: () => brokers } });
    const worker = dealer(setup.workers, "w1");
    await worker.ask("NEEDBROKER", { identity: "w1", services: ["echo"], preferred_broker: "west" });
    await worker.ask("CONNECT", { services: ["echo"] });
    expect((await worker.ask("PING", {}))[0]).toBe("PONG");
    brokers.push(WEST);
    expect((await worker.ask("PING", {}))[0]).toBe("PONG");
    await setup.client.ask("configSet", { settings: { switch_back: true } });
    expect((await worker.hear())[0]).toBe("CONFIG");
    expect((await worker.ask("PING", {}))[0]).toBe("PONG");
    expect(await worker.hear()).toEqual(["CHANGEBROKER", { brokers: [ELSEWHERE, selfOf(setup)] }]);
    expect((await worker.ask("PING", {}))[0]).toBe("PONG");
  });
});
