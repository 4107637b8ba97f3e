/** kill -9 of brokers around the moment at which a run is due: each point in time has one run. */
import { expect, it } from "vitest";
import type { Client } from "../../src/entries/client.js";
import { FULL, TEST_MS } from "../support/fault-batch.js";
import { GroupSite } from "../support/group-site.js";
import { startPostgres } from "../support/postgres.js";
import { SeededRandom } from "../support/random.js";
import { TRUE } from "../support/recipes.js";
import { runsOf } from "../support/schedule-runs.js";
import { Site } from "../support/site.js";
import { sleep, until } from "../support/wait.js";

const EVERY_MS = 2_000;
const ROUNDS = FULL ? 60 : 5;
/** Brokers are killed from this long before a run is due until this long after. */
const AROUND_MS = 60;
const random = new SeededRandom();

async function nextDue(client: Client): Promise<number> {
  return until("it has a next point", async () => (await client.schedules.get("tick")).due);
}

/** Waits until a moment around the next run. */
async function aroundNextRun(client: Client): Promise<void> {
  const due = await nextDue(client);
  await sleep(Math.max(0, due - Date.now() - AROUND_MS + random.next() * 2 * AROUND_MS));
}

/** One job for each point, and none without a point. */
async function checkRuns(client: Client, what: string): Promise<void> {
  const last = await client.schedules.pause("tick");
  const { runs, twice, unexplained, early } = await runsOf(client, "tick", EVERY_MS);
  console.log(`${what}: ${runs} runs, twice ${twice}, lost ${unexplained.length}, early ${early.length}`);
  expect({ twice, unexplained, early }).toEqual({ twice: 0, unexplained: [], early: [] });
  expect(runs).toBe(last.runs);
  expect(last.skipped).toBe(0);
  expect(runs).toBeGreaterThanOrEqual(ROUNDS / 2);
}

it(
  "three brokers on PostgreSQL, some or all of which are killed around each run",
  async () => {
    const server = await startPostgres();
    const group = await GroupSite.open(new Site(), server, { leaseMs: 2_000 });
    const names = ["a", "b", "c"];
    try {
      await Promise.all(names.map((name) => group.broker(name)));
      const client = await group.client(...names);
      await client.schedules.set("tick", { everyMs: EVERY_MS, job: { recipe: TRUE } });
      for (let round = 0; round < ROUNDS; round++) {
        const killed = round % 4 === 3 ? names : names.filter((_, i) => i !== round % 3).slice(0, 1 + (round % 2));
        await aroundNextRun(client);
        await Promise.all(killed.map((name) => group.brokerNamed(name).end("SIGKILL")));
        await Promise.all(killed.map((name) => group.broker(name)));
      }
      await until("a run after the last kill", async () => (await client.schedules.get("tick")).runs >= ROUNDS / 2);
      await checkRuns(client, "three brokers killed around their runs");
    } finally {
      const left = await group.site.close();
      await server.remove();
      expect(left).toEqual([]);
    }
  },
  TEST_MS,
);

it(
  "one broker on SQLite that is killed around each run and started again",
  async () => {
    const site = new Site();
    try {
      await site.startBroker();
      const client = await site.client();
      await client.schedules.set("tick", { everyMs: EVERY_MS, job: { recipe: TRUE } });
      for (let round = 0; round < ROUNDS; round++) {
        await aroundNextRun(client);
        await site.broker.end("SIGKILL");
        await site.startBroker();
      }
      await until("a run after the last kill", async () => (await client.schedules.get("tick")).runs >= ROUNDS / 2);
      await checkRuns(client, "one broker killed around its runs");
    } finally {
      expect(await site.close()).toEqual([]);
    }
  },
  TEST_MS,
);
