import { describe, expect, it } from "vitest";
import { dealer, openScale0, startedWorker } from "./kit.js";

describe("a change of the config", () => {
  it("reaches every connected worker unasked, in its format", async () => {
    const setup = await openScale0();
    const workers = [
      await startedWorker(setup, "json"),
      await startedWorker(setup, "xml", { more: { config_type: "XML" } }),
      await startedWorker(setup, "zfl", { more: { config_type: "ZFL" } }),
    ];
    await setup.client.ask("configSet", {
      settings: { motd: "hello", workers: { zfl: { motd: "hello, zfl" } }, pools: { other: { motd: "no" } } },
    });
    const told = await Promise.all(workers.map((worker) => worker.hear()));
    expect(told.map(([command, { config_type, config_version }]) => [command, config_type, config_version])).toEqual([
      ["CONFIG", "JSON", 1],
      ["CONFIG", "XML", 1],
      ["CONFIG", "ZFL", 1],
    ]);
    expect(JSON.parse(told[0]?.[2] ?? "")).toMatchObject({ motd: "hello", identity: "json" });
    expect(told[1]?.[2]).toContain("<motd>hello</motd>");
    expect(told[2]?.[2]).toContain('motd = "hello, zfl"');
    expect(told.map(([, , text]) => /pools|workers>|other/.test(text ?? ""))).toEqual([false, false, false]);
  });

  it("makes one that did not listen negotiate; what it has it may answer meanwhile", async () => {
    const setup = await openScale0();
    const worker = await startedWorker(setup, "w1");
    const client = dealer(setup.clients, "c1");
    await client.say("WORKREQUEST", { service: "echo", message_id: 1 });
    const [, { work_request_identifier }] = await worker.hear();
    await setup.client.ask("configSet", { settings: { a: 1 } });
    expect((await worker.hear())[0]).toBe("CONFIG");
    expect((await worker.ask("PING", { config_version: 0 }))[0]).toBe("FORCENEGOTIATE");
    await worker.say("WORKREPLY", { work_request_identifier }, "done");
    expect(await client.hear()).toEqual(["WORKREPLY", { message_id: 1 }, "done"]);
    expect((await worker.ask("CONNECT", { services: ["echo"] }))[1]).toMatchObject({ config_version: 1 });
    expect((await worker.ask("PING", { config_version: 1 }))[0]).toBe("PONG");
    await client.say("WORKREQUEST", { service: "echo", message_id: 2 });
    expect((await worker.hear())[1]).toMatchObject({ config_version: 1, message_id: 2 });
  });

  it("may say what a worker serves that says nothing itself", async () => {
    const setup = await openScale0();
    await setup.client.ask("configSet", { settings: { workers: { w1: { services: ["upper"] } } } });
    const worker = dealer(setup.workers, "w1");
    const [, , text] = await worker.ask("CONNECT", {});
    expect(JSON.parse(text ?? "")).toMatchObject({ services: ["upper"] });
    await worker.ask("PING", { config_version: 1 });
    expect((await setup.client.workers())[0]?.services).toEqual(["upper"]);
    await setup.client.ask("configSet", { settings: { services: ["lower"] } });
    expect(JSON.parse((await worker.hear())[2] ?? "")).toMatchObject({ services: ["lower"] });
    expect((await setup.client.workers())[0]?.services).toEqual(["lower"]);
  });

  it("outlives the broker, with its number", async () => {
    const first = await openScale0();
    await first.client.ask("configSet", { settings: { motd: "one" } });
    await first.client.ask("configSet", { settings: { motd: "two" } });
    await first.stop();
    const second = await openScale0({ dir: first.dir });
    const [, { config_version }, text] = await dealer(second.workers, "w1").ask("CONNECT", {});
    expect([config_version, JSON.parse(text ?? "").motd]).toEqual([2, "two"]);
    expect((await second.client.ask("configHistory", {})).versions.map(({ settings }) => settings)).toEqual([
      { motd: "two" },
      { motd: "one" },
    ]);
  });
});
