import { describe, expect, it } from "vitest";
import { TRUE } from "../support/recipes.js";
import { openCliBroker, sh } from "./support/cli.js";

describe("laboro clean", () => {
  it("forgets jobs that have ended, by state, age and number", async () => {
    const setup = await openCliBroker();
    setup.worker();
    for (let i = 0; i < 3; i++) await (await setup.client.submit({ recipe: TRUE })).wait();
    await (await setup.client.submit({ recipe: sh("exit 1") })).wait();
    await setup.client.submit({ recipe: TRUE, held: true });
    const ids = async () =>
      JSON.parse((await setup.laboro(["status", "--all", "--json"])).stdout).jobs.map(({ id }: { id: number }) => id);
    expect((await setup.laboro(["clean", "--older-than", "1h", "--yes"], { process: true })).stdout).toBe(
      "there is no job to clean\n",
    );
    expect((await setup.laboro(["clean", "--state", "succeeded", "--keep", "2", "--yes"])).stdout).toBe(
      "1 job is forgotten\n",
    );
    expect(await ids()).toEqual([5, 4, 3, 2]);
    expect((await setup.laboro(["clean", "2"])).stdout).toBe("job 2 is forgotten\n");
    expect((await setup.laboro(["clean", "--yes"])).stdout).toBe("2 jobs are forgotten\n");
    expect(await ids()).toEqual([5]);
  });

  it("never touches a job that is open", async () => {
    const setup = await openCliBroker();
    await setup.client.submit({ recipe: TRUE });
    const { code, stderr } = await setup.laboro(["clean", "last", "--yes"]);
    expect([code, stderr]).toEqual([1, "laboro: job 1 has not ended: cancel it first (LABORO_JOB_OPEN)\n"]);
    expect((await setup.laboro(["clean", "all", "--yes"])).stdout).toBe(
      "there is no job to clean: none of them has ended\n",
    );
  });
});
