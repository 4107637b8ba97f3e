/** Every page, looked at: what stands there, in both colours, and what axe has against it. */
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { TRUE } from "../../support/recipes.js";
import { until } from "../../support/wait.js";
import { type Jobs, Scene, sh, submitJobs } from "../scene.js";
import { Visitor } from "../visitor.js";

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
  const pages = (): readonly (readonly [string, string, (visitor: Visitor) => Promise<void>])[] => [
    ["overview", "/", (visitor) => visitor.sees("fit-models failed: 6 of 24 tasks")],
    ["jobs", "/ui/jobs", (visitor) => visitor.sees("parameter sweep")],
    ["job", `/ui/jobs/${jobs.failed.id}`, (visitor) => visitor.sees("exit 3")],
    ["task", `/ui/jobs/${jobs.failed.id}/tasks/4`, (visitor) => visitor.sees("no convergence for seed 7")],
    ["task-waiting", `/ui/jobs/${jobs.running.id}/tasks/40`, (visitor) => visitor.sees("Why?")],
    ["schedules", "/ui/schedules", (visitor) => visitor.sees("poll-api")],
    ["workers", "/ui/workers", (visitor) => visitor.sees("bert")],
    ["allocators", "/ui/allocators", (visitor) => visitor.sees("is ready to ask for an allocation")],
    ["services", "/ui/services", (visitor) => visitor.sees("shout")],
    ["limits", "/ui/limits", (visitor) => visitor.sees("hourly")],
    ["brokers", "/ui/brokers", (visitor) => visitor.sees("this one")],
    ["config", "/ui/config", (visitor) => visitor.sees("version 2")],
    ["connections", "/ui/connections", (visitor) => visitor.sees("laboro.1")],
  ];

  it("are there in light and dark colours, and axe has nothing against them", async () => {
    const visitor = await Visitor.come(browser(), scene.broker);
    const faults: string[] = [];
    for (const [name, path, isThere] of pages()) {
      await visitor.go(path);
      await isThere(visitor);
      for (const scheme of ["light", "dark"] as const) {
        await visitor.page.emulateMedia({ colorScheme: scheme });
        await visitor.shoot(`${name}-${scheme}`);
        faults.push(...(await visitor.faults()).map((fault) => `${name}, ${scheme}: ${fault}`));
      }
    }
    expect(faults).toEqual([]);
    await visitor.leave();
  });

  it("fit a phone: nothing is wider than the screen", async () => {
    const visitor = await Visitor.come(browser(), scene.broker, { width: 390, height: 844 });
    const wide: string[] = [];
    for (const [name, path, isThere] of pages()) {
      await visitor.go(path);
      await isThere(visitor);
      await visitor.shoot(`${name}-phone`);
      const width = Number(await visitor.page.evaluate("document.documentElement.scrollWidth"));
      if (width > 390) wide.push(`${name}: ${width}`);
      for (const link of await visitor.page.locator("header nav a").all()) {
        const { x = 0, width: ofLink = 0 } = (await link.boundingBox()) ?? {};
        if (x < 0 || ofLink === 0 || x + ofLink > 390) wide.push(`${name}: ${await link.textContent()}`);
      }
      const clipped =
        "[...document.querySelectorAll('.badge')].filter((one) => one.scrollWidth > one.clientWidth || " +
        "one.getBoundingClientRect().right > (one.closest('.cell') ?? document.body).getBoundingClientRect().right).length";
      if (Number(await visitor.page.evaluate(clipped)) > 0) wide.push(`${name}: a badge is clipped`);
    }
    expect(wide).toEqual([]);
    await visitor.leave();
  });

  it("show on the overview what the broker says: figures, charts, open jobs", async () => {
    const visitor = await Visitor.come(browser(), scene.broker);
    const tile = (label: string): string => `.tile:has(.label:text-is("${label}")) .value`;
    expect(await visitor.reads(tile("Running"), (text) => text === "11")).toBe("11");
    // 29 of the sweep, 500 held, the report and the two that need a gpu.
    expect(await visitor.reads(tile("Waiting"), (text) => text !== "–")).toBe("532");
    expect(await visitor.reads(tile("Slots in use"), (text) => text !== "–")).toBe("11 / 12");
    expect(await visitor.reads(tile("Workers"), (text) => text !== "–")).toBe("2");
    expect(await visitor.page.locator(".chart canvas").count()).toBe(4);
    const chart = visitor.page.getByRole("img", { name: /^Throughput, chart over time\. Now: succeeded/ });
    await chart.waitFor();
    const legends = `[...document.querySelectorAll(".legend")].map((legend) =>
      [...legend.querySelectorAll("i")].map((swatch) => getComputedStyle(swatch).backgroundColor))`;
    for (const colours of (await visitor.page.evaluate(legends)) as string[][])
      expect(new Set(colours).size).toBe(colours.length);
    await scene.client.ask("poolPause", { pool: "night", reason: "maintenance" });
    await visitor.sees("pool night is paused: maintenance");
    await scene.client.ask("poolResume", { pool: "night" });
    const problem = visitor.page.locator(".problems li", { hasText: "needs a gpu waits" });
    expect(await problem.textContent()).toContain("it needs 1 gpu, the most that a worker has is 0");
    await problem.getByRole("link").click();
    await visitor.sees("Why? It needs 1 gpu, the most that a worker has is 0.");
    await visitor.leave();
  });

  it("are filtered by what stands in the address, and the address by what is filtered", async () => {
    const visitor = await Visitor.come(browser(), scene.broker);
    await visitor.go("/ui/jobs?state=failed");
    await visitor.sees("fit-models");
    await visitor.seesNot("parameter sweep");
    await visitor.page.getByRole("navigation", { name: "State" }).getByRole("link", { name: "held" }).click();
    await visitor.sees("later");
    await visitor.seesNot("fit-models");
    expect(visitor.page.url()).toContain("/ui/jobs?state=held");
    await visitor.page.getByRole("link", { name: "all", exact: true }).click();
    await visitor.sees("parameter sweep");
    await visitor.page.getByRole("searchbox", { name: "Name" }).fill("report");
    await visitor.seesNot("parameter sweep");
    await visitor.page.waitForURL(/name=report/);
    await visitor.page.goBack();
    await visitor.sees("later");
    await visitor.leave();
  });

  it("show limits, and which jobs wait for them", async () => {
    const recipe = { kind: "command", argv: ["true"] } as const;
    const job = await scene.client.submit({ name: "limited", recipe, count: 7, limits: ["hourly", "nothing"] });
    const visitor = await Visitor.come(browser(), scene.broker);
    await visitor.page.getByRole("link", { name: "Limits" }).click();
    const row = visitor.page.locator("tbody tr", { hasText: "hourly" });
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
    await visitor.sees("hourly, nothing");
    await visitor.leave();
    await job.cancel();
  });

  it("show services with their figures, and what workers are told with its history", async () => {
    const visitor = await Visitor.come(browser(), scene.broker);
    await visitor.page.getByRole("link", { name: "Services" }).click();
    const row = visitor.page.locator("tbody tr", { hasText: "shout" });
    await row.waitFor();
    const cells = await row.locator("td").allTextContents();
    expect(cells[0]).toBe("shout");
    expect(cells[5]).toBe("0");
    expect(cells[6]).toBe("1");
    expect(cells[8]).toBe("20");
    await visitor.page.getByRole("link", { name: "Config" }).click();
    await visitor.sees('+ note: "second"');
    await visitor.sees('- note: "first"');
    await visitor.page.getByRole("button", { name: "Change", exact: true }).click();
    await visitor.page.getByRole("textbox", { name: "Settings as JSON" }).fill('{"note": "third"}');
    await visitor.page.getByRole("button", { name: "Set" }).click();
    await visitor.page.getByRole("dialog").getByRole("button", { name: "Set" }).click();
    await visitor.sees("version 3 is set");
    expect(await scene.client.ask("config", {})).toMatchObject({ version: 3, settings: { note: "third" } });
    await visitor.leave();
  });

  it("say so when the broker does not answer, and go on when it does", async () => {
    const visitor = await Visitor.come(browser(), scene.broker);
    await visitor.page.route("**/api/**", (route) => route.abort());
    await visitor.sees("the broker does not answer");
    await visitor.page.unroute("**/api/**");
    await until("it is forgotten", () => visitor.page.locator(".connection-alert").isHidden(), 60_000);
    visitor.forgive();
    await visitor.leave();
  });
}
