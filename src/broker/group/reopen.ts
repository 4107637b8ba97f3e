/**
 * A broker of a group may open several times in one process.
 *
 *   standing by  a fallback only: it sends heartbeats, and its listeners are closed (standby.ts)
 *   opening      takes a new epoch; retries until the store answers
 *   open         the listeners are open
 *   closing      the lease was lost, or it steps back: the listeners close, then it opens or stands by again
 *   stopped
 *
 * A broker that loses its lease loses its state, but not the work of its workers: they reconnect with their tasks.
 */
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pause } from "../../base/clock.js";
import { asLaboroError, errnoOf, LaboroError } from "../../base/errors.js";
import { writeFileAtomically } from "../../base/files/durable.js";
import { SILENT } from "../../base/log.js";
import type { Store } from "../../model/store.js";
import { openDataDirectory } from "../../store/sqlite/data-directory.js";
import type { Broker, BrokerHost, ServerOptions, StartedBroker } from "../options.js";
import { DEFAULT_LEASE_MS } from "./membership.js";
import { standBy } from "./standby.js";

type OpenBroker = (options: ServerOptions, host: BrokerHost) => Promise<StartedBroker>;

/** Between two tries to reopen. */
const RETRY_MS = 500;
/** A fallback that steps back waits this long for its workers to leave. */
const DRAIN_MS = 1_000;

export async function startInGroup(options: ServerOptions, open: OpenBroker): Promise<StartedBroker> {
  const directory = openGroupDirectory(options.dir, options.allowNetworkFilesystem ?? false);
  const broker = new ReopeningBroker(options, open, directory);
  try {
    await broker.start();
    return broker;
  } catch (cause) {
    await broker.stop();
    throw cause;
  }
}

class ReopeningBroker implements StartedBroker {
  readonly #options: ServerOptions;
  readonly #open: OpenBroker;
  readonly #directory: GroupDirectory;
  readonly #stopping = new AbortController();
  #broker: StartedBroker | undefined;
  /** The port of the first opening, used for the next ones too. */
  #port: number | undefined;
  #changing: Promise<void> = Promise.resolve();

  constructor(options: ServerOptions, open: OpenBroker, directory: GroupDirectory) {
    this.#options = options;
    this.#open = open;
    this.#directory = directory;
  }

  async start(): Promise<void> {
    if (this.#options.fallback === true) this.#change(() => this.#standBy());
    else await this.#openBroker();
  }

  get guard() {
    return this.#current.guard;
  }

  get core() {
    return this.#current.core;
  }

  get url() {
    return this.#current.url;
  }

  get token() {
    return this.#current.token;
  }

  get ca() {
    return this.#current.ca;
  }

  get portChanged() {
    return this.#current.portChanged;
  }

  get listeners() {
    return this.#current.listeners;
  }

  tokenOf(...given: Parameters<Broker["tokenOf"]>) {
    return this.#current.tokenOf(...given);
  }

  openLink(...given: Parameters<Broker["openLink"]>) {
    return this.#current.openLink(...given);
  }

  joinUrl(...given: Parameters<Broker["joinUrl"]>) {
    return this.#current.joinUrl(...given);
  }

  newLoginLink(...given: Parameters<Broker["newLoginLink"]>) {
    return this.#current.newLoginLink(...given);
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#changing;
    await this.#broker?.stop();
    this.#broker = undefined;
    this.#directory.release();
  }

  get #current(): StartedBroker {
    if (this.#broker !== undefined) return this.#broker;
    throw new LaboroError("LABORO_BROKER_STOPPING", "the listeners of this broker are closed at the moment");
  }

  get #over(): boolean {
    return this.#stopping.signal.aborted;
  }

  /** Runs one change at a time; a failure goes to `onFailed`. */
  #change(act: () => Promise<void>): void {
    this.#changing = this.#changing.then(async () => {
      if (this.#over) return;
      await act().catch((cause: unknown) => this.#options.onFailed?.(asLaboroError(cause)));
    });
  }

  async #openBroker(): Promise<void> {
    const { leaseMs = DEFAULT_LEASE_MS, fallback = false } = this.#options;
    const { identity } = this.#directory;
    let over = false;
    const end = (act: () => Promise<void>): void => {
      if (over) return;
      over = true;
      this.#change(act);
    };
    const broker = await this.#open(
      { ...this.#options, ...(this.#port === undefined ? {} : { port: this.#port }) },
      {
        openStore: () => this.#openStore(),
        failed: (cause) => {
          if (cause.code === "LABORO_LEASE_LOST") end(() => this.#reopen(cause));
          else this.#options.onFailed?.(cause);
        },
        group: {
          ...{ identity, leaseMs, fallback },
          ...(fallback ? { stepBack: () => end(() => this.#stepBack()) } : {}),
        },
      },
    );
    this.#broker = broker;
    this.#port = Number(new URL(broker.url).port);
    this.#directory.saveEpoch(broker.core.state.epoch);
    this.#options.onOpened?.();
  }

  #openStore(): Store | Promise<Store> {
    const { store, log = SILENT } = this.#options;
    if (typeof store === "function") return store();
    return openPostgres(store ?? "", this.#directory, (line) => log.warn({}, line));
  }

  async #reopen(cause: LaboroError): Promise<void> {
    const { log = SILENT } = this.#options;
    log.warn({ code: cause.code }, `${cause.message}: this broker reopens, its workers keep their tasks`);
    await this.#closeBroker();
    if (this.#options.fallback === true) await this.#standBy();
    else await this.#openWithRetry();
  }

  /** Retries until the store answers. A broker that was open before has no other problem. */
  async #openWithRetry(): Promise<void> {
    const { log = SILENT } = this.#options;
    while (!this.#over) {
      try {
        await this.#openBroker();
        return;
      } catch (cause) {
        const { code, message } = asLaboroError(cause);
        log.error({ code }, `this broker cannot reopen, and tries again: ${message}`);
        await pause(RETRY_MS, this.#stopping.signal);
      }
    }
  }

  async #standBy(): Promise<void> {
    const { log = SILENT, leaseMs = DEFAULT_LEASE_MS } = this.#options;
    this.#options.onStandby?.();
    await standBy({
      identity: this.#directory.identity,
      openStore: () => this.#openStore(),
      address: this.#options,
      ...{ leaseMs, log, stopping: this.#stopping.signal },
    });
    if (!this.#over) await this.#openWithRetry();
  }

  async #stepBack(): Promise<void> {
    this.#broker?.core.maintenance.set(true);
    await pause(DRAIN_MS, this.#stopping.signal);
    await this.#closeBroker();
    if (!this.#over) this.#change(() => this.#standBy());
  }

  async #closeBroker(): Promise<void> {
    const broker = this.#broker;
    this.#broker = undefined;
    await broker?.stop();
  }
}

/** Loaded late, because most brokers use SQLite. */
async function openPostgres(url: string, directory: GroupDirectory, log: (line: string) => void): Promise<Store> {
  const { openPostgresStore } = await import("../../store/postgres/index.js");
  const { identity, formerEpoch } = directory;
  return openPostgresStore({ url, log, identity, ...(formerEpoch === undefined ? {} : { formerEpoch }) });
}

/**
 * The data directory of a broker of a group: identity, tokens, certificates, and a lock. The lock proves that the
 * former process of this broker has ended. So its tasks can be taken over at once, before its lease ends.
 */
const FILE = "group.json";

interface StoredIdentity {
  readonly identity: string;
  /** Its last epoch. */
  readonly epoch?: number;
}

interface GroupDirectory {
  readonly identity: string;
  readonly formerEpoch: number | undefined;
  /** Stores the epoch of this process. */
  saveEpoch(epoch: number): void;
  release(): void;
}

function openGroupDirectory(dir: string, allowNetworkFilesystem: boolean): GroupDirectory {
  const lock = openDataDirectory({ dir, allowNetworkFilesystem });
  try {
    const path = join(dir, FILE);
    let { identity, epoch } = readIdentity(path) ?? { identity: randomBytes(6).toString("hex") };
    const write = (): void => writeFileAtomically(path, `${JSON.stringify({ identity, epoch })}\n`);
    if (epoch === undefined) write();
    return {
      identity,
      get formerEpoch() {
        return epoch;
      },
      saveEpoch: (now) => {
        epoch = now;
        write();
      },
      release: () => lock.release(),
    };
  } catch (cause) {
    lock.release();
    throw cause;
  }
}

function readIdentity(path: string): StoredIdentity | undefined {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (cause) {
    if (errnoOf(cause) === "ENOENT") return undefined;
    throw cause;
  }
  try {
    const { identity, epoch } = JSON.parse(text) as Partial<StoredIdentity>;
    if (typeof identity === "string" && identity !== "") {
      return { identity, ...(typeof epoch === "number" ? { epoch } : {}) };
    }
  } catch {
    // The caller reports it.
  }
  throw new LaboroError(
    "LABORO_DATA_CORRUPT",
    `${path} has no identity; remove the file to give this broker a new one`,
  );
}
