import { describe, expect, it } from "vitest";
import { TRUE } from "../support/recipes.js";
import { until } from "../support/wait.js";
import { openCliBroker } from "./support/cli.js";

describe("laboro drain", () => {
  it("gives a worker nothing new", async () => {
    const setup = await openCliBroker();
    setup.worker({ name: "node17" });
    await until("it has joined", async () => (await setup.client.workers()).length === 1);
    const said = await setup.laboro(["drain", "node17"], { process: true });
    expect(said).toEqual({ code: 0, stdout: "worker node17 gets no more tasks; it still runs 0 tasks\n", stderr: "" });
    expect((await setup.laboro(["workers"])).stdout).toMatch(/node17 +draining/);
    await setup.client.submit({ recipe: TRUE });
    expect((await setup.laboro(["explain", "last"])).stdout).toContain("draining");
  });

  it("is shown by status, for a worker and for the broker", async () => {
    const setup = await openCliBroker();
    setup.worker({ name: "node17" });
    await until("it has joined", async () => (await setup.client.workers()).length === 1);
    const first = async (): Promise<string> => (await setup.laboro(["status"])).stdout.split("\n\n")[0] ?? "";
    expect(await first()).not.toMatch(/drain/);
    await setup.laboro(["drain", "node17"], { process: true });
    expect(await first()).toContain("1 worker, 1 draining with");
    await setup.laboro(["undrain", "node17"], { process: true });
    await setup.laboro(["drain", "--broker"], { process: true });
    expect((await first()).split("\n")).toEqual([
      expect.stringMatching(/^1 worker with/),
      "the broker assigns nothing: it is drained, until laboro drain --broker --off or a restart",
    ]);
    expect((await setup.laboro(["doctor"])).stdout).toMatch(
      /^warn {2}it assigns nothing: it is drained, until laboro/m,
    );
    await setup.laboro(["drain", "--broker", "--off"], { process: true });
    expect(await first()).not.toMatch(/drain/);
  });

  it("of a mistyped name suggests the one that was meant", async () => {
    const setup = await openCliBroker();
    setup.worker({ name: "node17" });
    await until("it has joined", async () => (await setup.client.workers()).length === 1);
    const { code, stderr } = await setup.laboro(["drain", "noed17"]);
    expect([code, stderr]).toEqual([
      1,
      "laboro: there is no worker noed17; did you mean node17? (LABORO_NO_SUCH_WORKER)\n",
    ]);
  });
});
