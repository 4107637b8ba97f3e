/** Who may look may not act: no buttons, and a broker that refuses anyway. */
import type { Browser } from "playwright-core";
import { expect, it } from "vitest";
import { TRUE } from "../../support/recipes.js";
import { DashboardPage } from "../dashboard-page.js";
import { Scene } from "../scene.js";

export function describeReadOnly(browser: () => Browser): void {
  it("there is nothing to press, and what is asked all the same is refused", async () => {
    const scene = await Scene.open();
    await scene.worker({ name: "anna" });
    const job = await scene.client.submit({ name: "precious", recipe: TRUE, count: 3, held: true });
    const dashboard = await DashboardPage.open(browser(), scene.broker, { role: "read" });
    const { page } = dashboard;
    await dashboard.sees("read only");
    await dashboard.go(`/ui/jobs/${job.id}/tasks/1`);
    await dashboard.sees("Why? Its job is held.");
    await dashboard.go("/ui/workers?find=anna");
    await page.getByRole("row", { name: /anna/ }).click();
    await page.getByRole("complementary", { name: "One worker" }).getByText("Standing").waitFor();
    const buttons: string[] = [];
    for (const path of [`/ui/jobs/${job.id}/tasks/1`, "/ui/workers", "/ui/config"]) {
      await dashboard.go(path);
      await page.getByRole("heading", { level: 1 }).waitFor();
      buttons.push(...(await page.locator("main button:visible").allTextContents()));
    }
    expect(buttons).toEqual([]);
    await dashboard.go("/ui/connections");
    await page.getByRole("link", { name: /anna/ }).click();
    await dashboard.sees("only an admin may see them");
    const tried = `(async () => {
      const headers = { authorization: "Bearer " + sessionStorage.getItem("laboro-session") };
      return (await fetch("/api/v1/jobs/${job.id}/cancel", { method: "POST", headers })).status;
    })()`;
    expect(await page.evaluate(tried)).toBe(403);
    expect((await job.info()).state).toBe("held");
    dashboard.forgive();
    await dashboard.close();
    await scene.close();
  });

  it("a client acts on jobs, and not on workers", async () => {
    const scene = await Scene.open();
    await scene.worker({ name: "anna" });
    const job = await scene.client.submit({ name: "mine", recipe: TRUE, count: 3, held: true });
    const dashboard = await DashboardPage.open(browser(), scene.broker, { role: "client" });
    await dashboard.go(`/ui/jobs/${job.id}`);
    await dashboard.page.getByRole("button", { name: "Release" }).waitFor();
    await dashboard.go("/ui/workers");
    await dashboard.page.getByRole("row", { name: /anna/ }).click();
    const side = dashboard.page.getByRole("complementary", { name: "One worker" });
    await side.getByText("Standing").waitFor();
    expect(await side.getByRole("button").allTextContents()).toEqual([""]);
    await dashboard.close();
    await scene.close();
  });
}
