/** A fallback: closed while another broker is there, open when none is, closed again at a word. */
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { RunningBroker } from "../../../src/broker/options.js";
import { connect } from "../../../src/entries/client.js";
import { startBroker } from "../../../src/server.js";
import { freePort } from "../../support/free-port.js";
import { until } from "../../support/wait.js";
import { atEnd, joined, type Member, openGroup, PATIENCE_MS, type TestGroup } from "./kit.js";

const LEASE_MS = 1_500;

interface Fallback {
  readonly broker: RunningBroker;
  readonly port: number;
  readonly told: string[];
}

async function standsBy({ dir, world }: TestGroup): Promise<Fallback> {
  const port = await freePort();
  const told: string[] = [];
  const broker = await startBroker({
    dir: join(dir, "fallback"),
    port,
    store: () => world.store(),
    leaseMs: LEASE_MS,
    fallback: true,
    onOpened: () => told.push("opened"),
    onStandby: () => told.push("standby"),
  });
  atEnd(() => broker.stop());
  return { broker, port, told };
}

const isOpen = async (port: number): Promise<boolean> =>
  fetch(`http://127.0.0.1:${port}/healthz`).then(
    ({ ok }) => ok,
    () => false,
  );

describe("a fallback", () => {
  it("stands by while there is another, opens when that is gone, and steps back at a word", async () => {
    const group = await openGroup(1, { leaseMs: LEASE_MS });
    const [a] = group.members as unknown as [Member];
    const { broker, port, told } = await standsBy(group);
    const states = async (client = a.client): Promise<string[]> =>
      (await client.ask("brokers", {})).brokers.map(({ state, fallback }) => `${state} ${fallback}`).sort();
    await until(
      "it is seen to stand by",
      async () => (await states()).join() === "open false,standby true",
      PATIENCE_MS,
    );
    expect(await isOpen(port)).toBe(false);
    expect(() => broker.url).toThrow("closed");
    const worker = a.worker();
    await joined(worker);
    await until(
      "the worker knows it",
      () => a.broker.core.group?.urls?.().at(-1) === `http://127.0.0.1:${port}`,
      PATIENCE_MS,
    );
    const job = await a.client.submit({ recipe: { kind: "command", argv: ["sleep", "4"] }, count: 2 });
    await until("two run", () => a.broker.core.state.workers.get(worker.id)?.assigned === 2, PATIENCE_MS);

    await a.broker.stop();
    await until("it opens", async () => told.at(-1) === "opened" && (await isOpen(port)), PATIENCE_MS);
    const client = await connect({ broker: broker.url, token: broker.token });
    atEnd(async () => client.close());
    await until("the worker comes", () => broker.core.state.workers.get(worker.id)?.connected, PATIENCE_MS);
    expect(await client.job(job.id).wait()).toBe("succeeded");
    for await (const { attempt } of client.job(job.id).results()) expect(attempt).toBe(1);
    const own = (await client.ask("brokers", {})).brokers[0]?.name ?? "";
    await expect(client.ask("stepBack", { broker: own })).rejects.toMatchObject({
      message: expect.stringContaining("only broker"),
    });

    const again = await group.join();
    await until(
      "both are open",
      async () => (await states(again.client)).join() === "open false,open true",
      PATIENCE_MS,
    );
    await again.client.ask("stepBack", { broker: own });
    await until("it is closed", async () => !(await isOpen(port)), PATIENCE_MS);
    await until("the worker is home", () => again.broker.core.state.workers.get(worker.id)?.connected, PATIENCE_MS);
    await until(
      "it stands by again",
      async () => (await states(again.client)).join() === "open false,standby true",
      PATIENCE_MS,
    );
    expect(told).toEqual(["standby", "opened", "standby"]);
  });

  it("that is the first to be started waits a moment for others, and opens", async () => {
    const group = await openGroup(0);
    const { port } = await standsBy(group);
    await until("it opens", () => isOpen(port), PATIENCE_MS);
  });
});
