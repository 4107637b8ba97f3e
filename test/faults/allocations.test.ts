/** Allocations, and the broker that drives them, that are killed with SIGKILL. Their job scripts run as processes of this machine. */
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { atEnd } from "../support/at-end.js";
import { GroupSite } from "../support/group-site.js";
import { startPostgres } from "../support/postgres.js";
import { SeededRandom } from "../support/random.js";
import { Site } from "../support/site.js";
import { SlurmStandIn } from "../support/slurm-stand-in.js";
import { openTestBroker } from "../support/test-broker.js";
import { until } from "../support/wait.js";

const TASKS = 500;
const PATIENCE_MS = 60_000;

it("500 tasks through allocations that are killed at random are recorded once each", async () => {
  const slurm = new SlurmStandIn();
  slurm.runJobs();
  const rules = { pollMs: 50, failureMs: 50, unneededMs: 60_000 };
  const { client, dir } = await openTestBroker({ allocations: { rules }, settings: { closedGraceMs: 200 } });
  await client.allocators.set("a", {
    ...{ maxWorkers: 4, backlog: 4, timeLimitMs: 3_600_000, idleTimeoutMs: 60_000, dir: join(dir, "files") },
  });
  const recipe = { kind: "command", argv: ["sleep 0.02; echo ok"], shell: true } as const;
  const job = await client.submit({ recipe, count: TASKS, crashLimit: 1_000 });
  const random = new SeededRandom();
  let over = false;
  const ended = job.wait().finally(() => (over = true));
  let killed = 0;
  // By what is done, not by time: on a busy machine an allocation needs seconds until its worker has joined.
  for (let done = 20; !over; done += random.between(30, 80)) {
    await until(`${done} tasks are done`, async () => over || (await job.info()).counters.succeeded >= done, 240_000);
    const running = slurm.jobs.filter(({ state }) => state === "RUNNING");
    const one = running[random.between(0, Math.max(0, running.length - 1))];
    if (one === undefined || over) continue;
    slurm.kill(one.id);
    killed++;
  }
  expect(await ended).toBe("succeeded");
  const seen = new Map<number, number>();
  for await (const { index, state } of job.results())
    if (state === "succeeded") seen.set(index, (seen.get(index) ?? 0) + 1);
  console.log(`${TASKS} tasks, ${killed} allocations killed (seed ${random.seed}), ${TASKS - seen.size} results lost`);
  expect([(await job.info()).counters.succeeded, seen.size, Math.max(...seen.values())]).toEqual([TASKS, TASKS, 1]);
  expect(killed).toBeGreaterThan(3);
  await client.allocators.remove("a", { cancelRunning: true });
  await until("nothing is left", async () => (await client.allocators.list()).length === 0);
}, 300_000);

it(
  "a broker that is killed leaves its allocations to another one, which asks for nothing twice",
  async () => {
    const slurm = new SlurmStandIn();
    slurm.runJobs();
    const server = await startPostgres();
    const group = await GroupSite.open(new Site(), server, { leaseMs: 2_000 });
    atEnd(async () => {
      await group.site.close();
      await server.remove();
    });
    // The only one so far: it drives.
    await group.broker("first");
    const client = await group.client("first");
    const { dir } = group.site;
    await client.allocators.set("a", {
      ...{ maxWorkers: 3, backlog: 3, timeLimitMs: 3_600_000, idleTimeoutMs: 60_000, dir: join(dir, "files") },
    });
    const go = join(dir, "go");
    const recipe = {
      kind: "command",
      argv: [`until [ -e ${go} ]; do sleep 0.05; done; echo ok`],
      shell: true,
    } as const;
    const job = await client.submit({ recipe, count: 2 });
    await group.workersAre(client, 2);
    await group.broker("second");
    const other = await group.client("second");
    // Workers learn of it.
    await until("two brokers are seen", async () => (await other.ask("brokers", {})).brokers.length === 2, PATIENCE_MS);
    await group.brokerNamed("first").end("SIGKILL");
    await group.workersAre(other, 2);
    const more = await other.submit({ recipe, count: 1 });
    await until("the other broker asks", () => slurm.jobs.length === 3, PATIENCE_MS);
    writeFileSync(go, "");
    expect(await other.job(job.id).wait({ timeoutMs: PATIENCE_MS })).toBe("succeeded");
    expect(await more.wait({ timeoutMs: PATIENCE_MS })).toBe("succeeded");
    const { allocations, failures } = await other.allocators.get("a");
    expect([allocations.map(({ number, id }) => `${number} ${id}`), failures]).toEqual([["1 1", "2 2", "3 3"], 0]);
    expect([slurm.calls("sbatch").length, slurm.calls("scancel").length]).toEqual([3, 0]);
    expect(slurm.jobs.every(({ script }) => existsSync(script))).toBe(true);
  },
  3 * PATIENCE_MS,
);
