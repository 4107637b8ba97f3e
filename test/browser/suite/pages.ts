/** Every page, looked at: what stands there, in both colours, and what axe has against it. */
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { sh, TRUE } from "../../support/recipes.js";
import { until } from "../../support/wait.js";
import { DashboardPage } from "../dashboard-page.js";
import { type Jobs, Scene, submitJobs } from "../scene.js";

export function describePages(browser: () => Browser): void {
  let scene: Scene;
  let jobs: Jobs;
  beforeAll(async () => {
    scene = await Scene.open();
    await scene.worker({
      name: "anna",
      slots: 4,
      reserveRequests: 1,
      tags: ["big"],
      services: { shout: (body) => Buffer.from(body).toString().toUpperCase() },
    });
    await scene.worker({ name: "bert", slots: 8 });
    jobs = await submitJobs(scene);
    for (let i = 0; i < 20; i++) await scene.client.request("shout", "hello");
    await scene.client.ask("limitSet", { name: "hourly", running: 3, rate: { starts: 100, intervalMs: 3_600_000 } });
    await scene.client.ask("limitSet", { name: "nothing", running: 0 });
    await scene.client.ask("configSet", { settings: { note: "first" } });
    await scene.client.ask("configSet", { settings: { note: "second", verbose: true } });
    await scene.client.schedules.set("nightly", {
      ...{ cron: "0 3 * * *", timeZone: "Europe/Prague", overlap: "skip" },
      job: { recipe: sh("./nightly --full | tee report.txt"), held: true },
    });
    await scene.client.schedules.set("poll-api", { everyMs: 600_000, job: { recipe: TRUE }, paused: true });
    // No job is in this pool: nothing is asked for.
    await scene.client.allocators.set("short", { maxWorkers: 20, timeLimitMs: 3_600_000, slots: 4, pool: "night" });
    // The charts need no wait.
    await scene.broker.core.history.tick(Date.now() - 5_000);
    await scene.broker.core.history.tick(Date.now());
  });
  afterAll(() => scene?.close());

  /** The pages, with something that is seen when each is there. */
  const pages = (): readonly (readonly [string, string, (dashboard: DashboardPage) => Promise<void>])[] => [
    ["overview", "/", (dashboard) => dashboard.sees("fit-models failed: 6 of 24 tasks")],
    ["jobs", "/ui/jobs", (dashboard) => dashboard.sees("parameter sweep")],
    ["job", `/ui/jobs/${jobs.failed.id}`, (dashboard) => dashboard.sees("exit 3")],
    ["task", `/ui/jobs/${jobs.failed.id}/tasks/4`, (dashboard) => dashboard.sees("no convergence for seed 7")],
    ["task-waiting", `/ui/jobs/${jobs.running.id}/tasks/40`, (dashboard) => dashboard.sees("Why?")],
    ["schedules", "/ui/schedules", (dashboard) => dashboard.sees("poll-api")],
    ["workers", "/ui/workers", (dashboard) => dashboard.sees("bert")],
    ["allocators", "/ui/allocators", (dashboard) => dashboard.sees("is ready to ask for an allocation")],
    ["services", "/ui/services", (dashboard) => dashboard.sees("shout")],
    ["limits", "/ui/limits", (dashboard) => dashboard.sees("hourly")],
    ["brokers", "/ui/brokers", (dashboard) => dashboard.sees("this one")],
    ["config", "/ui/config", (dashboard) => dashboard.sees("version 2")],
    ["connections", "/ui/connections", (dashboard) => dashboard.sees("laboro.1")],
  ];

  it("are there in light and dark colours, and axe has nothing against them", async () => {
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    const faults: string[] = [];
    for (const [name, path, isThere] of pages()) {
      await dashboard.go(path);
      await isThere(dashboard);
      for (const scheme of ["light", "dark"] as const) {
        await dashboard.page.emulateMedia({ colorScheme: scheme });
        await dashboard.shoot(`${name}-${scheme}`);
        const found = await dashboard.faults(scheme === "light" ? "all" : "colours");
        faults.push(...found.map((fault) => `${name}, ${scheme}: ${fault}`));
      }
    }
    expect(faults).toEqual([]);
    await dashboard.close();
  });

  it("fit a phone: nothing is wider than the screen", async () => {
    const dashboard = await DashboardPage.open(browser(), scene.broker, { width: 390, height: 844 });
    const wide: string[] = [];
    for (const [name, path, isThere] of pages()) {
      await dashboard.go(path);
      await isThere(dashboard);
      await dashboard.shoot(`${name}-phone`);
      const width = Number(await dashboard.page.evaluate("document.documentElement.scrollWidth"));
      if (width > 390) wide.push(`${name}: ${width}`);
      for (const link of await dashboard.page.locator("header nav a").all()) {
        const { x = 0, width: ofLink = 0 } = (await link.boundingBox()) ?? {};
        if (x < 0 || ofLink === 0 || x + ofLink > 390) wide.push(`${name}: ${await link.textContent()}`);
      }
      const clipped =
        "[...document.querySelectorAll('.badge')].filter((one) => one.scrollWidth > one.clientWidth || " +
        "one.getBoundingClientRect().right > (one.closest('.cell') ?? document.body).getBoundingClientRect().right).length";
      if (Number(await dashboard.page.evaluate(clipped)) > 0) wide.push(`${name}: a badge is clipped`);
    }
    expect(wide).toEqual([]);
    await dashboard.close();
  });

  it("show on the overview what the broker says: figures, charts, open jobs", async () => {
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    const tile = (label: string): string => `.tile:has(.label:text-is("${label}")) .value`;
    expect(await dashboard.reads(tile("Running"), (text) => text === "11")).toBe("11");
    // 29 of the sweep, 500 held, the report and the two that need a gpu.
    expect(await dashboard.reads(tile("Waiting"), (text) => text !== "–")).toBe("532");
    expect(await dashboard.reads(tile("Slots in use"), (text) => text !== "–")).toBe("11 / 12");
    expect(await dashboard.reads(tile("Workers"), (text) => text !== "–")).toBe("2");
    expect(await dashboard.page.locator(".chart canvas").count()).toBe(4);
    const chart = dashboard.page.getByRole("img", { name: /^Throughput, chart over time\. Now: succeeded/ });
    await chart.waitFor();
    const legends = `[...document.querySelectorAll(".legend")].map((legend) =>
      [...legend.querySelectorAll("i")].map((swatch) => getComputedStyle(swatch).backgroundColor))`;
    for (const colours of (await dashboard.page.evaluate(legends)) as string[][])
      expect(new Set(colours).size).toBe(colours.length);
    await scene.client.ask("poolPause", { pool: "night", reason: "maintenance" });
    await dashboard.sees("pool night is paused: maintenance");
    await scene.client.ask("poolResume", { pool: "night" });
    const problem = dashboard.page.locator(".problems li", { hasText: "needs a gpu waits" });
    expect(await problem.textContent()).toContain("it needs 1 gpu, the most that a worker has is 0");
    await problem.getByRole("link").click();
    await dashboard.sees("Why? It needs 1 gpu, the most that a worker has is 0.");
    await dashboard.close();
  });

  it("are filtered by what stands in the address, and the address by what is filtered", async () => {
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    await dashboard.go("/ui/jobs?state=failed");
    await dashboard.sees("fit-models");
    await dashboard.seesNot("parameter sweep");
    await dashboard.page.getByRole("navigation", { name: "State" }).getByRole("link", { name: "held" }).click();
    await dashboard.sees("later");
    await dashboard.seesNot("fit-models");
    expect(dashboard.page.url()).toContain("/ui/jobs?state=held");
    await dashboard.page.getByRole("link", { name: "all", exact: true }).click();
    await dashboard.sees("parameter sweep");
    await dashboard.page.getByRole("searchbox", { name: "Name" }).fill("report");
    await dashboard.seesNot("parameter sweep");
    await dashboard.page.waitForURL(/name=report/);
    await dashboard.page.goBack();
    await dashboard.sees("later");
    await dashboard.close();
  });

  it("show limits, and which jobs wait for them", async () => {
    const recipe = { kind: "command", argv: ["true"] } as const;
    const job = await scene.client.submit({ name: "limited", recipe, count: 7, limits: ["hourly", "nothing"] });
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    await dashboard.page.getByRole("link", { name: "Limits" }).click();
    const row = dashboard.page.locator("tbody tr", { hasText: "hourly" });
    await row.waitFor();
    expect(await row.locator("td").allTextContents()).toEqual([
      "hourly",
      "0/3",
      "0/100 in 1h",
      "–",
      "7",
      String(job.id),
    ]);
    await row.getByRole("link").click();
    await dashboard.sees("hourly, nothing");
    await dashboard.close();
    await job.cancel();
  });

  it("show services with their figures, and what workers are told with its history", async () => {
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    await dashboard.page.getByRole("link", { name: "Services" }).click();
    const row = dashboard.page.locator("tbody tr", { hasText: "shout" });
    await row.waitFor();
    const cells = await row.locator("td").allTextContents();
    expect(cells[0]).toBe("shout");
    expect(cells[5]).toBe("0");
    expect(cells[6]).toBe("1");
    expect(cells[8]).toBe("20");
    await dashboard.page.getByRole("link", { name: "Config" }).click();
    await dashboard.sees('+ note: "second"');
    await dashboard.sees('- note: "first"');
    await dashboard.page.getByRole("button", { name: "Change", exact: true }).click();
    await dashboard.page.getByRole("textbox", { name: "Settings as JSON" }).fill('{"note": "third"}');
    await dashboard.page.getByRole("button", { name: "Set" }).click();
    await dashboard.page.getByRole("dialog").getByRole("button", { name: "Set" }).click();
    await dashboard.sees("version 3 is set");
    expect(await scene.client.ask("config", {})).toMatchObject({ version: 3, settings: { note: "third" } });
    await dashboard.close();
  });

  it("say so when the broker does not answer, and go on when it does", async () => {
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    await dashboard.page.route("**/api/**", (route) => route.abort());
    await dashboard.sees("the broker does not answer");
    await dashboard.page.unroute("**/api/**");
    await until("it is forgotten", () => dashboard.page.locator(".connection-alert").isHidden(), 60_000);
    dashboard.forgive();
    await dashboard.close();
  });
}
