import { describe, expect, it } from "vitest";
import { until } from "../../support/wait.js";
import { dealer, openScale0, subscriber } from "./kit.js";

describe("the prototype's dialect", () => {
  it("is READY and OK, PING each second and back, HEARTBEAT and its echo, with work between them", async () => {
    const shop = await openScale0();
    const listening = subscriber(shop.published, "proto1", "PING");
    const [topic, time] = await listening.receive();
    expect([topic?.toString(), time?.toString()]).toEqual(["PING", expect.stringMatching(/^\d{13}$/)]);
    const worker = dealer(shop.workers, "proto1");
    await worker.sayFrames("READY", "upper, lower");
    const heard = async (word: string): Promise<string[]> => {
      for (;;) {
        const frames = (await listening.receive()).map(String);
        if (frames[0] === word || frames[1] === word) return frames;
      }
    };
    expect(await heard("OK")).toEqual(["proto1", "OK"]);
    const [found] = await shop.client.workers();
    expect(found).toMatchObject({ name: "proto1", services: ["upper", "lower"], free: { slots: 1 } });
    await worker.sayFrames("HEARTBEAT", "17.5");
    expect(await heard("HEARTBEAT")).toEqual(["proto1", "HEARTBEAT", "17.5"]);

    const asked = shop.client.request("upper", Buffer.from("a"));
    const [command, { work_request_identifier }, body] = await worker.hear();
    expect([command, body]).toEqual(["WORKREQUEST", "a"]);
    await worker.say("WORKREPLY", { work_request_identifier }, "A");
    expect((await asked).toString()).toBe("A");
    const again = shop.client.request("lower", Buffer.from("B"));
    await worker.sayFrames("PING", (await heard("PING"))[1] ?? "");
    expect((await worker.hear())[2]).toBe("B");
    again.catch(() => {});
  });

  it("loses a worker that answers no PING for three seconds, without a word", async () => {
    const shop = await openScale0();
    const worker = dealer(shop.workers, "proto1");
    await worker.sayFrames("READY", "upper");
    await until("it is known", async () => (await shop.client.workers()).length === 1);
    await until("it is gone", async () => (await shop.client.workers()).length === 0);
    expect(await worker.silent(50)).toBe(true);
    // And nothing comes of what it says then, but READY.
    await worker.sayFrames("PING", "1");
    await worker.sayFrames("READY", "upper");
    await until("it is known again", async () => (await shop.client.workers()).length === 1);
  });
});
