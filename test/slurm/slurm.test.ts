/**
 * Allocators against a real Slurm, where it is installed. The first test is part of every run, the others of `npm run test:slurm`.
 */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { AllocationRules } from "../../src/broker/alloc/decide.js";
import type { Client, JobHandle } from "../../src/entries/client.js";
import { SeededRandom } from "../support/random.js";
import { openTestBroker, type TestBroker } from "../support/test-broker.js";
import { sleep, until } from "../support/wait.js";
import { SlurmSite, whyNoSlurm } from "./slurm-site.js";

const MISSING = whyNoSlurm();
const FULL = process.env.LABORO_SLURM === "full";
const PATIENCE_MS = 120_000;
const FAST: Partial<AllocationRules> = {
  pollMs: 300,
  unneededMs: 500,
  failureMs: 300,
  troubleMs: 200,
  maxTroubleMs: 1_000,
};

if (MISSING !== undefined) console.log(`the tests of Slurm are skipped: ${MISSING}`);

async function openSite(
  rules: Partial<AllocationRules> = {},
  lines: readonly string[] = [],
): Promise<TestBroker & { readonly slurm: SlurmSite }> {
  const slurm = await SlurmSite.open(lines);
  const setup = await openTestBroker({ allocations: { rules: { ...FAST, ...rules } }, settings: { graceMs: 3_000 } });
  return { ...setup, slurm };
}

const add = ({ client, dir }: Pick<TestBroker, "client" | "dir">, more: object = {}) =>
  client.allocators.set("a", {
    ...{ maxWorkers: 2, backlog: 2, timeLimitMs: 600_000, idleTimeoutMs: 1_000, dir: join(dir, "files"), ...more },
  });
const shell = (client: Client, command: string, count = 1): Promise<JobHandle> =>
  client.submit({ recipe: { kind: "command", argv: ["/bin/sh", "-c", command] }, count });
const logOf = async (client: Client): Promise<string[]> =>
  (await client.allocators.log("a")).map(({ kind, text }) => `${kind}: ${text}`);
const logs = (client: Client, line: string) =>
  until(`the log has ${line}`, async () => (await logOf(client)).some((one) => one.includes(line)), PATIENCE_MS);

describe.skipIf(MISSING !== undefined)(`a real Slurm (${MISSING ?? "installed"})`, () => {
  it("runs workers while work waits: they do it and end by themselves", { timeout: 2 * PATIENCE_MS }, async () => {
    const { client, dir, slurm } = await openSite();
    await add({ client, dir });
    const job = await shell(client, "echo $SLURM_JOB_ID", 5);
    expect(await job.wait({ timeoutMs: PATIENCE_MS })).toBe("succeeded");
    expect(await job.text(0)).toMatch(/^\d+\n$/);
    await logs(client, "ended: COMPLETED");
    await until("nothing is left in the queue", () => slurm.jobs.length === 0, PATIENCE_MS);
    const [first] = (await client.allocators.get("a")).allocations;
    expect(readFileSync(first?.output ?? "", "utf8")).toContain("it had nothing to do for 1s");
  });
});

describe.skipIf(MISSING !== undefined || !FULL)("a real Slurm, at length (needs LABORO_SLURM=full)", () => {
  it("500 tasks through allocations that are killed at random are recorded once each", {
    timeout: 600_000,
  }, async () => {
    const { client, dir, slurm } = await openSite();
    await add({ client, dir }, { slots: 1 });
    const job = await shell(client, "sleep 0.05; echo ok", 500);
    const seeded = new SeededRandom();
    const random = (): number => seeded.next();
    let killed = 0;
    const ended = job.wait({ timeoutMs: 500_000 });
    let over = false;
    void ended.finally(() => (over = true)).catch(() => {});
    while (!over) {
      await sleep(500 + random() * 2_500);
      const running = slurm.jobs.filter(({ state }) => state === "RUNNING");
      const one = running[Math.floor(random() * running.length)];
      if (one === undefined || over) continue;
      slurm.run("scancel", ...(random() < 0.5 ? ["--signal=KILL", "--full"] : []), one.id);
      killed++;
    }
    expect(await ended).toBe("succeeded");
    const { counters } = await job.info();
    let results = 0;
    for await (const result of job.results()) if (result.state === "succeeded") results++;
    console.log(`500 tasks, ${killed} allocations killed (seed ${seeded.seed}), ${500 - results} results lost`);
    expect([counters.succeeded, results, killed > 3]).toEqual([500, 500, true]);
  });

  it("a partition that there is not is refused, said, and asked for ever more slowly", {
    timeout: PATIENCE_MS,
  }, async () => {
    const { client, dir } = await openSite();
    await add({ client, dir }, { args: ["--partition=nope"] });
    const job = await shell(client, "true");
    await logs(client, "refused: invalid partition specified: nope");
    await logs(client, "paused: after 5 failures");
    expect((await client.ask("explain", { job: job.id, index: 0 })).reason).toContain("nope");
    expect(await client.ask("allocatorDryRun", { allocator: "a" })).toMatchObject({ accepted: false });
  });

  it("a queue that is full is told, is no failure, and takes more when it has room", {
    timeout: PATIENCE_MS * 2,
  }, async () => {
    const { client, dir } = await openSite({}, ["MaxJobCount=3", "MinJobAge=2"]);
    await add({ client, dir }, { maxWorkers: 4, backlog: 4 });
    const go = join(dir, "go");
    const job = await shell(client, `until [ -e ${go} ]; do sleep 0.2; done`, 4);
    await logs(client, "full: ");
    expect(await client.allocators.get("a")).toMatchObject({ failures: 0, problem: { kind: "full" } });
    writeFileSync(go, "");
    expect(await job.wait({ timeoutMs: PATIENCE_MS })).toBe("succeeded");
    await until(
      "its allocations have ended",
      async () => (await client.allocators.get("a")).allocations.every(({ state }) => state === "ended"),
      PATIENCE_MS,
    );
    expect(await (await shell(client, "true")).wait({ timeoutMs: PATIENCE_MS })).toBe("succeeded");
    await logs(client, "answering: the batch system answers again");
  });

  it("what Slurm would let wait for ever is cancelled with its reason", { timeout: PATIENCE_MS }, async () => {
    const { client, dir, slurm } = await openSite();
    await add({ client, dir }, { args: ["--mem=1", "--nodelist=node1", "--cpus-per-task=64"] });
    await shell(client, "true");
    await logs(client, "failed: it would wait for ever: PartitionConfig");
    await until("nothing is left in the queue", () => slurm.jobs.length === 0, PATIENCE_MS);
  });

  it("a controller that is down for a while changes nothing", { timeout: PATIENCE_MS * 2 }, async () => {
    const { client, dir, slurm } = await openSite();
    await add({ client, dir }, { idleTimeoutMs: 60_000 });
    const first = await shell(client, "true");
    expect(await first.wait({ timeoutMs: PATIENCE_MS })).toBe("succeeded");
    await slurm.stopController();
    await logs(client, "unreachable: ");
    expect(await (await shell(client, "true")).wait({ timeoutMs: PATIENCE_MS })).toBe("succeeded");
    await slurm.startController();
    await logs(client, "answering: ");
    expect((await client.allocators.get("a")).failures).toBe(0);
  });

  it("an allocation that is requeued is the same one, and its tasks run again", {
    timeout: PATIENCE_MS * 2,
  }, async () => {
    const { client, dir, slurm } = await openSite({ unneededMs: 60_000 });
    await add({ client, dir }, { maxWorkers: 1, backlog: 1, idleTimeoutMs: 20_000, args: ["--requeue"] });
    const job = await shell(client, "[ $SLURM_RESTART_COUNT ] || sleep 300");
    await logs(client, "joined: ");
    slurm.run("scontrol", "requeue", slurm.jobs[0]?.id ?? "");
    await logs(client, "requeued: ");
    expect(await job.wait({ timeoutMs: PATIENCE_MS })).toBe("succeeded");
    const { allocations } = await client.allocators.get("a");
    expect(allocations.map(({ number }) => number)).toEqual([1]);
    expect(readFileSync(allocations[0]?.output ?? "", "utf8").match(/has joined/g)).toHaveLength(2);
  });

  it("an allocation that is put back and held is cancelled, and another one does the work", {
    timeout: PATIENCE_MS * 2,
  }, async () => {
    const { client, dir, slurm } = await openSite({ unneededMs: 60_000 });
    await add({ client, dir }, { maxWorkers: 1, backlog: 1, args: ["--requeue"] });
    const mark = join(dir, "again");
    const began = join(dir, "began");
    const job = await shell(client, `[ -f ${mark} ] || { touch ${began}; sleep 300; }`);
    await until("the task runs", () => existsSync(began), PATIENCE_MS);
    writeFileSync(mark, "");
    slurm.run("scontrol", "requeuehold", slurm.jobs[0]?.id ?? "");
    await logs(client, "failed: it would wait for ever: job requeued in held state; it is cancelled");
    expect(await job.wait({ timeoutMs: PATIENCE_MS })).toBe("succeeded");
    expect((await client.allocators.get("a")).allocations.map(({ number }) => number)).toEqual([1, 2]);
  });

  it("a node whose prolog fails holds the job: the allocator cancels it and says why", {
    timeout: PATIENCE_MS * 2,
  }, async () => {
    const { client, dir, slurm } = await openSite();
    await add({ client, dir });
    slurm.failProlog();
    await shell(client, "true");
    await logs(client, "failed: it would wait for ever: launch failed requeued held; it is cancelled");
    await until("nothing is left in the queue", () => slurm.jobs.length === 0, PATIENCE_MS);
  });

  it("a node that goes down before a worker joins is no failure of the allocator, which asks again", {
    timeout: PATIENCE_MS * 2,
  }, async () => {
    const { client, dir, slurm } = await openSite();
    const go = join(dir, "go");
    const before = `until [ -e ${go} ]; do sleep 0.2; done`;
    await add({ client, dir }, { maxWorkers: 1, before, args: ["--no-requeue"] });
    const job = await shell(client, "true");
    await logs(client, "started: ");
    slurm.run("scontrol", "update", "NodeName=node1", "State=DOWN", "Reason=test");
    await logs(client, "taken: NODE_FAIL");
    const { failures, problem } = await client.allocators.get("a");
    expect([failures, problem?.kind]).toEqual([0, "taken"]);
    writeFileSync(go, "");
    slurm.run("scontrol", "update", "NodeName=node1", "State=RESUME");
    expect(await job.wait({ timeoutMs: PATIENCE_MS })).toBe("succeeded");
  });

  it("a job script that fails, and a node that is drained, are told", { timeout: PATIENCE_MS * 2 }, async () => {
    const { client, dir, slurm } = await openSite();
    await add({ client, dir }, { before: "echo the module is gone >&2; exit 3" });
    await shell(client, "true");
    await logs(client, "no worker has joined; its output ends with: the module is gone");
    slurm.run("scontrol", "update", "NodeName=node1", "State=DRAIN", "Reason=test");
    await client.allocators.set("a", { maxWorkers: 1, timeLimitMs: 600_000, dir: join(dir, "files") });
    await until(
      "the reason is shown",
      async () =>
        (await client.allocators.get("a")).status.match(/slurm: .*(DRAINED|ReqNodeNotAvail|Resources)/) !== null,
      PATIENCE_MS,
    );
    await client.allocators.remove("a");
    await until("its job is cancelled", () => slurm.jobs.length === 0, PATIENCE_MS);
  });

  it("the worker of the example joins from an allocation of one's own", { timeout: PATIENCE_MS * 2 }, async () => {
    const { broker, client, dir, slurm } = await openSite();
    const join = `${dir}/join.url`;
    writeFileSync(join, broker.joinUrl());
    const job = await shell(client, "echo $SLURM_JOB_ID");
    const bin = new URL("../../bin", import.meta.url).pathname;
    const example = new URL("../../examples/slurm-worker.sbatch", import.meta.url).pathname;
    const exported = `--export=ALL,PATH=${bin}:${process.env.PATH},LABORO_JOIN=${join}`;
    const output = `${dir}/out`;
    expect(slurm.run("sbatch", "--cpus-per-task=1", exported, `--output=${output}`, example)).toMatch(/Submitted/);
    expect(await job.wait({ timeoutMs: PATIENCE_MS })).toBe("succeeded");
  });
});
