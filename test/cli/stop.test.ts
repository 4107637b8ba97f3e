import { describe, expect, it } from "vitest";
import { until } from "../support/wait.js";
import { openCliShop } from "./support/cli.js";

describe("laboro stop", () => {
  it("lets a worker end", async () => {
    const shop = await openCliShop();
    let stopped = false;
    shop.worker({
      name: "node17",
      onStopped: () => {
        stopped = true;
      },
    });
    await until("it has joined", async () => (await shop.client.workers()).length === 1);
    const { code, stdout } = await shop.laboro(["stop", "node17"], { process: true });
    expect([code, stdout]).toEqual([0, "worker node17 stops when it has ended what it runs: 0 tasks\n"]);
    await until("it has stopped", () => stopped);
  });

  it("of two with one name asks which", async () => {
    const shop = await openCliShop();
    for (let i = 0; i < 2; i++) shop.worker({ name: "twin" });
    await until("both have joined", async () => (await shop.client.workers()).length === 2);
    const { code, stderr } = await shop.laboro(["stop", "twin"]);
    expect(code).toBe(2);
    expect(stderr).toMatch(
      /^laboro: 2 workers are called twin: say which by its id, one of \S+, \S+ \(LABORO_BAD_INPUT\)\n$/,
    );
  });
});
