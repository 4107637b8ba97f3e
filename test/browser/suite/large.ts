/**
 * Ten thousand workers and a job of 200,000 tasks, made by a generator that takes the place of a protocol's session. Times are printed.
 * Checked is what does not depend on the machine: how much is on the page, how much is asked, how much is answered.
 */
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { TRUE } from "../../support/recipes.js";
import { until } from "../../support/wait.js";
import { DashboardPage, PATIENCE_MS } from "../dashboard-page.js";
import { IDLE, joins, profile, quick } from "../generated-workers.js";
import { Scene } from "../scene.js";

const WORKERS = 10_000;
const TASKS = 200_000;
/** Of so many tasks one fails. */
const FAILS = 1_000;

export function describeLarge(browser: () => Browser): void {
  let scene: Scene;
  let job: number;
  beforeAll(async () => {
    scene = await Scene.open();
    const names = Array.from({ length: WORKERS }, (_, at) => `worker-${String(at).padStart(5, "0")}`);
    await Promise.all(names.map((name) => joins(scene, profile(name), IDLE)));
    const swift = profile("quick", { pool: "default", total: { slots: 2_000 }, canPrefetch: true });
    await joins(scene, swift, quick(scene, "quick", { failEvery: FAILS }));
    const submitted = await scene.client.submit({ name: "many tasks", recipe: TRUE, count: TASKS });
    job = submitted.id;
    await submitted.wait();
  }, 300_000);
  afterAll(() => scene?.close());

  it("a list of ten thousand workers is on the page a screen at a time", async () => {
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    const { page } = dashboard;
    await watchFrames(dashboard);
    await dashboard.go("/ui/workers?order=name");
    await page.getByRole("row", { name: /worker-00000/ }).waitFor();
    expect(await page.locator(".grid-body .grid-row").count()).toBeLessThan(80);
    expect(await page.getByRole("grid").getAttribute("aria-rowcount")).toBe(String(WORKERS + 2));
    await page.getByRole("grid").focus();
    await dashboard.press("End");
    await page.getByRole("row", { name: new RegExp(`worker-0*${WORKERS - 1}`) }).waitFor();
    for (const part of [0.2, 0.5, 0.8, 0.35]) {
      await page.evaluate(
        `(() => { const s = document.querySelector(".grid-scroll"); s.scrollTop = s.scrollHeight * ${part}; })()`,
      );
      await until(
        "the rows in view are there",
        async () => (await page.getByText("…", { exact: true }).count()) === 0,
        PATIENCE_MS,
      );
    }
    expect(await page.locator(".grid-body .grid-row").count()).toBeLessThan(80);
    console.info(`10,000 workers: ${await framesSeen(dashboard)}`);
    await dashboard.close();
  });

  it("a job of many tasks is a picture, its failures a list; each answer is small", async () => {
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    const { page } = dashboard;
    await watchFrames(dashboard);
    const sizes: number[] = [];
    page.on("response", async (response) => {
      if (response.url().includes("/api/")) sizes.push((await response.body().catch(() => Buffer.alloc(0))).length);
    });
    const began = performance.now();
    await dashboard.go(`/ui/jobs/${job}`);
    const picture = page.getByRole("img", { name: /^Task map: cells \d/ });
    await picture.waitFor();
    console.info(`200,000 tasks: seen after ${Math.round(performance.now() - began)} ms`);
    await dashboard.shoot("large-light");
    const failed = Math.floor(TASKS / FAILS);
    expect(await page.locator(".chips").first().textContent()).toContain(`failed ${failed}`);
    await page.getByRole("row", { name: / 1,000 .*exit 1/ }).waitFor();
    await page.getByRole("grid", { name: "Tasks" }).focus();
    // To the end of what is known, again and again, until all are.
    await until(
      "the last failure is listed",
      async () => {
        await dashboard.press("End");
        return (await page.getByRole("row", { name: new RegExp(TASKS.toLocaleString("en")) }).count()) > 0;
      },
      PATIENCE_MS,
    );
    // A cell has many tasks: opened, it is a part of the job with a cell each.
    await picture.focus();
    await dashboard.press("ArrowRight", "Enter");
    await dashboard.sees(/^tasks 1 to 15,000 of/);
    await page.getByRole("img", { name: /^Task map: tasks 15 failed, 14,985 succeeded/ }).waitFor();
    expect(Math.max(...sizes)).toBeLessThan(200_000);
    console.info(`200,000 tasks: ${await framesSeen(dashboard)}, largest answer ${Math.max(...sizes)} bytes`);
    await dashboard.close();
  });

  it("many windows ask the broker no more than one does", async () => {
    const { core } = scene.broker;
    let looks = 0;
    const { jobs } = core.store;
    // Counted where it reaches the store.
    Object.defineProperty(core.store, "jobs", {
      configurable: true,
      value: (...given: Parameters<typeof jobs>) => {
        looks++;
        return jobs.apply(core.store, given);
      },
    });
    const visitors = await Promise.all(Array.from({ length: 5 }, () => DashboardPage.open(browser(), scene.broker)));
    for (const dashboard of visitors) await dashboard.go("/ui/jobs");
    await Promise.all(visitors.map((dashboard) => dashboard.sees("many tasks")));
    const [began, before] = [performance.now(), looks];
    const asked = () =>
      visitors.reduce((sum, dashboard) => sum + dashboard.asked.filter((one) => one === "GET /api/v1/jobs").length, 0);
    const first = asked();
    await until("they have asked some more", () => asked() - first >= 3 * visitors.length, PATIENCE_MS);
    const seconds = (performance.now() - began) / 1000;
    expect(looks - before).toBeLessThanOrEqual(Math.ceil(seconds) + 1);
    Reflect.deleteProperty(core.store, "jobs");
    for (const dashboard of visitors) await dashboard.close();
  });
}

/** How long the page was busy at a stretch. */
const watchFrames = (dashboard: DashboardPage): Promise<unknown> =>
  dashboard.page.addInitScript(`
    window.longTasks = [];
    new PerformanceObserver((list) => window.longTasks.push(...list.getEntries().map((one) => one.duration))).observe({ type: "longtask", buffered: true });
  `);

async function framesSeen(dashboard: DashboardPage): Promise<string> {
  const long = (await dashboard.page.evaluate("window.longTasks")) as readonly number[];
  return `${long.length} long tasks, the longest ${Math.round(Math.max(0, ...long))} ms`;
}
