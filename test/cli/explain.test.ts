import { describe, expect, it } from "vitest";
import { TRUE } from "../support/recipes.js";
import { openCliBroker } from "./support/cli.js";

describe("laboro explain", () => {
  it("says why a task waits, and how it ended", async () => {
    const setup = await openCliBroker();
    const job = await setup.client.submit({ recipe: TRUE, count: 2 });
    expect(await setup.laboro(["explain", "1.2"], { process: true })).toEqual({
      code: 0,
      stdout: "task 2 of job 1: no worker is connected\n",
      stderr: "",
    });
    setup.worker({ name: "w1" });
    await job.wait();
    expect((await setup.laboro(["explain", "last"])).stdout).toBe("task 1 of job 1: it has succeeded on w1\n");
    expect(JSON.parse((await setup.laboro(["explain", "last.1", "--json"])).stdout)).toEqual({
      reason: "it has succeeded on w1",
    });
  });

  it("names the dependency that cancelled a job, the draining worker and the drained broker", async () => {
    const setup = await openCliBroker();
    const { client } = setup;
    const why = async (job: number): Promise<string> => (await setup.laboro(["explain", `${job}.1`])).stdout;
    setup.worker({ name: "w1" });
    const first = await client.submit({ recipe: { kind: "command", argv: ["false"] } });
    const second = await client.submit({ recipe: TRUE, after: [{ job: first.id }] });
    expect(await second.wait()).toBe("cancelled");
    expect(await why(2)).toBe("task 1 of job 2: it was cancelled before it ran: job 1, which it waits for, failed\n");
    await setup.laboro(["drain", "w1"]);
    await client.submit({ recipe: TRUE });
    expect(await why(3)).toBe("task 1 of job 3: w1 could take it, but is draining\n");
    await setup.laboro(["drain", "--broker"]);
    expect(await why(3)).toBe(
      "task 1 of job 3: the broker assigns nothing: it is drained, until laboro drain --broker --off or a restart\n",
    );
  });
});
