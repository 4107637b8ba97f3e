/** The database's machine is lost: a standby takes its place at its address; or a backup is all that is left. */
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { batchUnder, FULL, TEST_MS } from "../support/fault-batch.js";
import { DEADLINE_MS, GroupSite } from "../support/group-site.js";
import { type PostgresServer, startPostgres } from "../support/postgres.js";
import { copyOf } from "../support/postgres-copy.js";
import { TRUE } from "../support/recipes.js";
import { Site } from "../support/site.js";
import { until } from "../support/wait.js";

/** An address that moves from one machine to another. */
class MovingAddress {
  readonly #server = createServer((near) => this.#join(near));
  readonly #open = new Set<Socket>();
  #target: number;

  constructor(target: number) {
    this.#target = target;
  }

  async listen(): Promise<number> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    return (this.#server.address() as AddressInfo).port;
  }

  moveTo(target: number): void {
    this.#target = target;
    for (const socket of this.#open) socket.destroy();
  }

  close(): void {
    this.#server.close();
    for (const socket of this.#open) socket.destroy();
  }

  #join(near: Socket): void {
    const far = connect(this.#target, "127.0.0.1");
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      this.#open.add(from);
      from.on("error", () => {});
      from.on("close", () => {
        this.#open.delete(from);
        to.destroy();
      });
      from.pipe(to);
    }
  }
}

describe.runIf(FULL)("a group whose database is lost (needs LABORO_FAULTS=full)", () => {
  let server: PostgresServer;
  beforeAll(async () => {
    server = await startPostgres({ wal_keep_size: "256MB" });
  }, TEST_MS);
  afterAll(() => server.remove(), TEST_MS);

  it(
    "goes on with the standby that is promoted in its place, and loses nothing that was acknowledged",
    async () => {
      const group = await GroupSite.open(new Site(), server);
      const address = new MovingAddress(server.port);
      const port = await address.listen();
      const store = group.store.replace(/:\d+\//, `:${port}/`);
      const standby = await copyOf(server, "standby");
      try {
        await server.admin(async (sql) => {
          await sql`ALTER SYSTEM SET synchronous_standby_names = '*'`;
          await sql`SELECT pg_reload_conf()`;
          await until(
            "the standby follows",
            async () => (await sql`SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'`).length === 1,
            DEADLINE_MS,
          );
        });
        await group.broker("a", { store });
        await group.broker("b", { store });
        await Promise.all([group.worker("one", "a"), group.worker("two", "b")]);
        const client = await group.client("a", "b");
        await group.workersAre(client, 2);
        await batchUnder(group.batch("group: database lost, standby promoted", 500, client), async () => {
          await server.halt("crash");
          await standby.promote();
          address.moveTo(standby.port);
        });
      } finally {
        expect(await group.site.close()).toEqual([]);
        address.close();
        await standby.remove();
        await server.resume();
        await server.admin(async (sql) => {
          await sql`ALTER SYSTEM RESET synchronous_standby_names`;
          await sql`SELECT pg_reload_conf()`;
        });
      }
    },
    TEST_MS,
  );

  it(
    "has its jobs back from a backup that was taken while it worked",
    async () => {
      const group = await GroupSite.open(new Site(), server);
      try {
        await group.broker("a");
        await group.worker("one", "a");
        const before = await group.client("a");
        const done = await before.submit({ recipe: { kind: "command", argv: ["echo", "kept"] }, count: 20 });
        expect(await done.wait()).toBe("succeeded");
        const open = await before.submit({ recipe: TRUE, count: 50, pool: "later" });
        const backup = await copyOf(server, "restored");
        await group.brokerNamed("a").end("SIGKILL");
        const store = backup.urlOf(new URL(group.store).pathname.slice(1));
        await group.broker("a", { store });
        const after = await group.client("a");
        await group.workersAre(after, 1);
        expect((await after.job(done.id).info()).counters.succeeded).toBe(20);
        expect(await after.job(done.id).text(7)).toBe("kept\n");
        expect((await after.job(open.id).info()).counters.waiting).toBe(50);
        await after.job(open.id).cancel();
        expect(await after.job(open.id).wait()).toBe("cancelled");
        await group.brokerNamed("a").end("SIGTERM");
        await backup.remove();
      } finally {
        expect(await group.site.close()).toEqual([]);
      }
    },
    TEST_MS,
  );
});
