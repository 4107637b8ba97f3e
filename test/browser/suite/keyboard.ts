/** Everything by keys, and what is remembered of colours. */
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { TRUE } from "../../support/recipes.js";
import { Scene } from "../scene.js";
import { Visitor } from "../visitor.js";

export function describeKeyboard(browser: () => Browser): void {
  let scene: Scene;
  beforeAll(async () => {
    scene = await Scene.open();
    await scene.worker({ name: "anna" });
    await (await scene.client.submit({ name: "one job", recipe: TRUE, count: 3 })).wait();
  });
  afterAll(() => scene?.close());

  it("every page is two keys away, the search one", async () => {
    const visitor = await Visitor.come(browser(), scene.broker);
    const { page } = visitor;
    for (const [key, heading] of [
      ["j", "Jobs"],
      ["w", "Workers"],
      ["s", "Services"],
      ["b", "Brokers"],
      ["c", "Config"],
      ["v", "Connections"],
      ["o", "Overview"],
    ] as const) {
      await visitor.press("g", key);
      await page.getByRole("heading", { level: 1, name: heading }).waitFor();
    }
    await visitor.press("g", "j");
    await page.getByRole("link", { name: /one job/ }).waitFor();
    await visitor.press("/");
    await page.keyboard.type("gone");
    await visitor.sees("No jobs match.");
    // Letters that are written are no commands.
    expect(page.url()).toContain("/ui/jobs?name=gone");
    await visitor.leave();
  });

  it("a job is reached by Tab and Enter alone, and the page says where one is", async () => {
    const visitor = await Visitor.come(browser(), scene.broker);
    await visitor.go("/ui/jobs");
    const link = visitor.page.getByRole("link", { name: /one job/ });
    await link.waitFor();
    for (let tabs = 0; tabs < 40; tabs++) {
      await visitor.press("Tab");
      if (String(await visitor.page.evaluate("document.activeElement.textContent")).includes("one job")) break;
    }
    await visitor.press("Enter");
    await visitor.page.getByRole("heading", { level: 1, name: /one job/ }).waitFor();
    expect(await visitor.page.title()).toMatch(/^1 one job · laboro$/);
    expect(await visitor.page.evaluate("document.activeElement.tagName")).toBe("MAIN");
    await visitor.leave();
  });

  it("keys are listed by ?, and a dialog is left by Escape", async () => {
    const visitor = await Visitor.come(browser(), scene.broker);
    await visitor.press("?");
    const dialog = visitor.page.getByRole("dialog", { name: "Keys" });
    await dialog.getByText("search on this page").waitFor();
    await visitor.press("Escape");
    await dialog.waitFor({ state: "detached" });
    await visitor.leave();
  });

  it("colours follow the system until somebody chooses, and the choice stays", async () => {
    const visitor = await Visitor.come(browser(), scene.broker, { scheme: "dark" });
    const { page } = visitor;
    const background = () => page.evaluate("getComputedStyle(document.body).backgroundColor");
    const dark = await background();
    const button = page.getByRole("button", { name: /colours/ });
    await button.click();
    const light = await background();
    expect(light).not.toBe(dark);
    await visitor.go("/ui/jobs");
    expect(await background()).toBe(light);
    await button.click();
    expect(await background()).toBe(dark);
    await visitor.leave();
  });
}
