import { describe, expect, it } from "vitest";
import { Scale0Client, type Scale0ClientOptions } from "../../../src/protocols/scale0/worker/client.js";
import { freePort } from "../../support/free-port.js";
import { answerOne, atEnd, openScale0, startedWorker } from "./kit.js";
import { freshEntry, LiteralBroker } from "./literal-broker.js";

const open = (options: Scale0ClientOptions) => {
  const client = new Scale0Client({ connectTimeoutMs: 15_000, marginMs: 300, ...options });
  atEnd(() => client.close());
  return client;
};

const text = (frames: readonly Uint8Array[]): string[] => frames.map((frame) => Buffer.from(frame).toString());

describe("a Scale0 client", () => {
  it("says WORKREQUEST, and takes answers in any order", async () => {
    const broker = await LiteralBroker.open();
    const client = open({ broker: broker.url, identity: "c1" });
    const first = client.request("echo", "one");
    expect(await broker.hear()).toEqual(["WORKREQUEST", { service: "echo", message_id: 1, timeout: 30_000 }, "one"]);
    expect(broker.peer).toBe("c1");
    const second = client.request("echo", ["two", Buffer.from("three")], { retry: true, timeoutMs: 5_000 });
    expect(await broker.hear()).toEqual([
      "WORKREQUEST",
      { service: "echo", message_id: 2, timeout: 5_000, retry: true },
      "two",
      "three",
    ]);
    await broker.say("WORKREPLY", { message_id: 9 }, "nobody's");
    await broker.say("TASKREPLY", { message_id: 2 }, "b", "c");
    await broker.say("WORKREPLY", { message_id: 1 }, "a");
    expect([text(await first), text(await second)]).toEqual([["a"], ["b", "c"]]);
  });

  it("is refused single requests, by what the code says", async () => {
    const broker = await LiteralBroker.open();
    const client = open({ broker: broker.url });
    for (const [status, code] of [
      [504, "LABORO_DEADLINE"],
      [503, "LABORO_QUEUE_FULL"],
      [400, "LABORO_BAD_MESSAGE"],
    ] as const) {
      const asked = client.request("echo", "x");
      const refused = expect(asked).rejects.toMatchObject({ code, message: `${status}: why` });
      const [, { message_id }] = await broker.hear();
      await broker.say(status === 400 ? "ERROR" : "DISCONNECTERROR", { code: status, message: "why", message_id });
      await refused;
    }
    const inline = client.request("echo", "x");
    await broker.say("WORKREPLY", { message_id: (await broker.hear())[1].message_id, body: "among them" });
    expect(text(await inline)).toEqual(["among them"]);
    const failing = client.request("echo", "x");
    const failed = expect(failing).rejects.toMatchObject({ code: "LABORO_SERVICE_FAILED", message: "no luck" });
    await broker.say("WORKREPLY", { message_id: (await broker.hear())[1].message_id, error: "E" }, "no luck");
    await failed;
    const late = expect(client.request("echo", "x", { timeoutMs: 1 })).rejects.toMatchObject({
      code: "LABORO_DEADLINE",
    });
    await late;
  });

  it("asks again elsewhere what a broker that is drained did not take", async () => {
    const east = await LiteralBroker.open();
    const west = await LiteralBroker.open();
    const client = open({ broker: east.url });
    const taken = client.request("echo", "taken");
    const kept = (await east.hear())[1].message_id;
    const asked = client.request("echo", "x");
    const [, { message_id }] = await east.hear();
    await east.say("DISCONNECTERROR", { code: 301, message: "moved", message_id });
    await east.say("CHANGEBROKER", { brokers: [freshEntry("west", west.url)] });
    expect(await west.hear()).toEqual(["WORKREQUEST", { service: "echo", message_id, timeout: 30_000 }, "x"]);
    await west.say("WORKREPLY", { message_id }, "from the west");
    expect(text(await asked)).toEqual(["from the west"]);
    await east.say("WORKREPLY", { message_id: kept }, "from the east");
    expect(text(await taken)).toEqual(["from the east"]);
    expect(client.broker).toBe(west.url);
  });

  it("pauses where two brokers send it to each other", async () => {
    const east = await LiteralBroker.open();
    const west = await LiteralBroker.open();
    const times: number[] = [];
    const refuse = async (broker: LiteralBroker, other: string): Promise<void> => {
      for (;;) {
        const [, { message_id }] = await broker.hear();
        times.push(performance.now());
        await broker.say("DISCONNECTERROR", { code: 301, message: "moved", message_id });
        await broker.say("CHANGEBROKER", { brokers: [freshEntry("other", other)] });
      }
    };
    const over = Promise.allSettled([refuse(east, west.url), refuse(west, east.url)]);
    const client = open({ broker: east.url, retryMs: 50 });
    const asked = client.request("echo", "x", { timeoutMs: 100 });
    await expect(asked).rejects.toMatchObject({ code: "LABORO_DEADLINE" });
    // At 0, 0, 50, 150 and 350 ms.
    expect(times.length).toBeGreaterThan(1);
    expect(times.length).toBeLessThan(6);
    await client.close();
    east.close();
    west.close();
    await over;
  });

  it("whose broker is down asks the others with NEEDBROKER, and says so where none answers", async () => {
    const dead = `tcp://127.0.0.1:${await freePort()}`;
    const east = await LiteralBroker.open();
    const west = await LiteralBroker.open();
    const client = open({ broker: dead, others: [east.url], connectTimeoutMs: 300 });
    const asked = client.request("echo", "x");
    expect((await east.hear())[0]).toBe("NEEDBROKER");
    await east.say("CHANGEBROKER", { brokers: [freshEntry("west", west.url)] });
    await west.say("WORKREPLY", { message_id: (await west.hear())[1].message_id }, "y");
    expect(text(await asked)).toEqual(["y"]);
    await expect(open({ broker: dead, connectTimeoutMs: 200 }).request("echo", "x")).rejects.toMatchObject({
      code: "LABORO_BROKER_UNREACHABLE",
      message: expect.stringContaining(dead),
    });
  });

  it("refuses what was asked of a broker that is gone, and reaches the next by itself", async () => {
    const ports = [await freePort(), await freePort(), await freePort()];
    const listeners = [{ name: "scale0" as const, host: "127.0.0.1", ports }];
    const first = await openScale0({ listeners });
    const client = open({ broker: first.clients });
    const asked = client.request("echo", "x");
    const refused = expect(asked).rejects.toMatchObject({
      code: expect.stringMatching(/LABORO_(QUEUE_FULL|BROKER_GONE)/),
    });
    const worker = await startedWorker(first, "w1");
    await worker.hear();
    await first.stop();
    await refused;
    worker.close();
    const second = await openScale0({ dir: first.dir, listeners });
    const again = await startedWorker(second, "w1");
    const answered = client.request("echo", "y");
    await answerOne(again);
    expect(text(await answered)).toEqual(["y"]);
  });
});
