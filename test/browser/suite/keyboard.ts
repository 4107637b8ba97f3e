/** Everything by keys, and what is remembered of colours. */
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { TRUE } from "../../support/recipes.js";
import { DashboardPage } from "../dashboard-page.js";
import { Scene } from "../scene.js";

export function describeKeyboard(browser: () => Browser): void {
  let scene: Scene;
  beforeAll(async () => {
    scene = await Scene.open();
    await scene.worker({ name: "anna" });
    await (await scene.client.submit({ name: "one job", recipe: TRUE, count: 3 })).wait();
  });
  afterAll(() => scene?.close());

  it("every page is two keys away, the search one", async () => {
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    const { page } = dashboard;
    for (const [key, heading] of [
      ["j", "Jobs"],
      ["w", "Workers"],
      ["s", "Services"],
      ["b", "Brokers"],
      ["c", "Config"],
      ["v", "Connections"],
      ["o", "Overview"],
    ] as const) {
      await dashboard.press("g", key);
      await page.getByRole("heading", { level: 1, name: heading }).waitFor();
    }
    await dashboard.press("g", "j");
    await page.getByRole("link", { name: /one job/ }).waitFor();
    await dashboard.press("/");
    await page.keyboard.type("gone");
    await dashboard.sees("No jobs match.");
    // Letters that are written are no commands.
    expect(page.url()).toContain("/ui/jobs?name=gone");
    await dashboard.close();
  });

  it("a job is reached by Tab and Enter alone, and the page says where one is", async () => {
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    await dashboard.go("/ui/jobs");
    const link = dashboard.page.getByRole("link", { name: /one job/ });
    await link.waitFor();
    for (let tabs = 0; tabs < 40; tabs++) {
      await dashboard.press("Tab");
      if (String(await dashboard.page.evaluate("document.activeElement.textContent")).includes("one job")) break;
    }
    await dashboard.press("Enter");
    await dashboard.page.getByRole("heading", { level: 1, name: /one job/ }).waitFor();
    expect(await dashboard.page.title()).toMatch(/^1 one job · laboro$/);
    expect(await dashboard.page.evaluate("document.activeElement.tagName")).toBe("MAIN");
    await dashboard.close();
  });

  it("keys are listed by ?, and a dialog is left by Escape", async () => {
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    await dashboard.press("?");
    const dialog = dashboard.page.getByRole("dialog", { name: "Keys" });
    await dialog.getByText("search on this page").waitFor();
    await dashboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    await dashboard.close();
  });

  it("colours follow the system until somebody chooses, and the choice stays", async () => {
    const dashboard = await DashboardPage.open(browser(), scene.broker, { scheme: "dark" });
    const { page } = dashboard;
    const background = () => page.evaluate("getComputedStyle(document.body).backgroundColor");
    const dark = await background();
    const button = page.getByRole("button", { name: /colours/ });
    await button.click();
    const light = await background();
    expect(light).not.toBe(dark);
    await dashboard.go("/ui/jobs");
    expect(await background()).toBe(light);
    await button.click();
    expect(await background()).toBe(dark);
    await dashboard.close();
  });
}
