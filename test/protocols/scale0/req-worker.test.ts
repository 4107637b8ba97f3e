import { describe, expect, it } from "vitest";
import { until } from "../../support/wait.js";
import { dealer, type Literal, numbering, openScale0, req, type Said, type Scale0Broker } from "./kit.js";

/** PINGs until it hears something that is no PONG. */
async function pingUntil(worker: Literal, command: string): Promise<Said> {
  for (;;) {
    const said = await worker.ask("PING", { heartbeat_interval: 10_000, time: Date.now() });
    if (said[0] === command) return said;
    if (said[0] !== "PONG") throw new Error(`expected ${command}, got ${said[0]}`);
  }
}

async function startedReq(setup: Scale0Broker): Promise<Literal> {
  const worker = req(setup.workers, "r1");
  expect((await worker.ask("CONNECT", { services: ["echo"] }))[0]).toBe("CONFIG");
  expect((await worker.ask("PING", { config_version: 0 }))[0]).toBe("PONG");
  return worker;
}

describe("a worker with a REQ socket", () => {
  it("hears of work when it PINGs, and may go on after each reply", async () => {
    const setup = await openScale0();
    const worker = await startedReq(setup);
    const client = dealer(setup.clients, "c1");
    for (const body of ["one", "two", "three"]) {
      await client.say("WORKREQUEST", { service: "echo", message_id: body }, body);
      const [, { work_request_identifier }, given] = await pingUntil(worker, "WORKREQUEST");
      expect(given).toBe(body);
      expect((await worker.ask("WORKREPLY", { work_request_identifier }, body.toUpperCase()))[0]).toBe("PONG");
      expect(await client.hear()).toEqual(["WORKREPLY", { message_id: body }, body.toUpperCase()]);
    }
    expect((await worker.ask("NEEDBROKER", {}))[0]).toBe("CHANGEBROKER");
  });

  it("is answered by the request that comes while it waits", async () => {
    const setup = await openScale0();
    const worker = await startedReq(setup);
    // The answer to this is held back for a moment, or is a PONG where the moment was over: then the next is.
    const heard = pingUntil(worker, "TASK");
    const client = dealer(setup.clients, "c1");
    await client.say("TASK", { service: "echo", message_id: 1 }, "x");
    const [, { id }] = await heard;
    expect((await worker.ask("TASKREPLY", { id, body: "y" }))[0]).toBe("PONG");
    expect(await client.hear()).toEqual(["TASKREPLY", { message_id: 1 }, "y"]);
  });

  it("hears of a new config, of maintenance and of errors when it speaks", async () => {
    const setup = await openScale0();
    const worker = await startedReq(setup);
    await setup.client.ask("configSet", { settings: { note: 1 } });
    await setup.client.ask("configSet", { settings: { note: 2 } });
    expect((await pingUntil(worker, "CONFIG"))[1]).toMatchObject({ config_version: 2 });
    expect((await worker.ask("PING", { config_version: 1 }))[0]).toBe("FORCENEGOTIATE");
    expect((await worker.ask("CONNECT", { services: ["echo"] }))[0]).toBe("CONFIG");
    expect((await worker.ask("PING", { config_version: 2 }))[0]).toBe("PONG");
    const brokers = [{ identity: "west", worker_uri: "tcp://192.0.2.1:1", client_uri: "tcp://192.0.2.1:2" }];
    await setup.client.ask("configSet", { settings: { brokers } });
    await setup.client.ask("drainBroker", { draining: true });
    expect((await worker.ask("PING", {}))[1]).toMatchObject({ code: 301 });
    expect(await worker.ask("NEEDBROKER", {})).toEqual(["CHANGEBROKER", { brokers }]);
    await setup.client.ask("drainBroker", { draining: false });
    // Nothing of what was said before is left over.
    expect((await worker.ask("CONNECT", { services: ["echo"] }))[0]).toBe("CONFIG");
    expect((await worker.ask("PING", {}))[0]).toBe("PONG");
    expect((await worker.ask("PING", {}))[0]).toBe("PONG");
  });

  it("may number what it says, and speak again without waiting", async () => {
    const setup = await openScale0();
    const worker = numbering(setup.workers);
    expect((await worker.ask("CONNECT", { services: ["echo"] }))[0]).toBe("CONFIG");
    expect((await worker.ask("PING", {}))[0]).toBe("PONG");
    await worker.say("PING", {});
    await worker.say("PING", {});
    expect((await worker.hear())[0]).toBe("PONG");
    const client = dealer(setup.clients, "c1");
    await client.say("WORKREQUEST", { service: "echo", message_id: 1 }, "x");
    const [, { work_request_identifier }] = await pingUntil(worker, "WORKREQUEST");
    expect((await worker.ask("WORKREPLY", { work_request_identifier }, "y"))[0]).toBe("PONG");
    expect((await client.hear())[2]).toBe("y");
  });

  it("is told that nobody knows it, whatever it says", async () => {
    const setup = await openScale0();
    const worker = req(setup.workers, "r1");
    expect((await worker.ask("PING", {}))[0]).toBe("FORCENEGOTIATE");
    expect((await worker.ask("WORKREPLY", { work_request_identifier: "?" }))[0]).toBe("FORCENEGOTIATE");
  });

  it("loses what it was given and never heard of when it goes", async () => {
    const setup = await openScale0();
    const worker = await startedReq(setup);
    const client = dealer(setup.clients, "c1");
    await client.say("WORKREQUEST", { service: "echo", message_id: 1 }, "x");
    await until("it is given", async () => (await setup.client.workers())[0]?.free.slots === 0);
    worker.close();
    expect((await client.hear())[1]).toMatchObject({ code: 504, message_id: 1 });
  });
});
