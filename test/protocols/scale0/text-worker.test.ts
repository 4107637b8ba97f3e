/** The text, rule by rule, with a literal broker at our worker. docs/reference/protocols/scale0.md lists these tests. */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import {
  type Scale0Worker,
  type Scale0WorkerOptions,
  startScale0Worker,
} from "../../../src/protocols/scale0/worker/worker.js";
import { freePort } from "../../support/free-port.js";
import { until } from "../../support/wait.js";
import { atEnd } from "./kit.js";
import { freshEntry, LiteralBroker } from "./literal-broker.js";

const upper: Scale0WorkerOptions["services"] = {
  upper: ([body]) =>
    Buffer.from(body ?? "")
      .toString()
      .toUpperCase(),
};

function start(options: Partial<Scale0WorkerOptions>): Scale0Worker {
  const times = { connectTimeoutMs: 15_000, retryMs: 10 };
  const worker = startScale0Worker({ identity: "w1", services: upper, ...times, ...options });
  atEnd(() => worker.stop(0));
  return worker;
}

/** A worker that is registered, and will not PING by itself. */
async function registered(options: Partial<Scale0WorkerOptions> = {}) {
  const broker = await LiteralBroker.open();
  const worker = start({ broker: broker.url, ...options });
  await broker.welcome({ heartbeat_interval: 60_000 });
  return { broker, worker };
}

const nowhere = async (): Promise<string> => `tcp://127.0.0.1:${await freePort()}`;

function scratchFile(): string {
  const dir = mkdtempSync(join(tmpdir(), "laboro-scale0-"));
  atEnd(() => rmSync(dir, { recursive: true, force: true }));
  return join(dir, "config.json");
}

it("CONNECT: a new connection begins with it", async () => {
  const broker = await LiteralBroker.open();
  start({ broker: broker.url });
  expect(await broker.hear()).toEqual(["CONNECT", { config_type: "JSON", services: ["upper"], slots: 1 }]);
  expect(broker.peer).toBe("w1");
});

it("CONNECT: config_type is JSON", async () => {
  const broker = await LiteralBroker.open();
  const worker = start({ broker: broker.url });
  expect((await broker.hear())[1].config_type).toBe("JSON");
  // One that gives another format all the same is heard, and its config is not used.
  await broker.say("CONFIG", { config_type: "XML", config_version: 1 }, "<config/>");
  expect((await broker.hear())[0]).toBe("PING");
  expect(worker.config).toEqual({});
});

it("CONNECT: configversion is passed by a worker that has a config, in the text's spelling first", async () => {
  const { broker } = await registered();
  await broker.say("FORCENEGOTIATE");
  expect(await broker.hearText()).toBe(
    '{"config_type":"JSON","configversion":1,"config_version":1,"services":["upper"],"slots":1}',
  );
});

it("CONFIG: config is taken from the body or from the parameter", async () => {
  const broker = await LiteralBroker.open();
  const worker = start({ broker: broker.url });
  await broker.hear();
  await broker.say("CONFIG", { config_type: "JSON", config_version: 1 }, '{"motd":"body"}');
  await broker.hearOf("PING");
  expect(worker.config).toEqual({ motd: "body" });
  await broker.say("PONG");
  await broker.say("CONFIG", { config_type: "JSON", config_version: 2, config: '{"motd":"text"}' });
  await until("it has it", () => worker.config.motd === "text");
  await broker.say("CONFIG", { config_type: "JSON", config_version: 3, config: { motd: "object" } });
  await until("it has it", () => worker.config.motd === "object");
});

it("NEEDBROKER: identity and services are said to another broker, where the preferred one is down", async () => {
  const east = await LiteralBroker.open();
  const dead = freshEntry("dead", await nowhere());
  const brokers = [dead, freshEntry("east", east.url)];
  const first = await LiteralBroker.open();
  start({ broker: first.url, connectTimeoutMs: 300 });
  await first.welcome({ preferred_broker: dead, brokers, heartbeat_interval: 60_000 });
  first.close();
  expect(await east.hear()).toEqual(["NEEDBROKER", { identity: "w1", services: ["upper"] }]);
});

it("NEEDBROKER: the broker that is answered first is the preferred one then", async () => {
  const { broker: east } = await registered();
  const west = await LiteralBroker.open();
  await east.say("DISCONNECTERROR", { code: 301, message: "moved" });
  expect(await east.hear()).toEqual(["NEEDBROKER", { identity: "w1", services: ["upper"] }]);
  await east.say("CHANGEBROKER", { brokers: [freshEntry("west", west.url), freshEntry("east", east.url)] });
  await west.welcome({ heartbeat_interval: 60_000 });
  await west.say("DISCONNECTERROR", { code: 408, message: "asleep" });
  expect((await west.hear())[0]).toBe("CONNECT");
});

it("NEEDBROKER: a worker switches back where it is told to", async () => {
  const { broker: east } = await registered();
  const west = await LiteralBroker.open();
  await east.say("CHANGEBROKER", { brokers: [freshEntry("west", west.url)] });
  await west.welcome({ heartbeat_interval: 60_000 });
  await west.say("CHANGEBROKER", { brokers: [freshEntry("east", east.url)] });
  await east.welcome({ heartbeat_interval: 60_000 });
});

it("PING: the standard heartbeat, and the sign that a slot is free", async () => {
  const { broker } = await registered({ slots: 2 });
  // It has room for another: PING on receipt. After an answer, too.
  await broker.say("WORKREQUEST", { work_request_indentifier: "a" }, "x");
  expect([(await broker.hear())[0], (await broker.hear())[0], (await broker.hear())[0]].sort()).toEqual([
    "PING",
    "PING",
    "WORKREPLY",
  ]);
});

it("PING: heartbeat_interval is the config's, or longer", async () => {
  for (const [heartbeatMs, expected] of [
    [20, 50],
    [70, 70],
  ] as const) {
    const broker = await LiteralBroker.open();
    start({ broker: broker.url, heartbeatMs });
    await broker.welcome({ heartbeat_interval: 50 });
    for (let i = 0; i < 2; i++) expect((await broker.hear())[1].heartbeat_interval).toBe(expected);
  }
});

it("PING: time is the worker's, in milliseconds", async () => {
  const broker = await LiteralBroker.open();
  start({ broker: broker.url });
  await broker.hear();
  const before = Date.now();
  await broker.say("CONFIG", { config_type: "JSON", config_version: 1 }, "{}");
  const { time } = (await broker.hear())[1];
  expect(time).toBeGreaterThanOrEqual(before);
  expect(time).toBeLessThanOrEqual(Date.now());
});

it("PING: config_version is given back as it came, byte for byte", async () => {
  for (const version of [
    "5",
    '"5"',
    "1.50",
    "18446744073709551615",
    '"caf\\u00e9"',
    "1e3",
    "null",
    "true",
    '{"a":[1, 2]}',
    "[1,{}]",
  ]) {
    const configCache = scratchFile();
    const broker = await LiteralBroker.open();
    const worker = start({ broker: broker.url, configCache });
    await broker.hear();
    await broker.sayText("CONFIG", `{"nested":{"config_version":1}, "config_version" : ${version},"config":"{}"}`);
    expect(await broker.hearText()).toContain(`"config_version":${version}}`);
    await broker.say("PONG");
    await worker.stop(0);
    // Also by a worker that has remembered it.
    start({ broker: broker.url, identity: "w2", configCache });
    const saved = `"configversion":${version},"config_version":${version},"services"`;
    await until("w2 has it", async () => (await broker.hearText()).includes(saved) && broker.peer === "w2");
    broker.close();
  }
});

it("PONG: the worker is registered when it comes, whatever it says", async () => {
  const broker = await LiteralBroker.open();
  const at: string[] = [];
  start({ broker: broker.url, onRegistered: (url) => at.push(url) });
  await broker.hear();
  await broker.say("CONFIG", { config_type: "JSON", config_version: 1 }, "{}");
  await broker.hearOf("PING");
  expect(at).toEqual([]);
  await broker.say("PONG", { time: 1, config_version: 9 });
  await until("it is registered", () => at.length === 1);
});

it("WORKREQUEST: asks to do some work; without a service, of the only one there is", async () => {
  const { broker } = await registered();
  await broker.say("WORKREQUEST", { work_request_indentifier: "c/1" }, "abc");
  expect((await broker.hearOf("WORKREPLY"))[2]).toBe("ABC");
  const both = await registered({ services: { ...upper, lower: () => "lower" } });
  await both.broker.say("WORKREQUEST", { work_request_indentifier: "c/1", service: "lower" }, "abc");
  expect((await both.broker.hearOf("WORKREPLY"))[2]).toBe("lower");
  await both.broker.say("WORKREQUEST", { work_request_indentifier: "c/2" }, "abc");
  expect((await both.broker.hearOf("WORKREPLY"))[1].error).toContain("does not offer");
});

it("WORKREQUEST: a fallback whose address is in the config is found when the broker is gone", async () => {
  const fallback = await LiteralBroker.open();
  const broker = await LiteralBroker.open();
  start({ broker: broker.url, connectTimeoutMs: 300 });
  const brokers = [freshEntry("east", broker.url), freshEntry("fallback", fallback.url)];
  await broker.welcome({ preferred_broker: brokers[0], brokers, heartbeat_interval: 60_000 });
  broker.close();
  expect(await fallback.hear()).toEqual([
    "NEEDBROKER",
    { identity: "w1", services: ["upper"], preferred_broker: "east" },
  ]);
  await fallback.say("CHANGEBROKER", { brokers: [freshEntry("fallback", fallback.url)] });
  await fallback.welcome();
});

it("WORKREQUEST: time and config_version may be anything", async () => {
  const { broker } = await registered();
  await broker.say("WORKREQUEST", { work_request_indentifier: "c/1", time: 1, config_version: "other" }, "abc");
  expect((await broker.hearOf("WORKREPLY"))[2]).toBe("ABC");
});

it("WORKREQUEST: work_request_indentifier is given back in the spelling that it came in", async () => {
  const { broker } = await registered();
  for (const identifier of [
    { work_request_indentifier: "c/1" },
    { work_request_identifier: "c/2" },
    { work_request_identifier: "c/3", work_request_indentifier: "c/3" },
  ]) {
    await broker.say("WORKREQUEST", { service: "upper", ...identifier }, "abc");
    expect(await broker.hearOf("WORKREPLY")).toEqual(["WORKREPLY", identifier, "ABC"]);
  }
  // A number keeps all its digits.
  const number = '{"work_request_identifier":18446744073709551615}';
  await broker.sayText("WORKREQUEST", number);
  await until("it is answered", async () => (await broker.hearText()) === number);
});

it("WORKREQUEST: body comes in frames or as the parameter", async () => {
  const { broker } = await registered({ services: { count: (body) => [String(body.length), ...body] } });
  await broker.say("WORKREQUEST", { work_request_indentifier: "1" }, "a", "", "b");
  expect((await broker.hearOf("WORKREPLY")).slice(2)).toEqual(["3", "a", "", "b"]);
  await broker.say("WORKREQUEST", { work_request_indentifier: "2", body: "text" });
  expect((await broker.hearOf("WORKREPLY")).slice(2)).toEqual(["1", "text"]);
});

it("WORKREPLY: an error of the work is a reply", async () => {
  const failing = () => {
    throw new Error("no luck");
  };
  const { broker } = await registered({ services: { failing } });
  await broker.say("WORKREQUEST", { work_request_indentifier: "c/1" }, "abc");
  expect(await broker.hearOf("WORKREPLY")).toEqual([
    "WORKREPLY",
    { work_request_indentifier: "c/1", error: "no luck" },
    "no luck",
  ]);
});

it("DISCONNECTERROR: code and message are the error with which the worker ends", async () => {
  for (const [code, expected] of [
    [400, "LABORO_BAD_MESSAGE"],
    [401, "LABORO_FORBIDDEN"],
    [409, "LABORO_BAD_INPUT"],
    [501, "LABORO_BAD_MESSAGE"],
  ] as const) {
    const { broker, worker } = await registered();
    await broker.say("DISCONNECTERROR", { code, message: "not you" });
    await expect(worker.ended).rejects.toMatchObject({ code: expected, message: `${code}: not you` });
  }
});

it("FORCENEGOTIATE: CONNECT follows, and not in a flood where it comes again and again", async () => {
  // A broker that is never content with the version.
  const broker = await LiteralBroker.open();
  const worker = start({ broker: broker.url, connectTimeoutMs: 300, retryMs: 50 });
  const answers: Record<string, () => Promise<void>> = {
    CONNECT: () => broker.say("CONFIG", { config_type: "JSON", config_version: 5 }, "{}"),
    PING: () => broker.say("FORCENEGOTIATE", { reason: "never content" }),
  };
  let messages = 0;
  const ended = worker.ended.then(
    () => "ended",
    (cause: { code: string; message: string }) => `${cause.code}: ${cause.message}`,
  );
  const listening = (async () => {
    for (;;) {
      await answers[(await broker.hear())[0]]?.();
      messages++;
    }
  })().catch(() => {});
  expect(await ended).toMatch(/^LABORO_BROKER_UNREACHABLE: .* did not register this worker in 300 ms/);
  broker.close();
  await listening;
  // CONNECT and PING at 0, 0, 50 and 150 ms.
  expect(messages).toBeGreaterThanOrEqual(4);
  expect(messages).toBeLessThanOrEqual(8);
});

it("CONNECTIONS: worker startup, broker down: it fails to start with an error", async () => {
  const url = await nowhere();
  await expect(start({ broker: url, connectTimeoutMs: 200 }).ended).rejects.toMatchObject({
    code: "LABORO_BROKER_UNREACHABLE",
    message: expect.stringContaining(url),
  });
  const silent = await LiteralBroker.open();
  await expect(start({ broker: silent.url, connectTimeoutMs: 200 }).ended).rejects.toMatchObject({
    code: "LABORO_BROKER_UNREACHABLE",
  });
});

it("CONNECTIONS: worker startup with a config that it has saved: the group is known by it", async () => {
  const configCache = scratchFile();
  const dead = freshEntry("dead", await nowhere());
  const east = await LiteralBroker.open();
  const west = await LiteralBroker.open();
  const first = start({ broker: west.url, configCache });
  await west.welcome({ preferred_broker: dead, brokers: [dead, freshEntry("east", east.url)] }, 4);
  await until("it is saved", () => readFileSync(configCache, "utf8").includes(dead.worker_uri));
  await first.stop(0);
  start({ configCache, connectTimeoutMs: 300 });
  expect(await east.hear()).toEqual(["NEEDBROKER", { identity: "w1", services: ["upper"], preferred_broker: "dead" }]);
  await east.say("CHANGEBROKER", { brokers: [freshEntry("west", west.url)] });
  expect((await west.hearOf("CONNECT"))[1]).toMatchObject({ configversion: 4 });
});

it("CONNECTIONS: worker startup, broker up: CONNECT, CONFIG, PING, PONG", async () => {
  const broker = await LiteralBroker.open();
  start({ broker: broker.url });
  expect((await broker.hear())[0]).toBe("CONNECT");
  await broker.say("CONFIG", { config_type: "JSON", config_version: 7 }, '{"heartbeat_interval":60000}');
  expect(await broker.hear()).toEqual([
    "PING",
    { heartbeat_interval: 60_000, time: expect.any(Number), config_version: 7 },
  ]);
  await broker.say("PONG", { time: Date.now(), config_version: 7 });
  await broker.say("WORKREQUEST", { work_request_indentifier: "c/1" }, "ready");
  expect((await broker.hearOf("WORKREPLY"))[2]).toBe("READY");
});
