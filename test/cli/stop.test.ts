import { existsSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { until } from "../support/wait.js";
import { openCliBroker } from "./support/cli.js";

describe("laboro stop", () => {
  it("lets a worker end", async () => {
    const setup = await openCliBroker();
    let stopped = false;
    setup.worker({
      name: "node17",
      onStopped: () => {
        stopped = true;
      },
    });
    await until("it has joined", async () => (await setup.client.workers()).length === 1);
    const { code, stdout } = await setup.laboro(["stop", "node17"], { process: true });
    expect([code, stdout]).toEqual([0, "worker node17 stops when its running tasks have ended: 0 tasks\n"]);
    await until("it has stopped", () => stopped);
  });

  it("--slots takes so many slots of a worker, which works on with the rest, also after a reconnect", async () => {
    const setup = await openCliBroker();
    const worker = setup.worker({ name: "node17", slots: 3 });
    const total = async () => (await setup.client.workers()).map(({ total: { slots } }) => slots);
    await until("it has joined", async () => (await setup.client.workers()).length === 1);
    const { code, stdout } = await setup.laboro(["stop", "node17", "--slots", "2"]);
    expect([code, stdout]).toEqual([0, "worker node17 removes 2 slots, each when it is free\n"]);
    await until("one slot is left", async () => (await total())[0] === 1);
    const job = await setup.client.submit({ recipe: { kind: "command", argv: ["true"] }, count: 3 });
    expect(await job.wait()).toBe("succeeded");
    setup.broker.core.portOf(worker.id)?.close("a test");
    const joins = async () =>
      (await setup.client.ask("events", { after: 0 })).events.filter(({ kind }) => kind === "worker-joined");
    await until("it has joined again", async () => (await joins()).length === 2);
    expect(await total()).toEqual([1]);
  });

  it("--slots of as many as it has, and --now, end the worker; what --now ends is run by others, at no cost", async () => {
    const setup = await openCliBroker();
    const stopped: string[] = [];
    setup.worker({ name: "small", slots: 2, onStopped: () => stopped.push("small") });
    await until("it has joined", async () => (await setup.client.workers()).length === 1);
    expect((await setup.laboro(["stop", "small", "--slots", "2"])).code).toBe(0);
    await until("it has stopped", () => stopped.includes("small"));
    setup.worker({ name: "busy", slots: 1, onStopped: () => stopped.push("busy") });
    const file = join(setup.dir, "begun");
    const argv = ["sh", "-c", `[ -e ${file} ] && exit 0; touch ${file}; exec sleep 1000`];
    const job = await setup.client.submit({ recipe: { kind: "command", argv }, crashLimit: 1 });
    await until("its task runs", () => existsSync(file));
    const { code, stdout } = await setup.laboro(["stop", "busy", "--now"]);
    expect([code, stdout]).toEqual([0, "worker busy stops now; other workers get its 1 task\n"]);
    await until("it has stopped", () => stopped.includes("busy"));
    setup.worker({ name: "other" });
    expect(await job.wait()).toBe("succeeded");
  });

  it("refuses --slots with --now", async () => {
    const setup = await openCliBroker();
    setup.worker({ name: "node17" });
    await until("it has joined", async () => (await setup.client.workers()).length === 1);
    const both = await setup.laboro(["stop", "node17", "--slots", "1", "--now"]);
    expect([both.code, both.stderr]).toEqual([2, "laboro: slots and now exclude each other (LABORO_BAD_INPUT)\n"]);
  });

  it("of two with one name asks which", async () => {
    const setup = await openCliBroker();
    for (let i = 0; i < 2; i++) setup.worker({ name: "twin" });
    await until("both have joined", async () => (await setup.client.workers()).length === 2);
    const { code, stderr } = await setup.laboro(["stop", "twin"]);
    expect(code).toBe(2);
    expect(stderr).toMatch(
      /^laboro: 2 workers have the name twin: give an id instead, one of \S+, \S+ \(LABORO_BAD_INPUT\)\n$/,
    );
  });
});
