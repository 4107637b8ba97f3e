import { describe, expect, it } from "vitest";
import { openOnce } from "../../support/at-end.js";
import { until } from "../../support/wait.js";
import { answerOne, dealer, type Literal, openScale0, req, type Scale0Broker, startedWorker } from "./kit.js";

const error = (code: number, about: RegExp, more: object = {}) => [
  "DISCONNECTERROR",
  { code, message: expect.stringMatching(about), ...more },
];

describe("what cannot be understood", () => {
  const sharedSetup = openOnce(openScale0);

  it.each([
    ["nothing", [""], 400, /no command/],
    ["a command of nothing but bytes", [Buffer.alloc(65, 7)], 400, /65 bytes/],
    ["a command without parameters", ["PONG"], 400, /without parameters/],
    ["parameters that are no JSON", ["CONNECT", "{"], 400, /not a JSON object/],
    ["parameters that are no object", ["CONNECT", "[]"], 400, /not a JSON object/],
    ["parameters nested without end", ["CONNECT", `{"a":${"[".repeat(200_000)}`], 400, /not a JSON object/],
    ["too many parameters", ["CONNECT", `{"a":"${"x".repeat(1 << 20)}"}`], 400, /bytes of parameters/],
    ["an unknown command", ["DANCE", "{}"], 501, /DANCE/],
    ["a command in small letters", ["ping", "{}"], 501, /ping/],
    ["an unknown config type", ["CONNECT", '{"config_type":"YAML"}'], 400, /JSON, XML or ZFL/],
    ["services that are none", ["CONNECT", '{"services":[1]}'], 400, /services\[0\]/],
    ["no slots", ["CONNECT", '{"slots":0}'], 400, /slots/],
    ["a time that is none", ["PING", '{"time":"noon"}'], 400, /time/],
    ["what a client says", ["WORKREQUEST", '{"service":"x"}'], 400, /client port, tcp:/],
    ["what a broker says", ["PONG", "{}"], 400, /sent by brokers/],
  ] as const)("is refused on the worker port: %s", async (what, frames, code, why) => {
    const worker = dealer(sharedSetup().workers, what);
    await worker.sayFrames(...frames);
    expect(await worker.hear()).toEqual(error(code, why));
    expect((await worker.ask("CONNECT", {}))[0]).toBe("CONFIG");
  });

  it.each([
    ["no command", ["", ""], 400, /no command/],
    ["an unknown command", ["DANCE", "{}"], 501, /DANCE/],
    ["a request without a service", ["WORKREQUEST", "{}"], 400, /service/],
    ["what a worker says", ["CONNECT", "{}"], 400, /worker port, tcp:/],
    ["the prototype's words", ["READY", "a,b"], 501, /worker port/],
    ["a PING without JSON", ["PING", "now"], 400, /not a JSON object/],
  ] as const)("is refused on the client port: %s", async (what, frames, code, why) => {
    const client = dealer(sharedSetup().clients, what);
    await client.sayFrames(...frames);
    const [command, json, ...rest] = (await client.hearFrames()).filter((frame) => frame.length > 0);
    expect([command?.toString(), JSON.parse(json?.toString() ?? ""), ...rest]).toEqual(error(code, why));
  });

  it("is refused with its message id, where there is one, and nothing else of the client's suffers", async () => {
    const setup = await openScale0();
    const worker = await startedWorker(setup, "w1");
    const client = dealer(setup.clients, "c1");
    await client.say("WORKREQUEST", { service: "echo", message_id: 1 }, "good");
    expect(await client.ask("WORKREQUEST", { service: 7, message_id: "two" })).toEqual(
      error(400, /service/, { message_id: "two" }),
    );
    await answerOne(worker);
    expect(await client.hear()).toEqual(["WORKREPLY", { message_id: 1 }, "good"]);
  });

  it("ends the worker that said it: what it had is refused", async () => {
    const setup = await openScale0();
    const worker = await startedWorker(setup, "w1");
    const client = dealer(setup.clients, "c1");
    await client.say("WORKREQUEST", { service: "echo", message_id: 1 });
    await worker.hear();
    await worker.sayFrames("WORKREPLY", "nonsense");
    expect(await worker.hear()).toEqual(error(400, /JSON/));
    expect(await client.hear()).toEqual(error(504, /lost/, { message_id: 1 }));
    expect(await setup.client.workers()).toEqual([]);
  });

  it("is a PING without JSON of a worker that is registered: it is not of the prototype", async () => {
    const setup = await openScale0();
    const worker = await startedWorker(setup, "w1");
    await worker.sayFrames("PING", "now");
    expect(await worker.hear()).toEqual(error(400, /not a JSON object/));
    expect(await setup.client.workers()).toEqual([]);
  });

  it("is answered a hundred times, the last time with 444, and then no more", async () => {
    const setup = await openScale0();
    const client = dealer(setup.clients, "c1");
    for (let i = 0; i < 150; i++) await client.sayFrames("DANCE", "{}");
    const codes: unknown[] = [];
    for (let i = 0; i < 100; i++) codes.push((await client.hear())[1].code);
    expect(codes).toEqual([...Array(99).fill(501), 444]);
    await client.say("PING", {});
    expect(await client.silent(100)).toBe(true);
    // Others are answered as before.
    expect((await dealer(setup.clients, "c2").ask("PING", {}))[0]).toBe("PONG");
  });

  it("is refused to a worker with a REQ socket in a way that it can hear", async () => {
    const setup = await openScale0();
    const worker = req(setup.workers);
    expect(await worker.ask("DANCE", {})).toEqual(error(501, /DANCE/));
    expect(await worker.ask("CONNECT", { slots: 0 })).toEqual(error(400, /slots/));
    expect(await worker.ask("TASK", {})).toEqual(error(400, /client port/));
    expect((await worker.ask("CONNECT", {}))[0]).toBe("CONFIG");
  });
});

describe("a broker disconnects", () => {
  it("with 401 a worker that is banned", async () => {
    const setup = await openScale0({ settings: { standing: true } });
    const banned = { results: 10, succeeded: 0, recent: "----------", probes: 0, standing: "banned" as const };
    setup.broker.core.state.standings.set("w1", banned);
    expect(await dealer(setup.workers, "w1").ask("CONNECT", {})).toEqual(error(401, /banned/));
    expect((await dealer(setup.workers, "w2").ask("CONNECT", {}))[0]).toBe("CONFIG");
  });

  it("with 409 whose clock is too far off, by a setting", async () => {
    const setup = await openScale0();
    const worker = await startedWorker(setup, "w1");
    const client = dealer(setup.clients, "c1");
    expect((await worker.ask("PING", { time: Date.now() - 50_000 }))[0]).toBe("PONG");
    // Seconds, as some languages count them.
    const time = Date.now() / 1_000;
    expect(await client.ask("PING", { time })).toEqual(["PONG", expect.objectContaining({ time })]);
    expect(await client.ask("PING", { time: time - 70 })).toEqual(error(409, /behind/));
    expect(await client.ask("PING", { time: Date.now() + 70_000 })).toEqual(error(409, /ahead of/));
    expect(await worker.ask("PING", { time: Date.now() - 70_000 })).toEqual(error(409, /behind/));
    expect(await setup.client.workers()).toEqual([]);
    expect((await worker.ask("PING", {}))[0]).toBe("FORCENEGOTIATE");
    await setup.client.ask("configSet", { settings: { clock_tolerance: 100_000 } });
    expect((await client.ask("PING", { time: Date.now() + 70_000 }))[0]).toBe("PONG");
  });

  it("with 426 a worker that is still stale after it was forced to negotiate", async () => {
    const setup = await openScale0();
    await setup.client.ask("configSet", { settings: { note: 1 } });
    const worker = dealer(setup.workers, "w1");
    expect((await worker.ask("CONNECT", { config_version: 0 }))[1]).toMatchObject({ config_version: 1 });
    for (let i = 0; i < 2; i++) {
      expect(await worker.ask("PING", { configversion: "0" })).toEqual([
        "FORCENEGOTIATE",
        { reason: expect.stringContaining("version 0"), config_version: 1 },
      ]);
    }
    expect(await setup.client.workers()).toEqual([]);
    expect((await worker.ask("CONNECT", {}))[0]).toBe("CONFIG");
    expect(await worker.ask("PING", { config_version: 0 })).toEqual(error(426, /0 after CONNECT/));
    expect((await worker.ask("PING", { config_version: 1 }))[0]).toBe("FORCENEGOTIATE");
    expect((await worker.ask("CONNECT", {}))[0]).toBe("CONFIG");
    expect((await worker.ask("PING", { config_version: "1" }))[0]).toBe("PONG");
  });

  it("with 408 a worker whose heartbeat was missed three times; what it had goes to another once, if it was asked for", async () => {
    const setup = await openScale0();
    await setup.client.ask("configSet", { settings: { heartbeat_interval: 100 } });
    const asleep = dealer(setup.workers, "asleep");
    await asleep.ask("CONNECT", { services: ["echo"], slots: 2 });
    for (let i = 0; i < 2; i++) await asleep.say("PING", { heartbeat_interval: 300, config_version: 1 });
    const client = dealer(setup.clients, "c1");
    await client.say("WORKREQUEST", { service: "echo", message_id: "once" }, "1");
    await asleep.hearOf("WORKREQUEST");
    await asleep.say("PING", { heartbeat_interval: 300, config_version: 1 });
    await client.say("WORKREQUEST", { service: "echo", message_id: "again", retry: true }, "2");
    await asleep.hearOf("WORKREQUEST");
    const since = performance.now();
    const awake = await startedWorker(setup, "awake");
    expect(await client.hear()).toEqual(error(504, /lost/, { message_id: "once" }));
    // Three intervals of its own, longer ones, not of the broker's.
    expect(performance.now() - since).toBeGreaterThan(500);
    expect((await answerOne(awake))[2]).toBe("2");
    expect(await client.hear()).toEqual(["WORKREPLY", { message_id: "again" }, "2"]);
    expect(await asleep.hearOf("DISCONNECTERROR")).toEqual(error(408, /900 ms/));
    expect((await asleep.ask("PING", {}))[0]).toBe("FORCENEGOTIATE");
  });

  it("with 408 by its own interval, where the worker's is shorter", async () => {
    const setup = await openScale0();
    await setup.client.ask("configSet", { settings: { heartbeat_interval: 200 } });
    const worker = dealer(setup.workers, "w1");
    await worker.ask("CONNECT", {});
    expect((await worker.ask("PING", { heartbeat_interval: 10 }))[0]).toBe("PONG");
    expect(await worker.hear()).toEqual(error(408, /600 ms/));
  });

  it("with 503 and 504 no client, but single requests", async () => {
    const setup = await openScale0({ settings: { maxWaitingRequests: 2 } });
    const client = dealer(setup.clients, "c1");
    for (const message_id of [1, 2]) await client.say("WORKREQUEST", { service: "none", message_id, timeout: 300 });
    expect(await client.ask("WORKREQUEST", { service: "none", message_id: 3 })).toEqual(
      error(503, /2 requests wait/, { message_id: 3 }),
    );
    const late = [await client.hear(), await client.hear()].sort(
      (a, b) => Number(a[1].message_id) - Number(b[1].message_id),
    );
    expect(late).toEqual([error(504, /no worker/, { message_id: 1 }), error(504, /no worker/, { message_id: 2 })]);
    const worker = await startedWorker(setup, "w1");
    await client.say("WORKREQUEST", { service: "echo", message_id: 4 }, "x");
    await answerOne(worker);
    expect((await client.hear())[0]).toBe("WORKREPLY");
  });
});

describe("a request that was answered 504", () => {
  it("keeps its worker's slot until the worker replies, or until as long again has gone by", async () => {
    const setup = await openScale0();
    const worker = await startedWorker(setup, "w1");
    const client = dealer(setup.clients, "c1");
    await client.say("WORKREQUEST", { service: "echo", message_id: 1, timeout: 200 });
    const [, { work_request_identifier }] = await worker.hear();
    expect(await client.hear()).toEqual(error(504, /w1 did not answer/, { message_id: 1 }));
    await client.say("WORKREQUEST", { service: "echo", message_id: 2, timeout: 20_000 }, "second");
    await worker.say("WORKREPLY", { work_request_identifier }, "late");
    await worker.say("PING", {});
    const [, second, body] = await worker.hearOf("WORKREQUEST");
    expect(body).toBe("second");
    await worker.say("WORKREPLY", { work_request_identifier: second.work_request_identifier }, "in time");
    // The late one went nowhere.
    expect(await client.hear()).toEqual(["WORKREPLY", { message_id: 2 }, "in time"]);

    await worker.say("PING", {});
    await client.say("WORKREQUEST", { service: "echo", message_id: 3, timeout: 200 });
    await worker.hearOf("WORKREQUEST");
    await client.hear();
    await client.say("WORKREQUEST", { service: "echo", message_id: 4, timeout: 20_000 }, "fourth");
    const found = await until("its slot is given to another", async () => {
      await worker.say("PING", {});
      const [command, , what] = await worker.hear();
      return command === "WORKREQUEST" && what;
    });
    expect(found).toBe("fourth");
  });
});

/** A name may be used again once the broker has seen the end of its first connection. */
async function closeAndWait(setup: Scale0Broker, peer: Literal, name: string): Promise<void> {
  peer.close();
  await until(`${name} is gone`, async () => {
    const { connections } = await setup.client.ask("connections", {});
    return connections.every((one) => one.peer !== name);
  });
}

describe("a worker whose connection is cut", () => {
  const request = async (client: Literal, worker: Literal, id: number): Promise<unknown> => {
    await client.say("WORKREQUEST", { service: "echo", message_id: id }, "x");
    return (await worker.hearOf("WORKREQUEST"))[1].work_request_identifier;
  };

  it("goes on where it was, under the same identity, and answers what it had", async () => {
    const setup = await openScale0();
    const worker = await startedWorker(setup, "w1");
    const client = dealer(setup.clients, "c1");
    const work_request_identifier = await request(client, worker, 1);
    await closeAndWait(setup, worker, "w1");
    const again = dealer(setup.workers, "w1");
    await again.say("WORKREPLY", { work_request_identifier }, "after all");
    expect(await client.hear()).toEqual(["WORKREPLY", { message_id: 1 }, "after all"]);
    expect((await again.ask("PING", {}))[0]).toBe("PONG");
  });

  it("is another worker when it CONNECTs again: what the first had is refused at once", async () => {
    const setup = await openScale0();
    const worker = await startedWorker(setup, "w1");
    const client = dealer(setup.clients, "c1");
    await request(client, worker, 1);
    await closeAndWait(setup, worker, "w1");
    const again = await startedWorker(setup, "w1");
    expect(await client.hear()).toEqual(error(504, /lost/, { message_id: 1 }));
    await request(client, again, 2);
  });

  it("and does not come back within a heartbeat is lost; one without a name of its own at once", async () => {
    const setup = await openScale0();
    await setup.client.ask("configSet", { settings: { heartbeat_interval: 60_000 } });
    const nameless = dealer(setup.workers);
    await nameless.ask("CONNECT", { services: ["echo"] });
    await nameless.ask("PING", {});
    const client = dealer(setup.clients, "c1");
    await request(client, nameless, 1);
    nameless.close();
    expect(await client.hear()).toEqual(error(504, /lost/, { message_id: 1 }));
    await setup.client.ask("configSet", { settings: { heartbeat_interval: 300 } });
    const named = dealer(setup.workers, "w1");
    await named.ask("CONNECT", { services: ["echo"] });
    await named.ask("PING", { heartbeat_interval: 300 });
    await request(client, named, 2);
    named.close();
    expect(await client.hear()).toEqual(error(504, /lost/, { message_id: 2 }));
    expect(await setup.client.workers()).toEqual([]);
  });
});

describe("a client that goes without waiting", () => {
  it("takes its requests with it, if it has no name to come back by; otherwise its answer waits for nobody", async () => {
    const setup = await openScale0({ settings: { maxWaitingRequests: 3 } });
    for (const name of [undefined, "c1"]) {
      const client = dealer(setup.clients, name);
      await client.ask("PING", {});
      for (let i = 0; i < 3; i++) await client.say("WORKREQUEST", { service: "none", message_id: i, timeout: 500 });
      await until("they wait", async () => (await setup.client.ask("status", {})).requests.waiting === 3);
      client.close();
      await until("none waits", async () => (await setup.client.ask("status", {})).requests.waiting === 0);
    }
    const worker = await startedWorker(setup, "w1");
    const first = dealer(setup.clients, "c2");
    await first.say("WORKREQUEST", { service: "echo", message_id: 1 }, "x");
    const [, { work_request_identifier }] = await worker.hear();
    await closeAndWait(setup, first, "c2");
    const second = dealer(setup.clients, "c2");
    expect((await second.ask("PING", {}))[0]).toBe("PONG");
    await worker.say("WORKREPLY", { work_request_identifier }, "after all");
    expect(await second.hear()).toEqual(["WORKREPLY", { message_id: 1 }, "after all"]);
  });
});
