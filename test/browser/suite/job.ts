/** A job and its tasks: the picture, the list, output as it comes, and what can be done. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { until } from "../../support/wait.js";
import { type Jobs, Scene, sh, submitJobs } from "../scene.js";
import { PATIENCE_MS, Visitor } from "../visitor.js";

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
    const visitor = await Visitor.come(browser(), scene.broker);
    await visitor.go(`/ui/jobs/${jobs.failed.id}`);
    await visitor.page.getByRole("gridcell", { name: "exit 3" }).first().waitFor();
    expect(await visitor.page.locator(".counts").textContent()).toContain("succeeded 18 75%failed 6 25%");
    const picture = visitor.page.getByRole("img", { name: /^Task map: tasks 6 failed, 18 succeeded/ });
    await picture.waitFor();
    await visitor.page
      .getByRole("row", { name: /exit 3/ })
      .first()
      .click();
    await visitor.sees("It has failed on anna: exit code 3.");
    await visitor.sees("loading 100%");
    expect(visitor.page.url()).toContain(`/ui/jobs/${jobs.failed.id}/tasks/4`);
    const output = visitor.page.getByRole("log");
    await output.getByText("no convergence").waitFor();
    // The line was written over, and what looks like HTML is text.
    expect(await output.textContent()).not.toContain("loading 10%");
    expect(await output.textContent()).toContain("<b>not bold</b> &amp;");
    expect(await output.locator("b").count()).toBe(0);
    expect(await output.locator(".ansi-bold.ansi-fg-1").textContent()).toBe("error:");
    await visitor.leave();
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
    const visitor = await Visitor.come(browser(), scene.broker);
    visitor.page.on("dialog", () => {
      throw new Error("a script of the submitter's ran");
    });
    await visitor.go(`/ui/jobs/${job.id}/tasks/1`);
    await visitor.sees(name);
    await visitor.sees(entry);
    await visitor.go("/ui/jobs");
    await visitor.sees(name);
    expect(await visitor.page.locator("main img, main script").count()).toBe(0);
    await visitor.leave();
    await job.cancel();
  });

  it("follows output while it comes", async () => {
    const next = join(scene.dir, "next");
    const job = await scene.client.submit({
      name: "talker",
      priority: 10,
      recipe: sh(`echo first; while [ ! -e ${next} ]; do sleep 0.1; done; echo second; sleep 600`),
    });
    await jobs.running.cancel();
    const visitor = await Visitor.come(browser(), scene.broker);
    await visitor.go(`/ui/jobs/${job.id}/tasks/1`);
    const output = visitor.page.getByRole("log");
    await output.getByText("first").waitFor();
    expect(await output.textContent()).not.toContain("second");
    writeFileSync(next, "");
    await output.getByText("second").waitFor();
    await visitor.leave();
    await job.cancel();
  });

  it("is held, released, cancelled and run again, each after a question that can be declined", async () => {
    const job = await scene.client.submit({ name: "steered", recipe: sh("sleep 600"), count: 3, tags: ["nobody"] });
    const visitor = await Visitor.come(browser(), scene.broker);
    const { page } = visitor;
    const state = async (): Promise<string> => (await job.info()).state;
    await visitor.go(`/ui/jobs/${job.id}`);
    const dialog = page.getByRole("dialog");
    await page.getByRole("button", { name: "Hold" }).click();
    await dialog.getByText("None of its 3 waiting tasks is started").waitFor();
    await page.keyboard.press("Escape");
    expect(await state()).toBe("waiting");
    await page.getByRole("button", { name: "Hold" }).click();
    await dialog.getByRole("button", { name: "Hold job" }).click();
    await visitor.sees(`job ${job.id} is held`);
    expect(await state()).toBe("held");
    await page.getByRole("button", { name: "Release" }).click();
    await dialog.getByRole("button", { name: "Release job" }).click();
    await until("it is released", async () => (await state()) === "waiting", PATIENCE_MS);
    await page.getByRole("button", { name: "Cancel", exact: true }).click();
    await dialog.getByLabel("Reason").fill("wrong seed");
    await dialog.getByRole("button", { name: "Cancel job" }).click();
    await until("it is cancelled", async () => (await state()) === "cancelled", PATIENCE_MS);
    await visitor.sees("wrong seed");
    expect((await job.info()).reason).toBe("wrong seed");
    await page.getByRole("button", { name: "Rerun failed" }).click();
    await dialog.getByText("3 tasks that were cancelled will run again").waitFor();
    await dialog.getByRole("button", { name: "Run again" }).click();
    await until("it waits again", async () => (await state()) === "waiting", PATIENCE_MS);
    await visitor.leave();
    await job.cancel();
  });

  it("has a picture that is walked by keys, and opens the task under the mark", async () => {
    const visitor = await Visitor.come(browser(), scene.broker);
    await visitor.go(`/ui/jobs/${jobs.failed.id}`);
    await visitor.page.getByRole("img", { name: /^Task map: tasks/ }).focus();
    await visitor.press("ArrowRight", "ArrowRight", "ArrowRight");
    await visitor.sees("task 3: succeeded");
    await visitor.press("ArrowRight");
    await visitor.sees("task 4: failed");
    await visitor.press("Enter");
    await visitor.page.getByRole("heading", { name: `Task ${jobs.failed.id}.4` }).waitFor();
    await visitor.leave();
  });

  it("of an array has its tasks by their numbers: in the address, in the map, and where one is not there", async () => {
    const array = [{ first: 5, last: 9, step: 2 }];
    const job = await scene.client.submit({ recipe: { ...sh("true"), array }, held: true });
    const visitor = await Visitor.come(browser(), scene.broker);
    await visitor.go(`/ui/jobs/${job.id}`);
    await visitor.page.getByRole("img", { name: /^Task map: tasks/ }).focus();
    await visitor.press("ArrowRight", "ArrowRight");
    await visitor.sees("task 7: waiting");
    await visitor.press("Enter");
    await visitor.page.getByRole("heading", { name: `Task ${job.id}.7` }).waitFor();
    expect(visitor.page.url()).toContain(`/ui/jobs/${job.id}/tasks/7`);
    await visitor.page.getByLabel("Go to task").fill("6");
    await visitor.page.getByLabel("Go to task").press("Enter");
    await visitor.sees(`Job ${job.id} has tasks 5, 7, 9, not 6.`);
    await visitor.leave();
    await job.cancel();
  });

  it("that is not there is said to be not there", async () => {
    const visitor = await Visitor.come(browser(), scene.broker);
    await visitor.go("/ui/jobs/4711");
    await visitor.sees("There is no job 4711");
    visitor.forgive();
    await visitor.leave();
  });
}
