/** Allocators in a group: one broker drives them, and another takes over. */
import { join } from "node:path";
import { expect, it } from "vitest";
import { allocationTag } from "../../../src/model/allocation.js";
import { TRUE } from "../../support/recipes.js";
import { SlurmStandIn } from "../../support/slurm-stand-in.js";
import { until } from "../../support/wait.js";
import { openGroup, PATIENCE_MS } from "./kit.js";

it("one broker asks, also for what another was given; another takes over, and nothing is asked for twice", async () => {
  const slurm = new SlurmStandIn();
  const rules = { pollMs: 100, unneededMs: 60_000 };
  const { dir, members } = await openGroup(2, { allocations: { rules } });
  const [a, b] = members as [(typeof members)[0], (typeof members)[0]];
  await b.client.allocators.set("short", {
    maxWorkers: 9,
    backlog: 9,
    timeLimitMs: 3_600_000,
    dir: join(dir, "files"),
  });
  const job = await b.client.submit({ recipe: TRUE, count: 3, pool: "default" });
  const asked = async () => (await a.client.allocators.get("short")).allocations.filter(({ id }) => id !== undefined);
  await until("three are in the queue", async () => (await asked()).length === 3, PATIENCE_MS);
  const [lease] = await a.broker.core.store.keyValues("lease");
  const { epoch } = JSON.parse(lease?.value ?? "{}") as { epoch: number };
  expect([a.broker.core.epoch, b.broker.core.epoch]).toContain(epoch);
  const [driver, other] = a.broker.core.epoch === epoch ? [a, b] : [b, a];
  await driver.broker.stop();
  slurm.set("1", "RUNNING");
  other.worker({ name: "short.1", tags: [allocationTag("short", 1)] });
  await until(
    "the other has seen it",
    async () => (await other.client.allocators.log("short")).some(({ kind }) => kind === "joined"),
    PATIENCE_MS,
  );
  expect(await other.client.job(job.id).wait({ timeoutMs: PATIENCE_MS })).toBe("succeeded");
  expect(slurm.calls("sbatch")).toHaveLength(3);
  await other.client.allocators.remove("short");
  await until(
    "the rest is cancelled",
    () => slurm.jobs.slice(1).every(({ state }) => state === "CANCELLED"),
    PATIENCE_MS,
  );
});
