/** kill -9 of brokers of a group in the middle of a batch. */
import { afterAll, beforeAll, expect, it } from "vitest";
import { account, RunLog } from "../support/batch.js";
import { DEADLINE_MS, GroupSite } from "../support/group-site.js";
import { type PostgresServer, startPostgres } from "../support/postgres.js";
import { SeededRandom } from "../support/random.js";
import { sites } from "../support/site.js";
import { sleep, until } from "../support/wait.js";

const FULL = process.env.LABORO_FAULTS === "full";
const KILLS = FULL ? 10 : 2;
const TASKS = FULL ? 4_000 : 400;
const newSite = sites();
let server: PostgresServer;

beforeAll(async () => {
  server = await startPostgres();
}, 120_000);
afterAll(() => server.remove());

it(
  "loses no task and runs none again, and the workers go on at another broker",
  async () => {
    const random = new SeededRandom();
    const group = await GroupSite.open(newSite(), server, { leaseMs: 2_000 });
    await group.broker("a");
    await group.broker("b");
    await group.worker("one", "a");
    await group.worker("two", "b");
    const client = await group.client("a", "b");
    await group.workersAre(client, 2);
    const log = new RunLog(group.site.path("runs"));
    const job = await client.submit({ recipe: log.recipe("sleep 0.02"), count: TASKS });
    const recoveries: number[] = [];

    for (const [at, moment] of random.spread(KILLS, TASKS).entries()) {
      const [victim, other] = at % 2 === 0 ? ["a", "b"] : ["b", "a"];
      await until(`${moment} tasks have run`, () => log.count >= moment, DEADLINE_MS);
      await sleep(random.next() * 30);
      const begun = performance.now();
      await group.brokerNamed(victim as string).end("SIGKILL");
      const survivor = await group.client(other as string);
      await group.workersAre(survivor, 2);
      recoveries.push(performance.now() - begun);
      await sleep(random.next() * 500);
      await group.broker(victim as string);
    }
    expect(await job.wait()).toBe("succeeded");

    const { results, lost, unrun, runTwice } = await account(client, job.id, TASKS, log);
    console.log(
      `a broker of two killed ${KILLS} times in ${TASKS} tasks (seed ${random.seed}): lost: ${lost.length}, ` +
        `run twice: ${runTwice.length}; workers at the other broker after ${recoveries.map((ms) => `${Math.round(ms)} ms`).join(", ")}`,
    );
    expect(results).toHaveLength(TASKS);
    expect({ lost, unrun, runTwice }).toEqual({ lost: [], unrun: [], runTwice: [] });
  },
  FULL ? 600_000 : 180_000,
);
