import { describe, expect, it } from "vitest";
import { TRUE } from "../support/recipes.js";
import { until } from "../support/wait.js";
import { openCliBroker } from "./support/cli.js";

describe("laboro pause", () => {
  it("keeps a pool's tasks from starting until laboro resume, and says so everywhere", async () => {
    const setup = await openCliBroker();
    const worker = setup.worker({ name: "node17", pool: "gpu" });
    await until("it has joined", () => worker.joined);
    const pause = await setup.laboro(["pause", "--pool", "gpu", "--reason", "new driver"], { process: true });
    expect(pause).toEqual({
      code: 0,
      stdout: "pool gpu is paused; laboro resume --pool gpu continues it\n",
      stderr: "",
    });
    const job = await setup.client.submit({ recipe: TRUE, pool: "gpu" });
    expect((await setup.laboro(["explain", "1.1"])).stdout).toContain("its pool gpu is paused: new driver");
    expect((await setup.laboro(["status"])).stdout).toMatch(/pool gpu was paused .*ago: new driver/);
    expect((await setup.laboro(["status", "1"])).stdout).toContain("laboro resume --pool gpu continues it");
    expect((await setup.laboro(["workers", "--json"])).stdout).toContain("its pool is paused: new driver");
    expect((await setup.laboro(["resume", "--pool", "gpu"])).stdout).toBe("pool gpu continues\n");
    expect(await job.wait()).toBe("succeeded");
    expect((await setup.laboro(["resume", "--pool", "gpu"])).stdout).toBe("pool gpu was not paused\n");
    expect((await setup.laboro(["pause"])).stderr).toContain("--pool <name>");
  });
});

describe("laboro undrain", () => {
  it("gives a drained worker tasks again, and refuses one that is ending", async () => {
    const setup = await openCliBroker();
    const worker = setup.worker({ name: "node17" });
    await until("it has joined", () => worker.joined);
    await setup.laboro(["drain", "node17"]);
    const job = await setup.client.submit({ recipe: { kind: "command", argv: ["sleep", "60"] } });
    expect((await setup.laboro(["undrain", "node17"])).stdout).toBe("worker node17 gets tasks again\n");
    await until("it runs", async () => (await job.info()).counters.running === 1);
    expect((await setup.laboro(["undrain", "node17"])).stdout).toBe("worker node17 was not drained\n");
    await setup.laboro(["stop", "node17"]);
    const { code, stderr } = await setup.laboro(["undrain", "node17"]);
    expect([code, stderr]).toEqual([1, "laboro: worker node17 is ending: start it again (LABORO_NOT_SUPPORTED)\n"]);
    await job.cancel();
  });
});
