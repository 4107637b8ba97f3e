/** A broker that is cut off from the store, for a moment or for so long that the others take it for dead. */
import { writeFileSync } from "node:fs";
import { describe, expect, it, vi } from "vitest";
import type { RunningBroker } from "../../../src/broker/options.js";
import { RunLog } from "../../support/batch.js";
import { TRUE } from "../../support/recipes.js";
import { until } from "../../support/wait.js";
import { joined, type Member, openGroup, PATIENCE_MS, seesAll } from "./kit.js";

const LEASE_MS = 1_500;

/** None while it closes and opens. */
function epochOf(broker: RunningBroker): number | undefined {
  try {
    return broker.core.state.epoch;
  } catch {
    return undefined;
  }
}

describe("a broker that is cut off from the store", () => {
  it("hands nothing out while it is, keeps its workers, and goes on by itself", async () => {
    const { members, world } = await openGroup(1, { leaseMs: LEASE_MS });
    const [a] = members as unknown as [Member];
    const worker = a.worker();
    await joined(worker);
    const job = await a.client.submit({ recipe: { kind: "command", argv: ["sleep", "0.5"] }, count: 8 });
    await until("some run", () => a.broker.core.state.workers.get(worker.id)?.assigned === 2, PATIENCE_MS);
    const { epoch } = a.broker.core.state;
    world.brokers.cutOff.add(epoch);
    await until("it halts", () => a.broker.core.state.halted, PATIENCE_MS);
    expect(a.broker.core.refusing).toMatchObject({ code: "LABORO_STORE_UNAVAILABLE" });
    expect(worker.joined).toBe(true);
    await expect(a.client.submit({ recipe: TRUE, count: 1 })).rejects.toMatchObject({
      code: "LABORO_STORE_UNAVAILABLE",
    });
    world.brokers.cutOff.delete(epoch);
    expect(await job.wait()).toBe("succeeded");
    expect(a.broker.core.state.epoch).toBe(epoch);
    for await (const { attempt } of job.results()) expect(attempt).toBe(1);
    const { events } = await a.client.ask("events", { after: 0 });
    const kinds = events.map(({ kind }) => kind);
    expect(kinds.indexOf("broker-halted")).toBeGreaterThan(0);
    expect(kinds.lastIndexOf("broker-resumed")).toBeGreaterThan(kinds.indexOf("broker-halted"));
  });

  it("for a moment only makes who asks wait a little, and refuses nobody", async () => {
    const { members, world } = await openGroup(1, { leaseMs: 10_000 });
    const [a] = members as unknown as [Member];
    const { epoch } = a.broker.core.state;
    world.brokers.cutOff.add(epoch);
    const commits = vi.spyOn(a.broker.core.store, "commit");
    const submitted = a.client.submit({ recipe: TRUE, count: 1 });
    await until("it was tried in vain, and again", () => commits.mock.calls.length >= 2, PATIENCE_MS);
    world.brokers.cutOff.delete(epoch);
    expect((await submitted).id).toBe(1);
  });

  it("until the others take over opens again, and what its workers run is not run again", async () => {
    const { members, world, dir } = await openGroup(2, { leaseMs: LEASE_MS });
    const [a, b] = members as unknown as [Member, Member];
    const worker = a.worker();
    await joined(worker);
    const log = new RunLog(`${dir}/runs`);
    const job = await a.client.submit({
      recipe: log.recipe(`while [ ! -e ${dir}/go ]; do sleep 0.05; done`),
      count: 4,
    });
    await until("two run", () => log.count >= 2, PATIENCE_MS);
    const { epoch } = a.broker.core.state;
    world.brokers.cutOff.add(epoch);
    await until("b has buried it", () => world.brokers.rows.get(epoch)?.dead === true, PATIENCE_MS);
    await until(
      "b waits for its worker",
      () => b.broker.core.state.workers.get(worker.id)?.assigned === 2,
      PATIENCE_MS,
    );
    world.brokers.cutOff.delete(epoch);
    await until("it has a new life", () => (epochOf(a.broker) ?? epoch) !== epoch, PATIENCE_MS);
    writeFileSync(`${dir}/go`, "");
    expect(await b.client.job(job.id).wait()).toBe("succeeded");
    for await (const { attempt } of b.client.job(job.id).results()) expect(attempt).toBe(1);
    expect(log.count).toBe(4);
    await seesAll(b.broker, 2);
    world.check();
  });
});

describe("a broker that stops in order", () => {
  it("leaves at once what waited there, and its workers go to another with what they run", async () => {
    const { members, dir, world } = await openGroup(2, { leaseMs: 60_000 });
    const [a, b] = members as unknown as [Member, Member];
    const worker = a.worker();
    await joined(worker);
    const log = new RunLog(`${dir}/runs`);
    const job = await a.client.submit({ recipe: log.recipe("sleep 1"), count: 6 });
    await until("two run", () => log.count >= 2, PATIENCE_MS);
    await a.broker.stop();
    expect(await b.client.job(job.id).wait()).toBe("succeeded");
    expect(b.broker.core.state.workers.get(worker.id)?.connected).toBe(true);
    for await (const { attempt } of b.client.job(job.id).results()) expect(attempt).toBe(1);
    expect(log.count).toBe(6);
    world.check();
  });
});
