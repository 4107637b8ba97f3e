/** Keys and delays where two brokers share a PostgreSQL database. */
import { afterAll, beforeAll, expect, it } from "vitest";
import type { Client } from "../../src/entries/client.js";
import { TEST_MS } from "../support/fault-batch.js";
import { DEADLINE_MS, GroupSite } from "../support/group-site.js";
import { type PostgresServer, startPostgres } from "../support/postgres.js";
import { TRUE } from "../support/recipes.js";
import { Site } from "../support/site.js";
import { until } from "../support/wait.js";

const SUBMISSIONS = 1_000;
let server: PostgresServer;
let group: GroupSite;
let clients: readonly [Client, Client];

beforeAll(async () => {
  server = await startPostgres();
  group = await GroupSite.open(new Site(), server, { leaseMs: 5_000 });
  await group.broker("a");
  await group.broker("b");
  clients = [await group.client("a"), await group.client("b")];
}, TEST_MS);

afterAll(async () => {
  const left = await group.site.close();
  await server.remove();
  expect(left).toEqual([]);
}, TEST_MS);

const both = <T>(submit: (client: Client) => Promise<T>): Promise<T[]> =>
  Promise.all(Array.from({ length: SUBMISSIONS }, (_, i) => submit(i % 2 === 0 ? clients[0] : clients[1])));

it(
  `makes one job of ${SUBMISSIONS} submissions of a key at the same time, at two brokers`,
  async () => {
    for (const round of [1, 2, 3]) {
      const key = `once-${round}`;
      const jobs = await both((client) => client.submit({ recipe: TRUE, key }, { timeoutMs: DEADLINE_MS }));
      expect(new Set(jobs.map(({ id }) => id)).size).toBe(1);
      expect(jobs.filter(({ existed }) => !existed)).toHaveLength(1);
      const refused = await both((client) =>
        client.submit({ recipe: TRUE, key, ifExists: "refuse" }, { timeoutMs: DEADLINE_MS }).then(
          () => "made",
          ({ code }: { code: string }) => code,
        ),
      );
      expect(new Set(refused)).toEqual(new Set(["LABORO_KEY_IN_USE"]));
      for (const client of clients) expect((await client.jobs({ key, limit: 1000 })).jobs).toHaveLength(1);
    }
  },
  TEST_MS,
);

it(
  "starts the delayed jobs of a broker that was killed, at the other one",
  async () => {
    await group.worker("one", "b");
    const jobs = await Promise.all(
      Array.from({ length: 100 }, (_, i) => clients[0].submit({ recipe: TRUE, delayMs: 2_000 + i })),
    );
    const last = await clients[0].submit({ recipe: TRUE, after: jobs.map(({ id }) => ({ job: id })) });
    await group.brokerNamed("a").end("SIGKILL");
    const other = clients[1];
    await until("all have ended", async () => (await other.job(last.id).info()).state === "succeeded", DEADLINE_MS);
    for (const { id } of jobs) {
      const { notBefore = 0, state } = await other.job(id).info();
      expect(state).toBe("succeeded");
      for await (const { started, attempt } of other.job(id).results()) {
        expect(attempt).toBe(1);
        // The database's clock is this machine's.
        expect(started).toBeGreaterThanOrEqual(notBefore - 1);
      }
    }
  },
  TEST_MS,
);
