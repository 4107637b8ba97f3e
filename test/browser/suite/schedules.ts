/** Schedules: what is told of each, and what can be done about one. */
import type { Browser } from "playwright-core";
import { expect, it } from "vitest";
import { TRUE } from "../../support/recipes.js";
import { until } from "../../support/wait.js";
import { Scene } from "../scene.js";
import { PATIENCE_MS, Visitor } from "../visitor.js";

export function describeSchedules(browser: () => Browser): void {
  it("are listed, run, paused, resumed and removed", async () => {
    const scene = await Scene.open();
    const { client } = scene;
    const job = { recipe: { kind: "command", argv: ["./nightly", "--full"] } } as const;
    await client.schedules.set("nightly", { cron: "0 3 * * *", timeZone: "Europe/Prague", overlap: "skip", job });
    await client.schedules.set("poll", { everyMs: 600_000, job: { recipe: TRUE } });
    const visitor = await Visitor.come(browser(), scene.broker);
    const { page } = visitor;
    await visitor.press("g", "t");
    const row = page.getByRole("row", { name: /nightly/ });
    await row.getByText("./nightly --full").waitFor();
    const text = (await row.textContent()) ?? "";
    expect(text).toContain("0 3 * * * Europe/Prague");
    expect(text).toMatch(/in \d+h/);
    const act = async (label: string): Promise<void> => {
      await row.getByRole("button", { name: `${label} nightly` }).click();
      await page
        .getByRole("dialog")
        .getByRole("button", { name: `${label} schedule` })
        .click();
    };
    await act("Run");
    await visitor.sees("a run of nightly is submitted");
    await row.getByRole("link", { name: "1" }).waitFor();
    // Its last run has not ended.
    await act("Run");
    await visitor.sees("schedule nightly: job 1 has not ended, and its overlap rule is skip");
    await act("Pause");
    await row.getByText("paused").waitFor();
    await act("Resume");
    await row.getByText("active").waitFor();
    await act("Remove");
    await visitor.sees("schedule nightly is removed");
    await until("one is left", async () => (await client.ask("schedules", {})).schedules.length === 1, PATIENCE_MS);
    expect(await page.getByRole("row", { name: /poll/ }).count()).toBe(1);
    await visitor.shoot("schedules-one");
    visitor.forgive();
    await visitor.leave();
    await scene.close();
  });

  it("are only looked at by those who may read", async () => {
    const scene = await Scene.open();
    await scene.client.schedules.set("poll", { everyMs: 600_000, job: { recipe: TRUE } });
    const visitor = await Visitor.come(browser(), scene.broker, { role: "read" });
    await visitor.go("/ui/schedules");
    await visitor.page.getByRole("row", { name: /poll/ }).waitFor();
    expect(await visitor.page.locator("main button").count()).toBe(0);
    await visitor.leave();
    await scene.close();
  });
}
