import * as fs from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { JobHandle, Submission } from "../../src/entries/client.js";
import { resultsOf } from "../support/batch.js";
import { type Launched, REPOSITORY } from "../support/launched.js";
import { isRunning } from "../support/process-table.js";
import { type Site, sites } from "../support/site.js";
import { until } from "../support/wait.js";

const FAMILY = join(REPOSITORY, "test/support/family.sh");
const newSite = sites();

interface Family {
  readonly job: JobHandle;
  readonly worker: Launched;
  readonly members: readonly number[];
}

/** A task with child and grandchild, running at a worker. */
async function family(site: Site, hearing: "hears" | "deaf", rest: Omit<Submission, "recipe"> = {}): Promise<Family> {
  await site.startBroker({ heartbeatMs: 100 });
  const worker = hearing === "deaf" ? await shortGraceWorker(site) : await site.startWorker("one");
  const client = await site.client();
  const pids = site.path("pids");
  const argv = ["/bin/sh", FAMILY, pids, hearing];
  const job = await client.submit({ recipe: { kind: "command", argv }, ...rest });
  const members = await until("all three run", () => {
    const written = fs.existsSync(pids) ? fs.readFileSync(pids, "utf8").split("\n").filter(Boolean).map(Number) : [];
    return written.length === 3 && written;
  });
  expect(members.every(isRunning)).toBe(true);
  return { job, worker, members };
}

async function shortGraceWorker(site: Site): Promise<Launched> {
  const options = { broker: site.url, token: site.token, dir: site.path("one"), name: "one", graceMs: 300 };
  const fixture = join(REPOSITORY, "test/support/short-grace-worker.mjs");
  const worker = site.launch("the worker with little patience", [fixture, JSON.stringify(options)]);
  await worker.says("joined the broker");
  return worker;
}

async function expectGone(what: string, members: readonly number[]): Promise<void> {
  await until(`the family is gone after ${what}`, () => !members.some(isRunning), 5_000).catch(() => {});
  const left = members.filter(isRunning);
  console.log(`task with child and grandchild after ${what}: left running: ${left.length}`);
  expect(left).toEqual([]);
}

describe("a task is gone with its children", () => {
  it("after a cancel", async () => {
    const { job, members } = await family(newSite(), "hears");
    await job.cancel();
    expect(await job.wait()).toBe("cancelled");
    // The slot is free only when the processes are gone, so nothing is to be waited for.
    expect(members.filter(isRunning)).toEqual([]);
    await expectGone("a cancel", members);
    expect(await resultsOf(job)).toMatchObject([{ state: "cancelled", signal: "SIGTERM" }]);
  });

  it("after its time limit", async () => {
    const { job, members } = await family(newSite(), "hears", { timeLimitMs: 1_000 });
    expect(await job.wait()).toBe("failed");
    await expectGone("the time limit", members);
    expect(await resultsOf(job)).toMatchObject([{ state: "failed", timedOut: true, signal: "SIGTERM" }]);
  });

  it("after SIGHUP to its worker, which gives it back", async () => {
    const { worker, members, job } = await family(newSite(), "hears");
    worker.signal("SIGHUP");
    await worker.ended();
    expect(members.filter(isRunning)).toEqual([]);
    await expectGone("SIGHUP to the worker", members);
    expect(worker.exitCode).toBe(0);
    expect(await resultsOf(job)).toEqual([]);
  });

  it("after SIGKILL to its worker", async () => {
    const { worker, members } = await family(newSite(), "hears");
    await worker.end("SIGKILL");
    await expectGone("SIGKILL to the worker", members);
  });
});

describe("a task that does not hear SIGTERM is killed after the grace", () => {
  it("when it is cancelled", async () => {
    const { job, members } = await family(newSite(), "deaf");
    const start = performance.now();
    await job.cancel();
    expect(await job.wait()).toBe("cancelled");
    expect(performance.now() - start).toBeGreaterThan(250);
    expect(members.filter(isRunning)).toEqual([]);
    await expectGone("a cancel that it did not hear", members);
    expect(await resultsOf(job)).toMatchObject([{ state: "cancelled", signal: "SIGKILL" }]);
  });

  it("when its worker stops in order", async () => {
    const { worker, members } = await family(newSite(), "deaf");
    await worker.end("SIGTERM");
    await expectGone("SIGTERM to the worker that it did not hear", members);
  });

  it("when its worker is killed", async () => {
    const { worker, members } = await family(newSite(), "deaf");
    await worker.end("SIGKILL");
    await expectGone("SIGKILL to the worker of a task that is deaf", members);
  });
});
