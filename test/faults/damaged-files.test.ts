import * as fs from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { startWorker } from "../../src/entries/worker.js";
import { account, RunLog, resultsOf } from "../support/batch.js";
import { report } from "../support/fault-batch.js";
import { CALL_NOTHING, NOTHING, TRUE } from "../support/recipes.js";
import { type Site, sites } from "../support/site.js";
import { until } from "../support/wait.js";

const newSite = sites();

function flipBit(path: string, at: number): void {
  const bytes = fs.readFileSync(path);
  bytes[at] = (bytes[at] ?? 0) ^ 0x40;
  fs.writeFileSync(path, bytes);
}

const cutTail = (path: string, bytes: number): void => fs.truncateSync(path, fs.statSync(path).size - bytes);

describe("a damaged database", () => {
  const PAGE = 4096;
  it.each([
    ["a flipped bit", (path: string) => flipBit(path, 2 * PAGE)],
    ["a cut tail", (path: string) => cutTail(path, PAGE + 100)],
  ])("with %s is refused and left as it is; put back, nothing is missing", async (what, damage) => {
    const site = newSite();
    await site.startBroker();
    const worker = startWorker({ broker: site.url, token: site.token, dir: site.path("one"), services: NOTHING });
    site.atEnd(() => worker.stop({ graceMs: 0 }));
    const client = await site.client();
    const done = await client.submit({ recipe: CALL_NOTHING, count: 3_000 });
    await done.wait();
    const held = await client.submit({ recipe: TRUE, entries: ["a", "b"], held: true });
    await site.broker.end("SIGTERM");

    const database = join(site.data, "store.db");
    const whole = fs.readFileSync(database);
    damage(database);
    const damaged = fs.readFileSync(database);
    const refused = await site.launchBroker();
    await refused.ended();
    expect(refused.exitCode).not.toBe(0);
    expect(refused.said).toContain("LABORO_DATA_CORRUPT");
    expect(refused.said).toContain("store.db");
    expect(fs.readFileSync(database).equals(damaged)).toBe(true);

    fs.writeFileSync(database, whole);
    await site.startBroker();
    const { lost } = await account(client, done.id, 3_000);
    report({
      fault: `database with ${what}`,
      submissionsLost: 0,
      resultsLost: lost.length,
      outputsLost: 0,
      recordedTwice: 0,
      startedTwice: 0,
      note: "refused; the file put back from a copy",
    });
    expect(lost).toEqual([]);
    await client.job(held.id).release();
    expect(await client.job(held.id).wait()).toBe("succeeded");
  });

  it("whose log lost its tail in a crash costs at most the last commits: every task still ends once", async () => {
    const site = newSite();
    await site.startBroker();
    await site.startWorker("one", { slots: 2 });
    const client = await site.client();
    const log = new RunLog(site.path("runs"));
    const count = 400;
    const job = await client.submit({ recipe: log.recipe(), count });
    await until("some have run", () => log.count > 100);
    await site.broker.end("SIGKILL");
    cutTail(join(site.data, "store.db-wal"), 3_000);
    await site.startBroker();
    expect(await job.wait()).toBe("succeeded");
    const { results, lost, runTwice } = await account(client, job.id, count, log);
    console.log(`database log with a cut tail: lost: ${lost.length}, run twice: ${runTwice.length}`);
    expect(results).toHaveLength(count);
    expect(lost).toEqual([]);
  });
});

describe("a damaged output segment", () => {
  const TASKS = 5;
  /** More than goes with a result. */
  const WORDS = 700;
  const outputOf = (index: number): string => `${`task ${index} `.repeat(WORDS)}\n`;

  /** Five tasks with output in a job that goes on, and a broker that is down. */
  async function stoppedWithOutput(site: Site) {
    await site.startBroker();
    await site.startWorker("one");
    const client = await site.client();
    const go = site.path("go");
    const line = `task=$((LABORO_TASK - 1)); [ $task -lt ${TASKS} ] || { while [ ! -e '${go}' ]; do sleep 0.02; done; exit; }
      i=0; while [ $i -lt ${WORDS} ]; do printf 'task %d ' $task; i=$((i+1)); done; echo`;
    const job = await client.submit({ recipe: { kind: "command", argv: ["sh", "-c", line] }, count: TASKS + 1 });
    await until("five have ended", async () => (await resultsOf(job)).length === TASKS);
    await site.broker.end("SIGTERM");
    const segment = join(site.data, "output", String(job.id), "0.seg");
    return { job, segment, goOn: () => fs.writeFileSync(go, "") };
  }

  it.each([
    ["a flipped bit", /bad checksum/, (path: string) => flipBit(path, fs.readFileSync(path).indexOf("task 2 task 2"))],
    ["a cut tail", /cut off|bad length/, (path: string) => cutTail(path, 10)],
  ])("with %s is said in the log and costs that output only", async (what, reason, damage) => {
    const site = newSite();
    const { job, segment, goOn } = await stoppedWithOutput(site);
    damage(segment);
    await site.startBroker();
    await site.broker.says(/output of job \d+, segment 0: \d+ bytes at \d+ are lost/);
    expect(site.broker.said).toMatch(reason);
    goOn();
    expect(await job.wait()).toBe("succeeded");
    const results = await resultsOf(job);
    const texts = await Promise.all(Array.from({ length: TASKS }, (_, i) => job.text(i)));
    const damagedOutputs = texts.filter((text, i) => text !== outputOf(i)).length;
    report({
      fault: `output segment with ${what}`,
      submissionsLost: 0,
      resultsLost: TASKS + 1 - results.length,
      outputsLost: damagedOutputs,
      recordedTwice: 0,
      startedTwice: results.filter(({ attempt }) => attempt > 1).length,
      note: "the log names the lost bytes",
    });
    expect(results).toHaveLength(TASKS + 1);
    expect(results.every(({ attempt, state }) => attempt === 1 && state === "succeeded")).toBe(true);
    expect(damagedOutputs).toBe(1);
  });
});

describe("a damaged spool of results", () => {
  const TASKS = 8;

  it.each([
    ["a flipped bit", (path: string) => flipBit(path, fs.readFileSync(path).indexOf("1.3.1") + 2)],
    ["a cut tail", (path: string) => cutTail(path, 5)],
  ])("with %s is said in the log and costs one result, whose task runs again", async (what, damage) => {
    const site = newSite();
    await site.startBroker();
    const worker = await site.startWorker("one", { slots: TASKS });
    const client = await site.client();
    const log = new RunLog(site.path("runs"));
    const go = site.path("go");
    const recipe = log.recipe(`while [ ! -e '${go}' ]; do sleep 0.02; done`);
    const job = await client.submit({ recipe, count: TASKS });
    await until("all run", () => log.count === TASKS);
    await site.broker.end("SIGKILL");
    fs.writeFileSync(go, "");
    const spool = site.path("one/results");
    const inSpool = (): boolean => {
      const text = fs.readFileSync(spool, "latin1");
      return Array.from({ length: TASKS }, (_, i) => `${job.id}.${i}.1`).every((key) => text.includes(key));
    };
    await until("all results are spooled", inSpool);
    await worker.end("SIGKILL");
    damage(spool);

    await site.startBroker();
    const next = await site.startWorker("one", { slots: TASKS });
    expect(next.said).toContain("the spool of results is damaged");
    expect(await job.wait()).toBe("succeeded");
    const { lost, runTwice } = await account(client, job.id, TASKS, log);
    report({
      fault: `spool of a worker with ${what}`,
      submissionsLost: 0,
      resultsLost: lost.length,
      outputsLost: 0,
      recordedTwice: 0,
      startedTwice: runTwice.length,
      note: "the log says so; the task runs again",
    });
    expect(lost).toEqual([]);
    expect(runTwice).toHaveLength(1);
  });
});
