import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { openTestBroker, resultsOf } from "../support/test-broker.js";

const command = (line: string, log: string, dir: string) =>
  ({ kind: "command", argv: [line], shell: true, placeholders: true, log, dir }) as const;

describe("a recipe's log file", () => {
  it("gets both streams of each task, in a file of its own", async () => {
    const { dir, client, worker } = await openTestBroker();
    mkdirSync(join(dir, "logs"));
    worker();
    const recipe = command("echo out {#}; echo err {#} >&2", join(dir, "logs", "job_{#}.log"), dir);
    const job = await client.submit({ recipe, count: 3 });
    expect(await job.wait()).toBe("succeeded");
    expect(readdirSync(join(dir, "logs")).sort()).toEqual(["job_1.log", "job_2.log", "job_3.log"]);
    expect(
      readFileSync(join(dir, "logs", "job_2.log"), "utf8")
        .split("\n")
        .sort(),
    ).toEqual(["", "err 2", "out 2"]);
    expect((await client.job(job.id).info()).recipe.log).toBe(recipe.log);
  });

  it("is named by the number that a task has in its array", async () => {
    const { dir, client, worker } = await openTestBroker();
    worker();
    const recipe = { ...command("echo {#}", "job_{#}.log", dir), array: [{ first: 5, last: 9, step: 2 }] };
    expect(await (await client.submit({ recipe })).wait()).toBe("succeeded");
    const logs = readdirSync(dir).filter((name) => name.endsWith(".log"));
    expect(logs.sort()).toEqual(["job_5.log", "job_7.log", "job_9.log"]);
    expect(readFileSync(join(dir, "job_9.log"), "utf8")).toBe("9\n");
  });

  it("is never one that was there before, not even for the second try of a task", async () => {
    const { dir, client, worker } = await openTestBroker({ settings: { retryBackoffMs: 1 } });
    writeFileSync(join(dir, "job_1.log"), "earlier");
    worker();
    const job = await client.submit({ recipe: command("echo try; exit 1", "job_{#}.log", dir), retries: 1 });
    expect(await job.wait()).toBe("failed");
    const logs = readdirSync(dir).filter((name) => name.endsWith(".log"));
    expect(logs.sort()).toEqual(["job_1-1.log", "job_1-2.log", "job_1.log"]);
    expect(readFileSync(join(dir, "job_1.log"), "utf8")).toBe("earlier");
    expect(readFileSync(join(dir, "job_1-2.log"), "utf8")).toBe("try\n");
  });

  it("fails the task, with the reason, where its directory is not there", async () => {
    const { dir, client, worker } = await openTestBroker();
    worker();
    const log = join(dir, "nowhere", "job_{#}.log");
    const job = await client.submit({ recipe: command(`touch ${dir}/ran`, log, dir) });
    expect(await job.wait()).toBe("failed");
    const [result] = await resultsOf(job);
    expect(result?.error).toBe(`cannot open the log file "${join(dir, "nowhere", "job_1.log")}": no such directory`);
    expect(readdirSync(dir)).not.toContain("ran");
  });
});
