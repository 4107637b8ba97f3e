import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { TRUE } from "../support/recipes.js";
import { until } from "../support/wait.js";
import { openCliBroker } from "./support/cli.js";

describe("laboro edit", () => {
  it("changes priority, limits and name of a job", async () => {
    const setup = await openCliBroker();
    await setup.client.submit({ recipe: TRUE });
    const options = ["--priority", "-5", "--max-running", "10", "--time-limit", "90", "--name", "later"];
    const { code, stdout } = await setup.laboro(["edit", "last", ...options], { process: true });
    expect([code, stdout]).toEqual([0, "job 1: priority -5, at most 10 at once, 1m30s a task, name later\n"]);
    const limits = { maxRunning: 10, timeLimitMs: 90_000, retries: 0 };
    expect(await setup.client.job(1).info()).toMatchObject({ priority: -5, name: "later", limits });
  });

  it("lets a running job use more slots at once", async () => {
    const setup = await openCliBroker();
    setup.worker({ slots: 3 });
    const job = await setup.client.submit({
      recipe: { kind: "command", argv: ["sleep", "60"] },
      count: 3,
      maxRunning: 1,
    });
    await until("one runs", async () => (await job.info()).counters.running === 1);
    await setup.laboro(["edit", "1", "--max-running", "3"]);
    await until("all run", async () => (await job.info()).counters.running === 3);
    await job.cancel();
  });

  it("refuses what it cannot change, and says why", async () => {
    const setup = await openCliBroker();
    await (await setup.client.submit({ recipe: TRUE })).cancel();
    await setup.client.submit({ recipe: TRUE });
    const stderrOf = async (...words: string[]) => (await setup.laboro(["edit", ...words])).stderr;
    expect(await stderrOf("2")).toContain("nothing to change: give --priority,");
    expect(await stderrOf("1", "--priority", "1")).toContain("job 1 has ended already: cancelled (LABORO_JOB_ENDED)");
    expect(await stderrOf("2", "--priority", "5000")).toContain(
      "--priority <n>' argument '5000' is invalid. expected a whole number from -1000 to 1000",
    );
    expect(await stderrOf("2", "--max-running", "0")).toContain("--max-running <n>' argument '0' is invalid");
  });
});

describe("laboro submit --open", () => {
  it("takes entries until it is closed, and then ends", async () => {
    const setup = await openCliBroker();
    setup.worker();
    expect(await setup.laboro(["submit", "--open", "echo", "got"])).toMatchObject({ code: 0, stdout: "1\n" });
    expect(await setup.client.job(1).info()).toMatchObject({ open: true, count: 0, state: "waiting" });
    const file = join(setup.dir, "list");
    writeFileSync(file, "c\nd\n");
    await setup.laboro(["submit", "--job", "1", ":::", "a", "b"]);
    const more = await setup.laboro(["submit", "--job", "last", "--each-line", file, "--json"]);
    expect(JSON.parse(more.stdout)).toEqual({ job: 1, first: 2, count: 2 });
    await until("all have ended", async () => (await setup.client.job(1).info()).counters.succeeded === 4);
    const status = (await setup.laboro(["status", "1"])).stdout;
    expect(status).toContain("it takes more tasks until laboro close 1");
    expect((await setup.laboro(["explain", "1.5"])).stderr).toContain("job 1 has tasks 1 to 4, not 5");
    expect((await setup.laboro(["close", "1"])).stdout).toBe("job 1 takes no more tasks\n");
    expect((await setup.laboro(["wait", "1"])).code).toBe(0);
    expect(await setup.client.job(1).text(3)).toBe("got d\n");
  });

  it("takes no more ranges of numbers than workers read, and joins those that follow each other", async () => {
    const setup = await openCliBroker();
    const recipe = { kind: "command" as const, argv: ["echo", "{}"], placeholders: true };
    const { id: job } = await setup.client.submit({
      recipe: { ...recipe, array: [{ first: 1, last: 1 }] },
      open: true,
      held: true,
    });
    const apart = (from: number, count: number) =>
      Array.from({ length: count }, (_, i) => ({ first: from + 2 * i, last: from + 2 * i }));
    await setup.client.ask("append", { job, array: apart(101, 9_998) });
    await setup.client.ask("append", { job, array: [{ first: 50, last: 60 }] });
    await expect(setup.client.ask("append", { job, array: [{ first: 70, last: 70 }] })).rejects.toThrow(
      "array: expected at most 10000 ranges in all, such as 1-500, got 10001",
    );
    expect(await setup.client.ask("append", { job, array: [{ first: 61, last: 62 }] })).toEqual({
      first: 10_010,
      count: 2,
    });
    await setup.client.ask("close", { job });
    await setup.client.job(job).cancel([{ first: 0, last: 10_010 }]);
    await setup.client.job(job).release();
    setup.worker();
    await setup.client.job(job).wait();
    expect(await setup.client.job(job).text(10_011)).toBe("62\n");
  });

  it("takes a list without entries, which adds nothing", async () => {
    const setup = await openCliBroker();
    const job = await setup.client.submit({ recipe: TRUE, entries: [], open: true });
    expect(await job.append({ entries: [] })).toEqual({ first: 0, count: 0 });
    await job.close();
    expect(await job.wait()).toBe("succeeded");
  });

  it("is said by wait, and closed by more failures than --max-fails", async () => {
    const setup = await openCliBroker();
    setup.worker();
    await setup.laboro(["submit", "--open", "--max-fails", "1", "false {}", ":::", "a"]);
    const late = await setup.laboro(["wait", "1", "--timeout", "10ms"]);
    expect([late.code, late.stderr]).toEqual([
      1,
      expect.stringContaining("job 1 takes more tasks: it ends after laboro"),
    ]);
    await until("it has failed", async () => (await setup.client.job(1).info()).counters.failed === 1);
    await setup.laboro(["submit", "--job", "1", ":::", "b", "c"]);
    expect(await setup.client.job(1).wait()).toBe("failed");
    expect((await setup.laboro(["submit", "--job", "1", ":::", "d"])).stderr).toContain("LABORO_JOB_ENDED");
  });

  it("refuses a halt rule in percent: how many tasks it will have is not known", async () => {
    const setup = await openCliBroker();
    const { code, stderr } = await setup.laboro(["submit", "--open", "--halt", "soon,fail=10%", "true", ":::", "a"]);
    expect({ code, stderr }).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("--halt fail=10%: a job with --open"),
    });
    expect((await setup.laboro(["submit", "--open", "--halt", "soon,fail=3", "true"])).code).toBe(0);
  });

  it("alone takes whole commands", async () => {
    const setup = await openCliBroker();
    setup.worker();
    await setup.laboro(["submit", "--open"]);
    await setup.laboro(["submit", "--job", "1", ":::", "echo $((1+1))", "echo two"]);
    await setup.laboro(["close", "1"]);
    expect(await setup.client.job(1).wait()).toBe("succeeded");
    expect([await setup.client.job(1).text(0), await setup.client.job(1).text(1)]).toEqual(["2\n", "two\n"]);
  });

  it("of an array takes numbers that it does not have", async () => {
    const setup = await openCliBroker();
    setup.worker();
    await setup.laboro(["submit", "--open", "--array", "1-2", "echo {}"]);
    await until("both have ended", async () => (await setup.client.job(1).info()).counters.succeeded === 2);
    await setup.laboro(["submit", "--job", "1", "--array", "20,30"]);
    await setup.laboro(["close", "1"]);
    await setup.client.job(1).wait();
    expect((await setup.laboro(["logs", "1.30"])).stdout).toBe("30\n");
    await setup.laboro(["submit", "--open", "--array", "1-2", "echo {}"]);
    const { stderr } = await setup.laboro(["submit", "--job", "2", "--array", "2-4"]);
    expect(stderr).toContain(
      "array: expected numbers that job 2 does not have, but 2 is named twice (LABORO_BAD_INPUT)",
    );
  });

  it("is closed by a cancel", async () => {
    const setup = await openCliBroker();
    await setup.laboro(["submit", "--open", "true", ":::", "a"]);
    await setup.laboro(["cancel", "1"]);
    expect(await setup.client.job(1).wait()).toBe("cancelled");
  });

  it("refuses tasks for other jobs, and options that belong to the whole job", async () => {
    const setup = await openCliBroker();
    await setup.laboro(["submit", "true", ":::", "a"]);
    const stderrOf = async (...words: string[]) => (await setup.laboro(["submit", "--job", "1", ...words])).stderr;
    expect(await stderrOf(":::", "b")).toContain("job 1 takes no more tasks");
    expect(await stderrOf("echo", ":::", "b")).toContain("give only entries, such as --job 3 ::: a b");
    expect(await stderrOf("--priority", "3", ":::", "b")).toContain("--priority cannot be used with --job");
    await setup.laboro(["submit", "--open", "true", ":::", "a"]);
    const { stderr } = await setup.laboro(["submit", "--job", "2", "--array", "1-3"]);
    expect(stderr).toContain("entries: job 2 takes more tasks by entries, got none");
  });
});
