import { describe, expect, it } from "vitest";
import { until } from "../../support/wait.js";
import { dealer, openScale0, req, router, subscriber } from "./kit.js";

describe("the prototype's dialect", () => {
  it("is READY and OK, PING each second and back, HEARTBEAT and its echo, with work between them", async () => {
    const setup = await openScale0();
    const listening = subscriber(setup.published, "proto1", "PING");
    const [topic, time] = await listening.receive();
    expect([topic?.toString(), time?.toString()]).toEqual(["PING", expect.stringMatching(/^\d{13}$/)]);
    const worker = dealer(setup.workers, "proto1");
    await worker.sayFrames("READY", "upper, lower");
    const heard = async (word: string): Promise<string[]> => {
      for (;;) {
        const frames = (await listening.receive()).map(String);
        if (frames[0] === word || frames[1] === word) return frames;
      }
    };
    expect(await heard("OK")).toEqual(["proto1", "OK"]);
    const [found] = await setup.client.workers();
    expect(found).toMatchObject({ name: "proto1", services: ["upper", "lower"], free: { slots: 1 } });
    await worker.sayFrames("HEARTBEAT", "17.5");
    expect(await heard("HEARTBEAT")).toEqual(["proto1", "HEARTBEAT", "17.5"]);

    const asked = setup.client.request("upper", Buffer.from("a"));
    const [command, { work_request_identifier }, body] = await worker.hear();
    expect([command, body]).toEqual(["WORKREQUEST", "a"]);
    await worker.say("WORKREPLY", { work_request_identifier }, "A");
    expect((await asked).toString()).toBe("A");
    const again = setup.client.request("lower", Buffer.from("B"));
    await worker.sayFrames("PING", (await heard("PING"))[1] ?? "");
    expect((await worker.hear())[2]).toBe("B");
    again.catch(() => {});
  });

  it("loses a worker that answers no PING for three seconds, without a word", async () => {
    const setup = await openScale0();
    const worker = dealer(setup.workers, "proto1");
    await worker.sayFrames("READY", "upper");
    await until("it is known", async () => (await setup.client.workers()).length === 1);
    await until("it is gone", async () => (await setup.client.workers()).length === 0);
    expect(await worker.silent(50)).toBe(true);
    // It says READY once in its life: any other word of it brings it back.
    await worker.sayFrames("PING", "1");
    await until("it is known again", async () => (await setup.client.workers()).length === 1);
    expect((await setup.client.workers())[0]).toMatchObject({ services: ["upper"] });
  });

  it("knows nothing of a worker that never said READY, or said it in JSON", async () => {
    const setup = await openScale0();
    const listening = subscriber(setup.published, "proto1", "PING");
    // Its subscription is known here now.
    await listening.receive();
    const worker = dealer(setup.workers, "proto1");
    await worker.sayFrames("HEARTBEAT", "17.5");
    let published = await listening.receive();
    while (String(published[0]) === "PING") published = await listening.receive();
    expect(published.map(String)).toEqual(["proto1", "HEARTBEAT", "17.5"]);
    expect((await worker.hearFrames()).map(String)).toEqual(["HEARTBEAT", "17.5"]);
    await worker.sayFrames("READY", '{"services":["upper"]}');
    expect(await worker.hear()).toEqual(["DISCONNECTERROR", { code: 501, message: 'unknown command: "READY"' }]);
    expect(await setup.client.workers()).toEqual([]);
  });

  it("answers a worker that says where it listens directly, and PINGs it there", async () => {
    const setup = await openScale0();
    const listener = await router();
    const worker = dealer(setup.workers, "broker-1");
    await worker.sayFrames("READY", `${listener.url} test,other`);
    expect((await worker.hearFrames()).map(String)).toEqual(["OK", ""]);
    expect(await setup.client.workers()).toMatchObject([{ name: "broker-1", services: ["test", "other"] }]);
    await worker.sayFrames("HEARTBEAT", "1794803112.11");
    expect((await worker.hearFrames()).map(String)).toEqual(["HEARTBEAT", "1794803112.11"]);
    // For longer than silence is borne: PONG is a sign of life.
    for (let i = 0; i < 5; i++) {
      const [, ping, time] = await listener.hear();
      expect([ping, time]).toEqual(["PING", expect.stringMatching(/^\d{13}$/)]);
      await worker.sayFrames("PONG", time ?? "");
    }
    expect(await setup.client.workers()).toMatchObject([{ name: "broker-1", free: { slots: 1 } }]);
    const asked = setup.client.request("test", Buffer.from("a"));
    const [command, { work_request_identifier }] = await worker.hear();
    expect(command).toBe("WORKREQUEST");
    await worker.say("WORKREPLY", { work_request_identifier }, "A");
    expect((await asked).toString()).toBe("A");
  });

  it("has older forms, which are not answered", async () => {
    const setup = await openScale0();
    const older = dealer(setup.workers, "old1");
    await older.sayFrames("PING", "tcp://127.0.0.1:9080 test 1300000000");
    const oldest = req(setup.workers, "old2");
    await oldest.sayFrames("PING", "test 1300000000");
    expect([await older.silent(200), await oldest.silent(1)]).toEqual([true, true]);
    expect(await setup.client.workers()).toEqual([]);
  });

  it.each(["tcp://192.0.2.1:9", "tcp://127.example:9", "ipc:///var/tmp/x"])(
    "lets in a worker that listens at %s, and connects to no machine but its own",
    async (place) => {
      const setup = await openScale0();
      const worker = dealer(setup.workers, "broker-1");
      await worker.sayFrames("READY", `${place} test`);
      expect((await worker.hearFrames()).map(String)).toEqual(["OK", ""]);
      await worker.sayFrames("HEARTBEAT", "1");
      expect((await worker.hearFrames()).map(String)).toEqual(["HEARTBEAT", "1"]);
      expect(await setup.client.workers()).toMatchObject([{ services: ["test"] }]);
    },
  );
});
