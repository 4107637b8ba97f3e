/** A group of brokers as real processes on a real PostgreSQL, with their workers and clients, on top of a site. */
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type Client, connect } from "../../src/entries/client.js";
import type { FaultBatch } from "./fault-batch.js";
import { freePort } from "./free-port.js";
import { LABORO, type Launched } from "./launched.js";
import type { PostgresServer } from "./postgres.js";
import type { Site } from "./site.js";
import { until } from "./wait.js";

export interface GroupLaunch {
  readonly leaseMs?: number;
  readonly graceMs?: number;
  readonly heartbeatMs?: number;
}

export interface BrokerPlace {
  /** Where it finds the database, if not at the server itself. */
  readonly store?: string;
  readonly more?: readonly string[];
}

/** Enough for a machine that has much else to do. */
export const DEADLINE_MS = 60_000;

export class GroupSite {
  readonly site: Site;
  readonly server: PostgresServer;
  readonly #options: GroupLaunch;
  readonly #store: string;
  readonly #ports = new Map<string, number>();
  readonly #brokers = new Map<string, Launched>();
  readonly #clients: Client[] = [];

  private constructor(site: Site, server: PostgresServer, store: string, options: GroupLaunch) {
    this.site = site;
    this.server = server;
    this.#store = store;
    this.#options = options;
    site.atEnd(() => {
      for (const client of this.#clients) client.close();
    });
  }

  static async open(site: Site, server: PostgresServer, options: GroupLaunch = {}): Promise<GroupSite> {
    return new GroupSite(site, server, await server.database(), options);
  }

  get store(): string {
    return this.#store;
  }

  /** Starts it, or starts it again at its old address, and waits until it has opened its listeners. */
  async broker(name: string, place: BrokerPlace = {}): Promise<Launched> {
    const launched = await this.launchBroker(name, place);
    await launched.says(place.more?.includes("--fallback") === true ? "standing by" : "listening on", DEADLINE_MS);
    return launched;
  }

  async launchBroker(name: string, { store = this.#store, more = [] }: BrokerPlace = {}): Promise<Launched> {
    const port = this.#ports.get(name) ?? (await freePort());
    this.#ports.set(name, port);
    const { leaseMs = 3_000, graceMs = 30_000, heartbeatMs = 500 } = this.#options;
    const args = [LABORO, "serve", "--data", this.dataOf(name), "--listen", `127.0.0.1:${port}`, "--store", store];
    args.push("--lease", String(leaseMs), "--grace", String(graceMs), "--heartbeat", String(heartbeatMs), ...more);
    const launched = this.site.launch(`broker ${name}`, args);
    this.#brokers.set(name, launched);
    return launched;
  }

  /** The process of this broker that was started last. */
  brokerNamed(name: string): Launched {
    const broker = this.#brokers.get(name);
    if (broker === undefined) throw new Error(`no broker ${name} was started`);
    return broker;
  }

  /** For `batchUnder`. */
  batch(fault: string, tasks: number, client: Client): FaultBatch {
    return { fault, tasks, client, dir: this.site.dir, said: () => this.said() };
  }

  /** The last words of all brokers, for when something has gone wrong. */
  said(): string {
    return [...this.#brokers].map(([name, { said }]) => `broker ${name}:\n${said.slice(-3_000)}`).join("\n");
  }

  /** A worker that is told of one broker only. */
  async worker(name: string, broker: string, slots = 2): Promise<Launched> {
    const dir = this.site.path(name);
    mkdirSync(dir, { recursive: true });
    const args = [LABORO, "worker", "--join", `@${join(this.dataOf(broker), "join.url")}`];
    const launched = this.site.launch(`worker ${name}`, [
      ...args,
      "--dir",
      dir,
      "--name",
      name,
      "--slots",
      String(slots),
    ]);
    await launched.says("joined the broker", DEADLINE_MS);
    return launched;
  }

  /** A client that knows these brokers, the first at first. */
  async client(...names: readonly string[]): Promise<Client> {
    const access = names.map((name) => this.access(name));
    const token = access[0]?.token ?? "";
    const client = await connect({ broker: access.map(({ url }) => url), token, connectTimeoutMs: DEADLINE_MS });
    this.#clients.push(client);
    return client;
  }

  access(name: string): { readonly url: string; readonly token: string } {
    return JSON.parse(readFileSync(join(this.dataOf(name), "access.json"), "utf8"));
  }

  dataOf(name: string): string {
    return this.site.path(`data-${name}`);
  }

  /** Resolves when so many workers are connected, as this client's broker sees the whole group. */
  async workersAre(client: Client, count: number): Promise<void> {
    await until(
      `${count} workers are connected`,
      async () => {
        const workers = await client.workers().catch(() => []);
        return workers.filter(({ connected }) => connected).length === count;
      },
      DEADLINE_MS,
    );
  }
}
