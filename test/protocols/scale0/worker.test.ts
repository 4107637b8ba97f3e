import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { SILENT } from "../../../src/base/log.js";
import {
  type Scale0Worker,
  type Scale0WorkerOptions,
  startScale0Worker,
} from "../../../src/protocols/scale0/worker/worker.js";
import { startBroker } from "../../../src/server.js";
import { openGroup } from "../../broker/group/kit.js";
import { freePort } from "../../support/free-port.js";
import { sleep, until } from "../../support/wait.js";
import { atEnd, dealer, openScale0 } from "./kit.js";
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

function scratch(): string {
  const dir = mkdtempSync(join(tmpdir(), "laboro-scale0-"));
  atEnd(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

describe("a Scale0 worker", () => {
  it.each([
    [1e12, 3_600_000],
    [0.01, 50],
  ])(
    "sends heartbeats in a time that a timer can wait, with an interval of %d ms in the config",
    async (given, used) => {
      const broker = await LiteralBroker.open();
      start({ broker: broker.url });
      await broker.hearOf("CONNECT");
      const config = { heartbeat_interval: given };
      await broker.say("CONFIG", { config_type: "JSON", config_version: 1 }, JSON.stringify(config));
      expect(await broker.hear()).toMatchObject(["PING", { heartbeat_interval: used }]);
      await broker.say("PONG", {});
      await broker.say("WORKREQUEST", { service: "upper", work_request_identifier: 1 }, "a");
      expect(await broker.hearOf("WORKREPLY")).toEqual(["WORKREPLY", { work_request_identifier: 1 }, "A"]);
    },
  );

  it("answers in the word that it was asked in", async () => {
    const broker = await LiteralBroker.open();
    start({ broker: broker.url, slots: 1 });
    await broker.welcome({ heartbeat_interval: 60_000 });
    for (const [asked, replied] of [
      ["WORKREQUEST", "WORKREPLY"],
      ["TASK", "TASKREPLY"],
    ] as const) {
      await broker.say(asked, { service: "upper", work_request_identifier: "c/1" }, "abc");
      expect(await broker.hearOf(replied)).toEqual([replied, { work_request_identifier: "c/1" }, "ABC"]);
      expect((await broker.hear())[0]).toBe("PING");
    }
    await broker.say("TASK", { service: "lower", work_request_identifier: "c/2" });
    expect(await broker.hearOf("TASKREPLY")).toEqual([
      "TASKREPLY",
      { work_request_identifier: "c/2", error: "this worker does not offer lower" },
      "this worker does not offer lower",
    ]);
  });

  it("CONNECTs again when it is forced to, when its heartbeat was missed, and when its version differs", async () => {
    const broker = await LiteralBroker.open();
    start({ broker: broker.url });
    await broker.welcome({ heartbeat_interval: 60_000 });
    await broker.say("FORCENEGOTIATE", { reason: "for fun" });
    await broker.welcome({ heartbeat_interval: 60_000 }, 2);
    for (const code of [408, 426, 503]) {
      await broker.say("DISCONNECTERROR", { code, message: "no" });
      expect((await broker.hear())[1]).toMatchObject({ config_version: 2, services: ["upper"] });
      await broker.say("CONFIG", { config_type: "JSON", config_version: 2 }, "{}");
      await broker.hearOf("PING");
      await broker.say("PONG");
    }
  });

  it("takes id, body and ERROR from a broker that speaks as the later notes do", async () => {
    const broker = await LiteralBroker.open();
    const worker = start({ broker: broker.url });
    await broker.welcome({ heartbeat_interval: 60_000 });
    await broker.say("TASK", { service: "upper", id: "c/1", body: "abc" });
    expect(await broker.hearOf("TASKREPLY")).toEqual(["TASKREPLY", { id: "c/1" }, "ABC"]);
    await broker.say("ERROR", { code: 401, message: "not you" });
    await expect(worker.ended).rejects.toMatchObject({ code: "LABORO_FORBIDDEN", message: "401: not you" });
  });

  it("ends in peace with 444", async () => {
    const broker = await LiteralBroker.open();
    const worker = start({ broker: broker.url });
    await broker.welcome();
    await broker.say("DISCONNECTERROR", { code: 444, message: "enough" });
    await expect(worker.ended).resolves.toBeUndefined();
  });

  it("goes on where it was told to keep trying", async () => {
    const port = await freePort();
    const warned: string[] = [];
    const log = { ...SILENT, warn: (_fields: object, text: string) => void warned.push(text) };
    const worker = start({ broker: `tcp://127.0.0.1:${port}`, connectTimeoutMs: 200, keepTrying: true, log });
    await until("it has found nobody", () => warned.some((text) => text.includes("no broker, retrying")));
    const setup = await openScale0({ listeners: [{ name: "scale0", host: "127.0.0.1", ports: [0, port, 0] }] });
    await until("it is there", async () => (await setup.client.workers()).length === 1);
    await worker.stop();
    await expect(worker.ended).resolves.toBeUndefined();
  });

  it("does not begin with a remembered config that cannot be read", async () => {
    const file = join(scratch(), "remembered.json");
    writeFileSync(file, "{");
    expect(() => start({ configCache: file })).toThrow(expect.objectContaining({ code: "LABORO_DATA_CORRUPT" }));
    expect(() => start({})).toThrow(expect.objectContaining({ code: "LABORO_BAD_INPUT" }));
  });

  it("goes where CHANGEBROKER sends it, and answers what it has where it was asked", async () => {
    const east = await LiteralBroker.open();
    const west = await LiteralBroker.open();
    let answer: (text: string) => void = () => {};
    const slow = { slow: () => new Promise<string>((resolve) => (answer = resolve)) };
    start({ broker: east.url, services: slow });
    await east.welcome({ heartbeat_interval: 60_000 });
    await east.say("WORKREQUEST", { service: "slow", work_request_identifier: "a" }, "x");
    await east.say("CHANGEBROKER", { brokers: [freshEntry("west", west.url)] });
    await west.welcome({ heartbeat_interval: 60_000 });
    answer("late");
    expect(await east.hearOf("WORKREPLY")).toEqual(["WORKREPLY", { work_request_identifier: "a" }, "late"]);
    await west.say("WORKREQUEST", { service: "slow", work_request_identifier: "b" });
    await until("it has it", () => {
      answer("new");
      return true;
    });
    const replied = west.hearOf("WORKREPLY");
    const timer = setInterval(() => answer("new"), 20);
    expect((await replied)[1]).toEqual({ work_request_identifier: "b" });
    clearInterval(timer);
  });

  it("pauses where two brokers send it to each other", async () => {
    const east = await LiteralBroker.open();
    const west = await LiteralBroker.open();
    let messages = 0;
    /** Registers it, and sends it away at once. */
    const send = async (broker: LiteralBroker, url: string): Promise<void> => {
      for (;;) {
        const [command] = await broker.hear();
        messages++;
        if (command === "CONNECT") await broker.say("CONFIG", { config_type: "JSON", config_version: 1 }, "{}");
        if (command === "PING") {
          await broker.say("PONG");
          await broker.say("CHANGEBROKER", { brokers: [freshEntry("other", url)] });
        }
      }
    };
    const over = Promise.allSettled([send(east, west.url), send(west, east.url)]);
    const worker = start({ broker: east.url, retryMs: 50 });
    await until("it has come a few times", () => messages >= 6);
    const since = performance.now();
    const before = messages;
    await until("it has come twice more", () => messages >= before + 4);
    // Two messages a visit, each later than the one before: 50, 100, 200 ms...
    expect(performance.now() - since).toBeGreaterThan(90);
    await worker.stop(0);
    east.close();
    west.close();
    await over;
  });

  it("does not answer each CONFIG with a PING, where a broker answers each PING with a CONFIG", async () => {
    const broker = await LiteralBroker.open();
    start({ broker: broker.url });
    await broker.welcome({ heartbeat_interval: 100 });
    let { time } = (await broker.hear())[1];
    for (let version = 2; version < 5; version++) {
      await broker.say("CONFIG", { config_type: "JSON", config_version: version }, '{"heartbeat_interval":100}');
      // On a busy machine a PING may have been on its way.
      for (let known: unknown; known !== version; ) {
        const [command, ping] = await broker.hear();
        expect(command).toBe("PING");
        expect(Number(ping.time) - Number(time)).toBeGreaterThan(50);
        ({ time, config_version: known } = ping);
      }
    }
  });

  it("refuses to be redirected for ever at its start", async () => {
    const broker = await LiteralBroker.open();
    let visits = 0;
    const over = (async () => {
      for (;;) {
        await broker.hearOf("CONNECT");
        visits++;
        await broker.say("CHANGEBROKER", { brokers: [freshEntry("a", broker.url), freshEntry("b", broker.url)] });
      }
    })().catch(() => {});
    const worker = start({ broker: broker.url, retryMs: 1 });
    await expect(worker.ended).rejects.toMatchObject({
      code: "LABORO_BROKER_UNREACHABLE",
      message: expect.stringContaining("redirected 5 times"),
    });
    expect(visits).toBeLessThan(20);
    broker.close();
    await over;
  });

  it("waits for CHANGEBROKER after 301, and asks for it where none comes", async () => {
    const east = await LiteralBroker.open();
    const west = await LiteralBroker.open();
    start({ broker: east.url });
    await east.welcome({ heartbeat_interval: 60_000 });
    await east.say("DISCONNECTERROR", { code: 301, message: "moved" });
    expect((await east.hear())[0]).toBe("NEEDBROKER");
    await east.say("CHANGEBROKER", { brokers: [freshEntry("west", west.url)] });
    await west.welcome();
    // At the start, too.
    const third = start({ broker: east.url, identity: "w2" });
    await east.hearOf("CONNECT");
    await east.say("DISCONNECTERROR", { code: 301, message: "moved" });
    await east.say("CHANGEBROKER", { brokers: [freshEntry("west", west.url)] });
    await west.welcome();
    expect(third.identity).toBe("w2");
  });

  it("leaves nothing behind when it is stopped: it is out of the queue first, and answers what it has", async () => {
    const setup = await openScale0();
    let answer: (text: string) => void = () => {};
    const slow = { slow: () => new Promise<string>((resolve) => (answer = resolve)) };
    const worker = start({ broker: setup.workers, services: slow, slots: 2 });
    await until("it is there", async () => (await setup.client.workers())[0]?.total.slots === 1);
    const first = setup.client.request("slow", Buffer.from("1"));
    await until("it has one", async () => (await setup.client.workers())[0]?.requests === 1);
    const stopped = worker.stop(20_000);
    await until("it takes no more", async () => (await setup.client.workers())[0]?.total.slots === 1);
    const second = setup.client.request("slow", Buffer.from("2"), { timeoutMs: 200 });
    answer("done");
    expect((await first).toString()).toBe("done");
    await stopped;
    await expect(second).rejects.toMatchObject({
      code: "LABORO_DEADLINE",
      message: expect.stringContaining("no worker"),
    });
  });

  it("does as many at once as it has slots", async () => {
    const setup = await openScale0();
    let most = 0;
    let busy = 0;
    const services = {
      nap: async () => {
        most = Math.max(most, ++busy);
        await sleep(50);
        busy--;
        return "";
      },
    };
    start({ broker: setup.workers, services, slots: 3 });
    await Promise.all(Array.from({ length: 12 }, () => setup.client.request("nap")));
    expect(most).toBe(3);
  });
});

describe("when the broker is gone", () => {
  it("its workers and clients fall back on another, and requests go on", async () => {
    const east = await openScale0();
    const west = await openScale0();
    const brokers = [{ identity: "west", worker_uri: west.workers, client_uri: west.clients }];
    await east.client.ask("configSet", { settings: { brokers, heartbeat_interval: 200 } });
    const registered: string[] = [];
    start({ broker: east.workers, connectTimeoutMs: 1_000, onRegistered: (url) => registered.push(url) });
    await until("it is at the first", () => registered.length === 1);
    expect((await east.client.request("upper", Buffer.from("a"))).toString()).toBe("A");
    await east.stop();
    await until("it is at the second", () => registered.at(-1) === west.workers);
    expect((await west.client.request("upper", Buffer.from("b"))).toString()).toBe("B");
    const client = dealer(west.clients, "c1");
    expect((await client.ask("WORKREQUEST", { service: "upper", message_id: 1 }, "c"))[2]).toBe("C");
  });

  it("and comes back, its workers are there again by themselves", async () => {
    const ports = [await freePort(), await freePort(), await freePort()];
    const listeners = [{ name: "scale0" as const, host: "127.0.0.1", ports }];
    const first = await openScale0({ listeners });
    await first.client.ask("configSet", { settings: { heartbeat_interval: 100 } });
    start({ broker: first.workers, connectTimeoutMs: 1_000 });
    await until("it is there", async () => (await first.client.workers()).length === 1);
    await first.stop();
    const second = await openScale0({ dir: first.dir, listeners });
    expect((await second.client.request("upper", Buffer.from("a"))).toString()).toBe("A");
  });

  it("a fallback that stands by gets its workers when it opens", async () => {
    const scale0 = async () => [
      { name: "scale0" as const, host: "127.0.0.1", ports: [await freePort(), await freePort(), await freePort()] },
    ];
    const leaseMs = 1_500;
    const group = await openGroup(1, { leaseMs, listeners: await scale0() });
    const [member] = group.members;
    await member?.client.ask("configSet", { settings: { heartbeat_interval: 100 } });
    const [, broker = ""] = member?.broker.listeners[0]?.urls ?? [];
    const worker = start({ broker, connectTimeoutMs: 300 });
    await until("it is at the first", async () => (await member?.client.workers())?.length === 1);
    const listeners = await scale0();
    const options = { dir: join(group.dir, "fallback"), port: 0, listeners, leaseMs, fallback: true };
    const fallback = await startBroker({ ...options, store: () => group.world.store() });
    atEnd(() => fallback.stop());
    await until("it knows the fallback", () => (worker.config.brokers as unknown[] | undefined)?.length === 2);
    await member?.broker.stop();
    const client = dealer(`tcp://127.0.0.1:${listeners[0]?.ports[0]}`, "c1");
    expect((await client.ask("WORKREQUEST", { service: "upper", message_id: 1 }, "abc"))[2]).toBe("ABC");
  });
});
