/** A job and its tasks: the picture, the list, output as it comes, and what can be done. */

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { defineTask } from "../../../src/entries/client.js";
import { sh } from "../../support/recipes.js";
import { until } from "../../support/wait.js";
import { DashboardPage, PATIENCE_MS } from "../dashboard-page.js";
import { type Jobs, Scene, submitJobs } from "../scene.js";

export function describeJob(browser: () => Browser): void {
  let scene: Scene;
  let jobs: Jobs;
  beforeAll(async () => {
    scene = await Scene.open();
    await scene.worker({ name: "anna", slots: 4 });
    jobs = await submitJobs(scene);
  });
  afterAll(() => scene?.close());

  it("shows what has failed first, and its output in its colours, as text and nothing else", async () => {
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    await dashboard.go(`/ui/jobs/${jobs.failed.id}`);
    await dashboard.page.getByRole("gridcell", { name: "exit 3" }).first().waitFor();
    expect(await dashboard.page.locator(".counts").textContent()).toContain("succeeded 18 75%failed 6 25%");
    const picture = dashboard.page.getByRole("img", { name: /^Task map: tasks 6 failed, 18 succeeded/ });
    await picture.waitFor();
    await dashboard.page
      .getByRole("row", { name: /exit 3/ })
      .first()
      .click();
    await dashboard.sees("It has failed on anna: exit code 3.");
    await dashboard.sees("loading 100%");
    expect(dashboard.page.url()).toContain(`/ui/jobs/${jobs.failed.id}/tasks/4`);
    const output = dashboard.page.getByRole("log");
    await output.getByText("no convergence").waitFor();
    // The line was written over, and what looks like HTML is text.
    expect(await output.textContent()).not.toContain("loading 10%");
    expect(await output.textContent()).toContain("<b>not bold</b> &amp;");
    expect(await output.locator("b").count()).toBe(0);
    expect(await output.locator(".ansi-bold.ansi-fg-1").textContent()).toBe("error:");
    await dashboard.close();
  });

  it("shows how far a handler is, as it goes on", async () => {
    const scan = defineTask<null, string>("scan");
    const worker = await scene.worker({ name: "hugo", pool: "handlers", slots: 1 });
    const steps: (() => void)[] = [];
    worker.handle(scan, async (_input, { progress }) => {
      for (const page of ["first", "second"]) {
        progress({ page });
        await new Promise<void>((resolve) => steps.push(resolve));
      }
      return "scanned";
    });
    const job = await scene.client.add(scan, null, { pool: "handlers" });
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    await dashboard.go(`/ui/jobs/${job.id}?state=running`);
    const tasks = dashboard.page.getByRole("grid", { name: "Tasks" });
    await tasks.getByText('{"page":"first"}').waitFor();
    steps[0]?.();
    await tasks.getByText('{"page":"second"}').waitFor();
    steps[1]?.();
    expect(await job.result()).toBe("scanned");
    await dashboard.close();
    await worker.stop();
  });

  it("shows what a handler returned, and the stack of what it threw with its causes", async () => {
    const parse = defineTask<string, { words: string[] }>("parse");
    const worker = await scene.worker({ name: "ines", pool: "parsers", slots: 1 });
    worker.handle(parse, (text, { progress }) => {
      progress("begun");
      if (text === "")
        throw Object.assign(new TypeError("nothing to parse", { cause: new Error("an empty line") }), {
          code: "EMPTY",
        });
      return { words: text.split(" ") };
    });
    const job = await scene.client.addMany(parse, ["two words", ""], { pool: "parsers" });
    await job.wait();
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    const value = dashboard.page.getByLabel("What the handler returned or threw");
    await dashboard.go(`/ui/jobs/${job.id}/tasks/1`);
    await dashboard.sees('"two",');
    expect(JSON.parse((await value.textContent()) ?? "")).toEqual({ words: ["two", "words"] });
    await dashboard.go(`/ui/jobs/${job.id}/tasks/2`);
    await dashboard.sees("TypeError: nothing to parse");
    expect(await value.textContent()).toMatch(/suite\/job\.ts[\s\S]*code: EMPTY\ncaused by Error: an empty line/);
    await dashboard.go(`/ui/jobs/${jobs.failed.id}/tasks/4`);
    await dashboard.sees("exit code 3");
    expect(await value.isVisible()).toBe(false);
    await dashboard.go("/ui/");
    await dashboard.sees(`job ${job.id} has failed, 1 task failed`);
    expect(await dashboard.page.locator(".recent-events").textContent()).not.toContain("progress");
    await dashboard.close();
  });

  it("takes no room for the map of tasks before it is known", async () => {
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    await dashboard.page.route(/\/jobs\/\d+\/map/, () => {});
    await dashboard.go(`/ui/jobs/${jobs.failed.id}`);
    await dashboard.sees("no convergence for seed 7");
    expect((await dashboard.page.locator(".map-canvas").boundingBox())?.height).toBe(0);
    await dashboard.close();
  });

  it("runs nothing of what a submitter has written", async () => {
    const name = "<img src=x onerror=alert(1)><script>alert(2)</script>";
    const entry = "<svg onload=alert(3)>";
    const job = await scene.client.submit({
      name,
      recipe: { kind: "command", argv: ["echo", "{}"], placeholders: true },
      entries: [entry],
      held: true,
    });
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    dashboard.page.on("dialog", () => {
      throw new Error("a script of the submitter's ran");
    });
    await dashboard.go(`/ui/jobs/${job.id}/tasks/1`);
    await dashboard.sees(name);
    await dashboard.sees(`echo '${entry}'`);
    await dashboard.go("/ui/jobs");
    await dashboard.sees(name);
    expect(await dashboard.page.locator("main img, main script").count()).toBe(0);
    await dashboard.close();
    await job.cancel();
  });

  it("that waits says why, for which jobs, and which wait for it; its waiting tasks are listed", async () => {
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    const { page } = dashboard;
    const fact = (name: string) => page.locator(".job-head .facts div", { hasText: name }).locator("dd");
    await dashboard.go(`/ui/jobs/${jobs.blocked.id}`);
    await dashboard.sees(`Why is it blocked? Its job waits for job ${jobs.running.id}.`);
    await dashboard.shoot("blocked-light");
    await fact("Waits for").getByRole("link").click();
    await page.getByRole("heading", { name: "parameter sweep" }).waitFor();
    expect(await fact("Waiting for it").textContent()).toBe(`job ${jobs.blocked.id}`);
    await page
      .getByRole("navigation", { name: "Which tasks" })
      .getByRole("link", { name: /^waiting/ })
      .click();
    await page.getByRole("grid", { name: "Tasks" }).getByText("6", { exact: true }).waitFor();
    expect(await page.locator(".job-head .reason").isVisible()).toBe(false);
    await dashboard.go(`/ui/jobs/${jobs.stuck.id}`);
    await dashboard.sees("Why is it waiting? It needs 1 gpu, the most that a worker has is 0.");
    await dashboard.close();
  });

  it("follows output while it comes", async () => {
    const next = join(scene.dir, "next");
    const job = await scene.client.submit({
      name: "talker",
      priority: 10,
      recipe: sh(`echo first; while [ ! -e ${next} ]; do sleep 0.1; done; echo second; sleep 600`),
    });
    await jobs.running.cancel();
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    await dashboard.go(`/ui/jobs/${job.id}/tasks/1`);
    const output = dashboard.page.getByRole("log");
    await output.getByText("first").waitFor();
    expect(await output.textContent()).not.toContain("second");
    writeFileSync(next, "");
    await output.getByText("second").waitFor();
    await dashboard.close();
    await job.cancel();
  });

  it("is held, released, cancelled and run again, each after a question that can be declined", async () => {
    const job = await scene.client.submit({ name: "steered", recipe: sh("sleep 600"), count: 3, tags: ["nobody"] });
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    const { page } = dashboard;
    const state = async (): Promise<string> => (await job.info()).state;
    await dashboard.go(`/ui/jobs/${job.id}`);
    const dialog = page.getByRole("dialog");
    await page.getByRole("button", { name: "Hold" }).click();
    await dialog.getByText("None of its 3 waiting tasks is started").waitFor();
    await page.keyboard.press("Escape");
    expect(await state()).toBe("waiting");
    await page.getByRole("button", { name: "Hold" }).click();
    await dialog.getByRole("button", { name: "Hold job" }).click();
    await dashboard.sees(`job ${job.id} is held`);
    expect(await state()).toBe("held");
    await page.getByRole("button", { name: "Release" }).click();
    await dialog.getByRole("button", { name: "Release job" }).click();
    await until("it is released", async () => (await state()) === "waiting", PATIENCE_MS);
    await page.getByRole("button", { name: "Cancel", exact: true }).click();
    await dialog.getByLabel("Reason").fill("wrong seed");
    await dialog.getByRole("button", { name: "Cancel job" }).click();
    await until("it is cancelled", async () => (await state()) === "cancelled", PATIENCE_MS);
    await dashboard.sees("wrong seed");
    expect((await job.info()).reason).toBe("wrong seed");
    await page.getByRole("button", { name: "Rerun failed" }).click();
    await dialog.getByText("3 tasks that were cancelled will run again").waitFor();
    await dialog.getByRole("button", { name: "Run again" }).click();
    await until("it waits again", async () => (await state()) === "waiting", PATIENCE_MS);
    await dashboard.close();
    await job.cancel();
  });

  it("has its directory, the names in its environment and how long tasks took; tasks are found by entry and rerun together", async () => {
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    const { page } = dashboard;
    await dashboard.go(`/ui/jobs/${jobs.failed.id}`);
    await page.getByRole("img", { name: /^Durations of 24 tasks from/ }).waitFor();
    const head = (await page.locator(".job-head").textContent()) ?? "";
    expect(head).toContain("Directory/EnvironmentDATASET OMP_NUM_THREADS");
    // Its end, which a summary leaves out.
    expect(head).toContain("exit $(( LABORO_TASK % 4 == 0 ? 3 : 0 ))'");
    expect(await page.content()).not.toContain("secret-1");
    await dashboard.reads(".job-head .facts", (text) => /Rate[\d.]+/.test(text));
    await page.getByRole("searchbox", { name: "Find by entry" }).fill("rate=0.3");
    const rows = page.getByRole("grid", { name: "Tasks" }).locator(".grid-body .grid-row");
    await until("two are found", async () => (await rows.count()) === 2, PATIENCE_MS);
    const row = (number: number) =>
      expect.stringMatching(new RegExp(`^${number}seed=${number} rate=0.3exit 3[\\d.]+m?sanna$`));
    expect(await rows.allTextContents()).toEqual([row(12), row(24)]);
    expect(page.url()).toContain("entry=rate%3D0.3");
    await page.getByRole("button", { name: "Choose all listed tasks" }).click();
    await page.getByRole("group", { name: "Chosen tasks" }).getByRole("button", { name: "Rerun" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Rerun 2 tasks" }).click();
    await dashboard.sees(`2 tasks of job ${jobs.failed.id} will run again`);
    await until(
      "their second attempts are listed",
      async () => (await rows.allTextContents()).filter((row) => row.endsWith("2anna")).length === 2,
      PATIENCE_MS,
    );
    await dashboard.close();
  });

  it("is chosen from a list with others, by box or with Space, and cancelled with them", async () => {
    const submit = (name: string, open = false) =>
      scene.client.submit({ name, recipe: sh("true"), held: true, ...(open ? { open } : {}) });
    const [one, two, three] = [await submit("bulk 1"), await submit("bulk 2"), await submit("other", true)];
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    const { page } = dashboard;
    await dashboard.go("/ui/jobs?name=bulk");
    await page.getByRole("checkbox", { name: `Choose job ${one.id}` }).check();
    await dashboard.sees("1 job chosen");
    await page.getByRole("button", { name: "Choose all listed jobs" }).click();
    await page.getByRole("group", { name: "Chosen jobs" }).getByRole("button", { name: "Cancel" }).click();
    await dashboard.shoot("bulk-light");
    await page.getByRole("dialog").getByRole("button", { name: "Cancel 2 jobs" }).click();
    await dashboard.sees("2 jobs cancelled");
    const states = await Promise.all([one, two, three].map(async (job) => (await job.info()).state));
    expect(states).toEqual(["cancelled", "cancelled", "held"]);
    await dashboard.go(`/ui/jobs/${three.id}`);
    await page.getByRole("button", { name: "Close" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Close job" }).click();
    await dashboard.sees(`job ${three.id} takes no more tasks`);
    expect((await three.info()).open).toBeUndefined();
    await three.cancel();
    await dashboard.go(`/ui/jobs/${jobs.failed.id}?show=succeeded`);
    await page.getByRole("row", { name: /seed=1 / }).waitFor();
    await page.getByRole("grid", { name: "Tasks" }).focus();
    await dashboard.press("ArrowDown", " ", "ArrowDown", " ");
    await dashboard.sees("2 tasks chosen");
    await dashboard.close();
  });

  it("lists what was cancelled, also tasks that never ran, and cancels tasks that are chosen", async () => {
    const job = await scene.client.submit({
      recipe: { kind: "command", argv: ["sh", "-c", "sleep 600", "{}"], placeholders: true },
      entries: ["a", "b", "c", "d", "e"],
      priority: 20,
      maxRunning: 1,
    });
    await until("the first runs", async () => (await job.info()).counters.running === 1, PATIENCE_MS);
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    const { page } = dashboard;
    const rows = page.getByRole("grid", { name: "Tasks" }).locator(".grid-body .grid-row");
    await dashboard.go(`/ui/jobs/${job.id}?show=waiting`);
    await page.getByRole("checkbox", { name: "Choose task 3" }).check();
    await page.getByRole("checkbox", { name: "Choose task 5" }).check();
    await page.getByRole("group", { name: "Chosen tasks" }).getByRole("button", { name: "Cancel" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Cancel 2 tasks" }).click();
    await dashboard.sees(`2 tasks of job ${job.id} are cancelled`);
    await dashboard.go(`/ui/jobs/${job.id}?show=cancelled`);
    await until("both are listed", async () => (await rows.count()) === 2, PATIENCE_MS);
    expect(await rows.allTextContents()).toEqual(["3cnever ran", "5enever ran"]);
    await job.cancel();
    await until("all are listed", async () => (await rows.count()) === 5, PATIENCE_MS);
    await until(
      "the first has its end",
      async () => /^1aSIG/.test((await rows.allTextContents())[0] ?? ""),
      PATIENCE_MS,
    );
    await page.getByRole("searchbox", { name: "Find by entry" }).fill("d");
    await until("one is found", async () => (await rows.allTextContents()).join() === "4dnever ran", PATIENCE_MS);
    await dashboard.close();
  });

  it("says when it will have ended, and how long half of its tasks took, and 95%", async () => {
    const job = await scene.client.submit({
      recipe: { ...sh("case $LABORO_TASK in 4) sleep 600;; esac") },
      count: 8,
      priority: 30,
      maxRunning: 1,
    });
    await until("three have ended", async () => (await job.info()).counters.succeeded === 3, PATIENCE_MS);
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    await dashboard.go(`/ui/jobs/${job.id}`);
    await dashboard.reads(".job-head .facts", (text) => /Remainingabout [\d.]+/.test(text));
    await dashboard.page.getByRole("img", { name: /^Durations of 3 tasks from/ }).waitFor();
    await dashboard.reads("main", (text) => /p50 [\d.]+ ?m?s, p95 [\d.]+ ?m?s/.test(text));
    await dashboard.close();
    await job.cancel();
  });

  it("is held, released and run again together with others of a list", async () => {
    const submit = () => scene.client.submit({ name: "together", recipe: sh("true"), tags: ["nobody"] });
    const both = [await submit(), await submit()];
    const states = async () => (await Promise.all(both.map((job) => job.info()))).map(({ state }) => state).join();
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    const { page } = dashboard;
    const act = async (name: string, after: string): Promise<void> => {
      await dashboard.go("/ui/jobs?name=together");
      await page
        .getByRole("row", { name: /together/ })
        .nth(1)
        .waitFor();
      await page.getByRole("button", { name: "Choose all listed jobs" }).click();
      await page.getByRole("group", { name: "Chosen jobs" }).getByRole("button", { name, exact: true }).click();
      await page
        .getByRole("dialog")
        .getByRole("button", { name: `${name} 2 jobs` })
        .click();
      await until(`${name}: ${after}`, async () => (await states()) === `${after},${after}`, PATIENCE_MS);
    };
    await act("Hold", "held");
    await act("Release", "waiting");
    await act("Cancel", "cancelled");
    await act("Rerun", "waiting");
    for (const job of both) await job.cancel();
    await dashboard.close();
  });

  it("has a picture that is walked by keys, and opens the task under the mark", async () => {
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    await dashboard.go(`/ui/jobs/${jobs.failed.id}`);
    await dashboard.page.getByRole("img", { name: /^Task map: tasks/ }).focus();
    await dashboard.press("ArrowRight", "ArrowRight", "ArrowRight");
    await dashboard.sees("task 3: succeeded");
    await dashboard.press("ArrowRight");
    await dashboard.sees("task 4: failed");
    await dashboard.press("Enter");
    await dashboard.page.getByRole("heading", { name: `Task ${jobs.failed.id}.4` }).waitFor();
    await dashboard.close();
  });

  it("of an array has its tasks by their numbers: in the address, in the map, and where one is not there", async () => {
    const array = [{ first: 5, last: 9, step: 2 }];
    const job = await scene.client.submit({ recipe: { ...sh("true"), array }, held: true });
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    await dashboard.go(`/ui/jobs/${job.id}`);
    await dashboard.page.getByRole("img", { name: /^Task map: tasks/ }).focus();
    await dashboard.press("ArrowRight", "ArrowRight");
    await dashboard.sees("task 7: waiting");
    await dashboard.press("Enter");
    await dashboard.page.getByRole("heading", { name: `Task ${job.id}.7` }).waitFor();
    expect(dashboard.page.url()).toContain(`/ui/jobs/${job.id}/tasks/7`);
    await dashboard.page.getByLabel("Go to task").fill("6");
    await dashboard.page.getByLabel("Go to task").press("Enter");
    await dashboard.sees(`Job ${job.id} has tasks 5, 7, 9, not 6.`);
    await dashboard.close();
    await job.cancel();
  });

  it("that is not there is said to be not there", async () => {
    const dashboard = await DashboardPage.open(browser(), scene.broker);
    await dashboard.go("/ui/jobs/4711");
    await dashboard.sees("There is no job 4711");
    dashboard.forgive();
    await dashboard.close();
  });
}
