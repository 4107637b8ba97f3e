/** Schedules: what is told of each, and what can be done about one. */
import type { Browser } from "playwright-core";
import { expect, it } from "vitest";
import { TRUE } from "../../support/recipes.js";
import { until } from "../../support/wait.js";
import { DashboardPage, PATIENCE_MS } from "../dashboard-page.js";
import { Scene } from "../scene.js";

export function describeSchedules(browser: () => Browser): void {
  it("are listed, run, paused, resumed and removed", async () => {
    const scene = await Scene.open();
    const { client } = scene;
    const job = { recipe: { kind: "command", argv: ["./nightly", "--full"] } } as const;
    await client.schedules.set("nightly", { cron: "0 3 * * *", timeZone: "Europe/Prague", overlap: "skip", job });
    await client.schedules.set("poll", { everyMs: 600_000, job: { recipe: TRUE } });
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    const { page } = dashboard;
    await dashboard.press("g", "t");
    const row = page.getByRole("row", { name: /nightly/ });
    await row.getByText("./nightly --full").waitFor();
    const text = (await row.textContent()) ?? "";
    expect(text).toContain("0 3 * * * Europe/Prague");
    expect(text).toMatch(/in \d+(h|m|s)/);
    const act = async (label: string): Promise<void> => {
      await row.getByRole("button", { name: `${label} nightly` }).click();
      await page
        .getByRole("dialog")
        .getByRole("button", { name: `${label} schedule` })
        .click();
    };
    await act("Run");
    await dashboard.sees("a run of nightly is submitted");
    await row.getByRole("link", { name: "1" }).waitFor();
    // Its last run has not ended.
    await act("Run");
    await dashboard.sees("schedule nightly: job 1 has not ended, and its overlap rule is skip");
    await act("Pause");
    await row.getByText("paused").waitFor();
    await act("Resume");
    await row.getByText("active").waitFor();
    await act("Remove");
    await dashboard.sees("schedule nightly is removed");
    await until("one is left", async () => (await client.ask("schedules", {})).schedules.length === 1, PATIENCE_MS);
    expect(await page.getByRole("row", { name: /poll/ }).count()).toBe(1);
    await dashboard.shoot("schedules-one");
    dashboard.forgive();
    await dashboard.close();
    await scene.close();
  });

  it("are only looked at by those who may read", async () => {
    const scene = await Scene.open();
    await scene.client.schedules.set("poll", { everyMs: 600_000, job: { recipe: TRUE } });
    const dashboard = await DashboardPage.open(browser(), scene.broker, { role: "read" });
    await dashboard.go("/ui/schedules");
    await dashboard.page.getByRole("row", { name: /poll/ }).waitFor();
    expect(await dashboard.page.locator("main button").count()).toBe(0);
    await dashboard.close();
    await scene.close();
  });
}
