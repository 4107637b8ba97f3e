/**
 * Limits and maxRunning over three brokers on one PostgreSQL that are killed and started again. Tasks write their beginning and end to one
 * file, so that what really ran at the same time is counted, not what a broker thinks.
 */
import { existsSync, readFileSync } from "node:fs";
import { afterAll, beforeAll, expect, it } from "vitest";
import type { Client } from "../../src/entries/client.js";
import { FULL, TEST_MS } from "../support/fault-batch.js";
import { DEADLINE_MS, GroupSite } from "../support/group-site.js";
import { type PostgresServer, startPostgres } from "../support/postgres.js";
import { SeededRandom } from "../support/random.js";
import { Site } from "../support/site.js";
import { sleep, until } from "../support/wait.js";

const NAMES = ["a", "b", "c"] as const;
const TASKS = FULL ? 400 : 60;
const random = new SeededRandom();
let server: PostgresServer;
let group: GroupSite;
let client: Client;

beforeAll(async () => {
  server = await startPostgres();
  group = await GroupSite.open(new Site(), server, { leaseMs: 2_000 });
  await Promise.all(NAMES.map((name) => group.broker(name)));
  await Promise.all(NAMES.map((name) => group.worker(`worker-${name}`, name, 4)));
  client = await group.client(...NAMES);
  await group.workersAre(client, 3);
}, TEST_MS);

afterAll(async () => {
  const left = await group.site.close();
  await server.remove();
  expect(left).toEqual([]);
}, TEST_MS);

/** A line is appended as a whole, so the lines are in the order in which things happened. */
const recipe = (file: string, seconds = 0.1) => ({
  kind: "command" as const,
  argv: ["/bin/sh", "-c", `echo + >> ${file}; sleep ${seconds}; echo - >> ${file}`],
});

function counted(file: string): { readonly most: number; readonly begun: number; readonly running: number } {
  let [most, begun, running] = [0, 0, 0];
  for (const line of existsSync(file) ? readFileSync(file, "utf8").trim().split("\n") : []) {
    running += line === "+" ? 1 : -1;
    if (line === "+") begun++;
    most = Math.max(most, running);
  }
  return { most, begun, running };
}

/** Brokers die and come back, one after the other, until `over`. */
async function killBrokers(over: () => boolean): Promise<number> {
  let kills = 0;
  while (!over()) {
    const victim = NAMES[Math.floor(random.next() * NAMES.length)] ?? "a";
    await sleep(random.next() * 500);
    if (over()) break;
    await group.brokerNamed(victim).end("SIGKILL");
    kills++;
    await sleep(random.next() * 1_500);
    await group.broker(victim);
  }
  return kills;
}

it(
  "never more than a limit and maxRunning allow run, whichever brokers die, and all of it is done",
  async () => {
    await client.ask("limitSet", { name: "api", running: 3 });
    const shared = group.site.path("shared.log");
    const own = group.site.path("own.log");
    const others = await group.client("c", "b");
    const jobs = [
      await client.submit({ recipe: recipe(shared), count: TASKS, limits: ["api"] }),
      await others.submit({ recipe: recipe(shared), count: TASKS, limits: ["api"] }),
      await others.submit({ recipe: recipe(own), count: TASKS, maxRunning: 2 }),
    ];
    let ended = false;
    const ends = Promise.all(jobs.map((job) => job.wait())).finally(() => {
      ended = true;
    });
    const kills = await killBrokers(() => ended);
    expect(await ends).toEqual(["succeeded", "succeeded", "succeeded"]);
    const [api, max] = [counted(shared), counted(own)];
    console.log(
      `${kills} brokers killed: at most ${api.most} of limit 3 ran, ${max.most} of maxRunning 2; ${api.begun + max.begun} runs of ${3 * TASKS} tasks, lost: 0`,
    );
    expect(kills).toBeGreaterThan(0);
    expect([api.most, api.running, max.most, max.running]).toEqual([3, 0, 2, 0]);
    expect((await client.ask("limits", {})).limits).toMatchObject([{ name: "api", used: { running: 0 }, waiting: 0 }]);
  },
  TEST_MS,
);

it(
  "no more tasks are started than a rate allows, whichever brokers die; a change lets the rest follow at once",
  async () => {
    await client.ask("limitSet", { name: "hourly", rate: { starts: 25, intervalMs: 3_600_000 } });
    const file = group.site.path("hourly.log");
    const jobs = [
      await client.submit({ recipe: recipe(file), count: 30, limits: ["hourly"] }),
      await (await group.client("b")).submit({ recipe: recipe(file), count: 30, limits: ["hourly"] }),
    ];
    const used = async (): Promise<number | undefined> => {
      const { limits } = await client.ask("limits", {}).catch(() => ({ limits: [] }));
      return limits.find(({ name }) => name === "hourly")?.used.starts;
    };
    let full = false;
    const filling = until("25 starts are used", async () => (await used()) === 25, DEADLINE_MS).finally(() => {
      full = true;
    });
    await killBrokers(() => full);
    await filling;
    // A task whose broker died before it was sent counts, and has not begun. One that was sent may begin after it was counted.
    const ended = (): boolean => counted(file).begun > 15 && counted(file).running === 0;
    await until("most have begun, and all of them have ended", ended, DEADLINE_MS);
    expect(counted(file).begun).toBeLessThanOrEqual(25);
    // Until the claims of a dead broker are taken over, it waits for that.
    const reason = async (): Promise<string> =>
      (await client.ask("explain", { job: jobs[1]?.id ?? 0, index: 29 })).reason;
    const why = /waits for limit hourly \(25 starts in 1h\)/;
    await until("it says why", async () => why.test(await reason().catch(() => "")), DEADLINE_MS);
    await client.ask("limitSet", { name: "hourly", running: 4 });
    expect(await Promise.all(jobs.map((job) => job.wait()))).toEqual(["succeeded", "succeeded"]);
    expect(counted(file).most).toBeLessThanOrEqual(12);
  },
  TEST_MS,
);
