/**
 * A place of a test's own: a folder, a broker and workers as real processes, clients. Everything that is started here, and
 * everything that those start, carries a mark in its environment, by which it is found again whatever its parents are.
 * After each test all of it is ended by id; a process or a temporary file that is then left fails the test.
 */

import { randomUUID } from "node:crypto";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach } from "vitest";
import { type Client, connect, LaboroError } from "../../src/entries/client.js";
import { freePort } from "./free-port.js";
import { LABORO, Launched, type LaunchOptions } from "./launched.js";
import { describeProcess, type ProcessRow, processesWith } from "./process-table.js";
import { until } from "./wait.js";

type LaunchLimits = Partial<LaunchOptions>;

export interface BrokerLaunch {
  readonly heartbeatMs?: number;
  readonly graceMs?: number;
  readonly openFiles?: number;
  /** `--protocol`, one each. */
  readonly listeners?: readonly string[];
  /** Any other option of `serve`. */
  readonly options?: readonly string[];
  readonly env?: NodeJS.ProcessEnv;
  /** How far its clock is ahead. */
  readonly clockAheadMs?: number;
}

export interface WorkerLaunch {
  readonly slots?: number;
  readonly pool?: string;
  readonly openFiles?: number;
  /** Where it finds the broker, if not where the broker is. */
  readonly url?: string;
  readonly env?: NodeJS.ProcessEnv;
}

export class Site {
  readonly dir: string;
  readonly data: string;
  /** Where the processes make their temporary files. */
  readonly tmp: string;
  readonly #mark = `LABORO_TEST_SITE=${randomUUID()}`;
  readonly #launched: Launched[] = [];
  readonly #workers = new Map<string, Launched>();
  readonly #clients: Client[] = [];
  readonly #cleanups: (() => void | Promise<void>)[] = [];
  #port: number | undefined;
  #brokerLaunch: BrokerLaunch = {};
  #broker: Launched | undefined;

  constructor() {
    this.dir = fs.mkdtempSync(join(tmpdir(), "laboro-fault-"));
    this.data = join(this.dir, "data");
    this.tmp = join(this.dir, "tmp");
    fs.mkdirSync(this.tmp);
  }

  path(name: string): string {
    return join(this.dir, name);
  }

  /** Called before the folder is removed. */
  atEnd(cleanup: () => void | Promise<void>): void {
    this.#cleanups.push(cleanup);
  }

  get broker(): Launched {
    if (this.#broker === undefined) throw new Error("no broker was started");
    return this.#broker;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  get token(): string {
    return (JSON.parse(fs.readFileSync(join(this.data, "access.json"), "utf8")) as { token: string }).token;
  }

  /** Starts the broker without waiting for it. A later call starts it again on the same port with the same options. */
  async launchBroker(options: BrokerLaunch = this.#brokerLaunch): Promise<Launched> {
    this.#port ??= await freePort();
    this.#brokerLaunch = options;
    const { heartbeatMs = 500, graceMs = 30_000, clockAheadMs = 0 } = options;
    const clock = clockAheadMs === 0 ? [] : ["--import", clockAhead(clockAheadMs)];
    const args = [...clock, LABORO, "serve", "--data", this.data, "--listen", `127.0.0.1:${this.#port}`];
    for (const listener of options.listeners ?? []) args.push("--protocol", listener);
    args.push(...(options.options ?? []));
    args.push("--heartbeat", String(heartbeatMs), "--grace", String(graceMs));
    this.#broker = this.launch("the broker", args, options);
    return this.#broker;
  }

  async startBroker(options?: BrokerLaunch): Promise<Launched> {
    const broker = await this.launchBroker(options);
    await broker.says("listening on");
    return broker;
  }

  /** A worker process; the same name has the same directory. */
  launchWorker(name: string, options: WorkerLaunch = {}): Launched {
    const { slots = 1, pool, url } = options;
    const data = url === undefined ? this.data : this.#accessTo(name, url);
    const args = [LABORO, "worker", "--data", data, "--dir", this.path(name), "--name", name, "--slots", String(slots)];
    if (pool !== undefined) args.push("--pool", pool);
    const worker = this.launch(`worker ${name}`, args, options);
    this.#workers.set(name, worker);
    return worker;
  }

  /** The process of this worker that was started last. */
  workerNamed(name: string): Launched {
    const worker = this.#workers.get(name);
    if (worker === undefined) throw new Error(`no worker ${name} was started`);
    return worker;
  }

  async startWorker(name: string, options?: WorkerLaunch): Promise<Launched> {
    const worker = this.launchWorker(name, options);
    await worker.says("joined the broker");
    return worker;
  }

  /** Any node program, with arguments. */
  launch(name: string, args: readonly string[], options: LaunchLimits = {}): Launched {
    const [key = "", value] = this.#mark.split("=");
    const env = { ...process.env, ...options.env, [key]: value, TMPDIR: this.tmp };
    const launched = new Launched(name, args, { ...options, env });
    this.#launched.push(launched);
    return launched;
  }

  async client(): Promise<Client> {
    const client = await connect({ broker: this.url, token: this.token });
    this.#clients.push(client);
    return client;
  }

  /** Running processes that were started from here, by whomever. */
  processes(): ProcessRow[] {
    return processesWith(this.#mark);
  }

  /** Ends everything and says what would have been left behind. */
  async close(): Promise<string[]> {
    for (const client of this.#clients) client.close();
    await Promise.all(this.#launched.map((one) => one.end("SIGKILL")));
    const left: string[] = [];
    // A guardian gives its tasks a second.
    await until("no process is left", () => this.processes().length === 0, 6_000).catch(() => {
      for (const { pid, command } of this.processes()) {
        left.push(`process ${pid}: ${command}`);
        console.log(describeProcess(pid));
        process.kill(pid, "SIGKILL");
      }
    });
    for (const name of fs.readdirSync(this.tmp)) left.push(`temporary ${name}`);
    for (const cleanup of this.#cleanups) await cleanup();
    fs.rmSync(this.dir, { recursive: true, force: true });
    return left;
  }

  #accessTo(name: string, url: string): string {
    const data = this.path(`${name}-access`);
    fs.mkdirSync(data, { recursive: true });
    fs.writeFileSync(join(data, "access.json"), JSON.stringify({ url, token: this.token }));
    return data;
  }
}

/** A module that sets the wall clock of its process. */
const clockAhead = (ms: number): string =>
  `data:text/javascript,${encodeURIComponent(`
    const real = Date.now;
    Date.now = () => real() + ${ms};
    Object.defineProperty(performance, "timeOrigin", { value: performance.timeOrigin + ${ms} });`)}`;

/** Sites for the tests of this file. */
export function sites(): () => Site {
  const open: Site[] = [];
  afterEach(async () => {
    const left = (await Promise.all(open.splice(0).map((site) => site.close()))).flat();
    if (left.length > 0) throw new Error(`left behind:\n${left.join("\n")}`);
  });
  return () => {
    const site = new Site();
    open.push(site);
    return site;
  };
}

/** Asks again where the broker or its store went away under the question: for questions that change nothing, or nothing twice. */
export async function again<T>(ask: () => Promise<T>, deadlineMs = 15_000): Promise<T> {
  return until(
    "the broker answers",
    async () => {
      try {
        return { value: await ask() };
      } catch (cause) {
        if (cause instanceof LaboroError && /^LABORO_(BROKER_|STORE_UNAVAILABLE|LEASE_LOST)/.test(cause.code))
          return undefined;
        throw cause;
      }
    },
    deadlineMs,
  ).then(({ value }) => value);
}
