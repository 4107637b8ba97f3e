/** Workers: what is told of each, and what can be done about one. */

import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { sh } from "../../support/recipes.js";
import { until } from "../../support/wait.js";
import { DashboardPage, PATIENCE_MS } from "../dashboard-page.js";
import { Scene } from "../scene.js";

export function describeWorkers(browser: () => Browser): void {
  let scene: Scene;
  beforeAll(async () => {
    scene = await Scene.open({ settings: { standing: true } });
    await scene.worker({ name: "anna", slots: 2, tags: ["fast"], resources: { gpu: 2, mem: 4096 } });
    await scene.worker({ name: "carl", slots: 1, tags: ["clumsy"] });
    const clumsy = await scene.client.submit({ name: "too hard", recipe: sh("exit 1"), count: 12, tags: ["clumsy"] });
    // Banned after ten failures: the rest waits.
    await until("carl is banned", async () => (await clumsy.info()).counters.failed >= 10, PATIENCE_MS);
    await scene.client.submit({ name: "long", recipe: sh("sleep 600"), tags: ["fast"], entries: ["case 7"] });
  });
  afterAll(() => scene?.close());

  it("are listed with address, slots, standing and what they run; those with trouble first if asked for", async () => {
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    await dashboard.go("/ui/workers");
    const anna = dashboard.page.getByRole("row", { name: /anna/ });
    await anna.getByText(/^2\.1 /).waitFor();
    const text = (await anna.textContent()) ?? "";
    expect(text).toContain("laboro127.0.0.1default");
    expect(text).toContain("1/2");
    expect(text).toContain("gpu 0/2, mem 0 B/4.0 GiB, fast");
    const carl = dashboard.page.getByRole("row", { name: /carl/ });
    await carl.getByText("banned").waitFor();
    expect(await carl.textContent()).toMatch(/0\/1\d /);
    await dashboard.page.getByLabel("Order").selectOption("problems");
    const first = dashboard.page.getByRole("row").nth(1);
    await until("carl is first", async () => ((await first.textContent()) ?? "").includes("carl"), PATIENCE_MS);
    expect(dashboard.page.url()).toContain("order=problems");
    await dashboard.page.getByRole("searchbox", { name: "Find workers" }).fill("fast");
    await dashboard.sees("1 of 2 workers");
    await dashboard.close();
  });

  it("are chosen by keys and forgiven", async () => {
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    await dashboard.go("/ui/workers?order=problems");
    await dashboard.page.getByRole("row", { name: /carl/ }).waitFor();
    await dashboard.page.getByRole("grid", { name: "Workers" }).focus();
    await dashboard.press("ArrowDown", "Enter");
    const side = dashboard.page.getByRole("complementary", { name: "One worker" });
    await side.getByText(/^0 of 1\d, 0%$/).waitFor();
    await side.getByRole("button", { name: "Forgive" }).click();
    await dashboard.page.getByRole("dialog").getByRole("button", { name: "Forgive worker" }).click();
    await dashboard.sees("carl has good standing again");
    const carl = async () => (await scene.client.workers()).find(({ name }) => name === "carl");
    await until("it is good", async () => (await carl())?.standing === "good", PATIENCE_MS);
    await dashboard.close();
  });

  it("are drained and stopped, each after a question", async () => {
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    await dashboard.go("/ui/workers?find=anna");
    await dashboard.page.getByRole("row", { name: /anna/ }).click();
    const side = dashboard.page.getByRole("complementary", { name: "One worker" });
    await side.getByRole("link", { name: "2.1" }).waitFor();
    await side.getByText("long: case 7").waitFor();
    await side.getByText(/^load [\d.]+ on \d+ CPU/).waitFor();
    await dashboard.shoot("worker-light");
    await side.getByRole("button", { name: "Drain" }).click();
    await dashboard.page.getByRole("dialog").getByRole("button", { name: "Drain worker" }).click();
    await side.getByText("draining").waitFor();
    const anna = async () => (await scene.client.workers()).find(({ name }) => name === "anna");
    expect((await anna())?.draining).toBe(true);
    await side.getByRole("button", { name: "Undrain" }).click();
    await dashboard.page.getByRole("dialog").getByRole("button", { name: "Undrain worker" }).click();
    await dashboard.sees("anna gets tasks again");
    expect((await anna())?.draining).toBe(false);
    await dashboard.go("/ui/workers");
    for (const name of [/anna/, /carl/]) await dashboard.page.getByRole("row", { name }).waitFor();
    await dashboard.page.getByRole("button", { name: "Choose all listed workers" }).click();
    const chosen = dashboard.page.getByRole("group", { name: "Chosen workers" });
    for (const name of ["Drain", "Undrain"]) {
      await chosen.getByRole("button", { name, exact: true }).click();
      await dashboard.page
        .getByRole("dialog")
        .getByRole("button", { name: `${name} 2 workers` })
        .click();
      await dashboard.sees(name === "Drain" ? "2 workers are draining" : "2 workers get tasks again");
      const draining = (await scene.client.workers()).map((worker) => worker.draining);
      expect(draining).toEqual([name === "Drain", name === "Drain"]);
      await dashboard.page.getByRole("button", { name: "Choose all listed workers" }).click();
    }
    await dashboard.go("/ui/workers?find=carl");
    await dashboard.page.getByRole("row", { name: /carl/ }).click();
    await side.getByRole("button", { name: "Stop" }).click();
    await dashboard.page.getByRole("dialog").getByRole("button", { name: "Stop worker" }).click();
    await dashboard.sees("This worker is gone.");
    await dashboard.go("/ui/workers");
    await dashboard.page.getByRole("checkbox", { name: "Choose worker anna" }).check();
    await dashboard.page.getByRole("group", { name: "Chosen workers" }).getByRole("button", { name: "Stop" }).click();
    await dashboard.page.getByRole("dialog").getByRole("button", { name: "Stop 1 worker" }).click();
    await dashboard.sees("1 worker will stop");
    await dashboard.close();
  });
}
