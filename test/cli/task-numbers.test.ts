import { describe, expect, it } from "vitest";
import { openOnce } from "../support/at-end.js";
import { until } from "../support/wait.js";
import { openCliBroker, sh } from "./support/cli.js";

const ARRAY = [{ first: 5, last: 9, step: 2 }];

describe("JOB.TASK", () => {
  it("is the number in the array, for a task and for a range", async () => {
    const setup = await openCliBroker();
    const job = await setup.client.submit({ recipe: { ...sh("exec sleep 60"), array: ARRAY } });
    expect((await setup.laboro(["explain", "1.7"])).stdout).toBe("task 7 of job 1: no worker is connected\n");
    expect((await setup.laboro(["explain", "1"])).stdout).toBe("task 5 of job 1: no worker is connected\n");
    expect((await setup.laboro(["cancel", "1.5-8"])).stdout).toBe(
      "2 tasks of job 1 are cancelled, except what had ended before\n",
    );
    expect((await job.info()).cancels).toEqual([{ first: 0, last: 1 }]);
    setup.worker({ name: "w1", cancelGraceMs: 100 });
    await until("it runs", async () => (await setup.laboro(["status", "1"])).stdout.includes("running "));
    expect((await setup.laboro(["status", "1"])).stdout).toMatch(/^1\.9 +w1 +running/m);
  });

  const sharedSetup = openOnce(async () => {
    const setup = await openCliBroker();
    await setup.client.submit({ recipe: { ...sh("true"), array: ARRAY } });
    return setup;
  });

  it.each([
    ["logs", "1.6", "6"],
    ["explain", "1.0", "0"],
    ["cancel", "1.5,6", "6"],
    ["rerun", "1.10", "10"],
    ["cancel", "1.5-12", "5-12"],
    ["logs", "1.8-8", "8"],
  ])("that the job does not have is refused: %s %s", async (verb, selector, named) => {
    const { code, stderr } = await sharedSetup().laboro([verb, selector]);
    expect([code, stderr]).toEqual([1, `laboro: job 1 has tasks 5, 7, 9, not ${named} (LABORO_NO_SUCH_TASK)\n`]);
  });
});
