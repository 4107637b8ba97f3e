/** Allocators: what each does, its allocations, and what can be done about one. */
import { join } from "node:path";
import type { Browser } from "playwright-core";
import { it } from "vitest";
import { TRUE } from "../../support/recipes.js";
import { SlurmStandIn } from "../../support/slurm-stand-in.js";
import { until } from "../../support/wait.js";
import { DashboardPage, PATIENCE_MS } from "../dashboard-page.js";
import { Scene } from "../scene.js";

export function describeAllocators(browser: () => Browser): void {
  it("are listed with their allocations, paused, resumed and removed", async () => {
    const slurm = new SlurmStandIn();
    const scene = await Scene.open({ allocations: { rules: { pollMs: 100 } } });
    await scene.client.allocators.set("short", {
      maxWorkers: 5,
      timeLimitMs: 3_600_000,
      dir: join(scene.dir, "files"),
    });
    await scene.client.submit({ recipe: TRUE });
    await until("it asks", () => slurm.jobs.length === 1, PATIENCE_MS);
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    const { page } = dashboard;
    await dashboard.press("g", "a");
    await page.getByRole("row", { name: /short\.1.*queued.*Priority/ }).waitFor();
    const row = page.getByRole("row", { name: /^short (active|paused)/ });
    await row.getByText("has an allocation in the queue (slurm: Priority)").waitFor();
    const act = async (label: string): Promise<void> => {
      await row.getByRole("button", { name: `${label} short` }).click();
      await page
        .getByRole("dialog")
        .getByRole("button", { name: `${label} allocator` })
        .click();
    };
    await act("Pause");
    await row.getByText("is paused").waitFor();
    await page.getByRole("row", { name: /^short\.1 ended .*CANCELLED/ }).waitFor();
    await page.getByRole("row", { name: /short\.1 cancelled the allocator is paused/ }).waitFor();
    await act("Resume");
    await row.getByText("active").waitFor();
    await act("Remove");
    await dashboard.sees("There are no allocators. laboro alloc add makes one.");
    await dashboard.close();
    await scene.close();
  });
}
