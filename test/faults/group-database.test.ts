/** The database of a group restarts, drops connections, has none left, is held up by a transaction, or cannot be reached. */
import postgres, { type Sql } from "postgres";
import { afterAll, beforeAll, expect, it } from "vitest";
import type { Client } from "../../src/entries/client.js";
import { batchUnder, FULL, TEST_MS } from "../support/fault-batch.js";
import { DEADLINE_MS, GroupSite } from "../support/group-site.js";
import { type PostgresServer, startPostgres } from "../support/postgres.js";
import { type Proxy as Network, proxyTo } from "../support/proxy.js";
import { TRUE } from "../support/recipes.js";
import { Site } from "../support/site.js";
import { sleep, until } from "../support/wait.js";

const TASKS = FULL ? 1_000 : 100;
let server: PostgresServer;
let group: GroupSite;
let client: Client;
let proxy: Network;

beforeAll(async () => {
  server = await startPostgres({ max_connections: "40" });
  group = await GroupSite.open(new Site(), server, { leaseMs: 3_000 });
  proxy = await proxyTo(server.port);
  const throughProxy = group.store.replace(/:\d+\//, `:${new URL(proxy.url).port}/`);
  await group.broker("a");
  await group.broker("b", { store: throughProxy });
  await Promise.all([group.worker("one", "a"), group.worker("two", "b")]);
  client = await group.client("a", "b");
  await group.workersAre(client, 2);
}, TEST_MS);

afterAll(async () => {
  const left = await group.site.close();
  await server.remove();
  proxy.heal();
  await proxy.close();
  expect(left).toEqual([]);
}, TEST_MS);

for (const how of ["orderly", "crash"] as const) {
  it(
    `PostgreSQL restarted (${how}): nothing is lost, and work goes on when it is back`,
    async () => {
      await batchUnder(group.batch(`group: PostgreSQL restarted, ${how}`, TASKS, client), async () => {
        for (let round = 0; round < (FULL ? 5 : 1); round++) {
          await server.halt(how);
          await sleep(500);
          await server.resume();
          await sleep(FULL ? 1_000 : 0);
        }
      });
    },
    TEST_MS,
  );
}

it(
  "a stream of pg_terminate_backend: nothing is lost or run again",
  async () => {
    await batchUnder(
      group.batch("group: database connections terminated ten times a second", TASKS, client),
      async (log) => {
        await server.admin(async (sql) => {
          for (let round = 0; log.count < TASKS * 0.8 && round < (FULL ? 200 : 30); round++) {
            await sql`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'laboro'`;
            await sleep(100);
          }
        });
      },
    );
  },
  TEST_MS,
);

it(
  "no connection is left: who has one goes on, who has lost his waits, and work goes on when there are some",
  async () => {
    await batchUnder(group.batch("group: no database connection left", TASKS, client), async () => {
      await server.admin(async (admin) => {
        const hoard = await connectionsLeft();
        await admin`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'laboro'`;
        hoard.push(...(await connectionsLeft()));
        await sleep(FULL ? 5_000 : 1_000);
        await Promise.all(hoard.map((sql) => sql.end()));
      });
    });
  },
  TEST_MS,
);

it(
  "a broker that is to stop when its database has just gone away stops within seconds",
  async () => {
    const silent = await proxyTo(server.port);
    const store = group.store.replace(/:\d+\//, `:${new URL(silent.url).port}/`);
    const broker = await group.broker("silent", { store });
    const own = await group.client("silent");
    const worker = await group.worker("three", "silent");
    const job = await own.submit({ recipe: TRUE, count: 10_000 });
    await until("results come all the time", async () => (await job.info()).counters.succeeded > 50);
    silent.cut();
    await silent.close();
    await sleep(200);
    await broker.end("SIGTERM");
    expect(broker.exitCode).toBe(0);
    await worker.end("SIGKILL");
    own.close();
    // The others may have ended it meanwhile.
    await client
      .job(job.id)
      .cancel()
      .catch(() => {});
  },
  TEST_MS,
);

it(
  "a transaction left open that holds the horizon: work goes on under it",
  async () => {
    const sql = postgres(group.store, { max: 1, onnotice: () => {}, idle_timeout: 0 });
    let end = (): void => {};
    const over = new Promise<void>((resolve) => {
      end = resolve;
    });
    const open = sql.begin("ISOLATION LEVEL REPEATABLE READ", async (held) => {
      await held`SELECT count(*) FROM laboro.task_range`;
      await over;
    });
    try {
      await batchUnder(group.batch("group: a transaction left open", TASKS, client), async () => {});
    } finally {
      end();
      await open;
      await sql.end();
    }
  },
  TEST_MS,
);

it(
  "a broker cut off from the database: it stops in time, keeps its workers, and resumes",
  async () => {
    const there = await group.client("b");
    await batchUnder(
      group.batch("group: a broker cut off from the database", TASKS, await group.client("a")),
      async () => {
        proxy.swallow(["up", "down"]);
        await group.brokerNamed("b").says("no heartbeat has reached the store", DEADLINE_MS);
        proxy.heal();
        await until(
          "it takes jobs again",
          () =>
            there.submit({ recipe: TRUE, count: 1 }).then(
              () => true,
              () => false,
            ),
          DEADLINE_MS,
        );
      },
    );
    await group.workersAre(client, 2);
  },
  TEST_MS,
);

/** Takes all connections that the server still gives. */
async function connectionsLeft(): Promise<Sql[]> {
  const taken: Sql[] = [];
  for (;;) {
    const sql = postgres(server.urlOf("postgres"), {
      max: 1,
      connect_timeout: 5,
      onnotice: () => {},
      username: "hoarder",
    });
    try {
      await sql`SELECT 1`;
      taken.push(sql);
    } catch {
      await sql.end({ timeout: 0 });
      return taken;
    }
  }
}
