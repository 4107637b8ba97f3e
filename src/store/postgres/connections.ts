/**
 * A broker's connections to PostgreSQL: one writer, a few readers, one for heartbeats, and one listener
 * (change-feed.ts). A heartbeat must not wait for a batch, nor a batch for a page that is read.
 */
import postgres from "postgres";
import { pause } from "../../base/clock.js";
import { badInput, errnoOf, LaboroError } from "../../base/errors.js";
import { definedOnly } from "../../model/input.js";
import { type ServerAddress, withServerCa } from "./server-certificate.js";

export type Client = postgres.Sql<{ bigint: number }>;

/** What a parameter may be. Arrays go as text in PostgreSQL's own form (statements.ts), which is cheaper to make. */
export type Value = string | number | boolean | Uint8Array | null;

export interface Session {
  /** Sent at once: statements that do not await each other travel together. */
  send<Row extends object>(statement: string, values?: readonly Value[]): Promise<readonly Row[]>;
}

export interface ConnectionOptions {
  readonly url: string;
  /** Connections that read. */
  readonly readers?: number;
  /** How long a failed statement is tried again before it is rejected. */
  readonly retryForMs?: number;
  /** A statement of a batch that takes longer is cancelled, and may take twice as long the next time. */
  readonly statementTimeoutMs?: number;
}

/** A broker that holds a lock for longer than this hangs. */
const LOCK_MS = 10_000;
/** The server ends a transaction that is idle for this long, so that a broker that is gone holds no locks. */
const IDLE_MS = 10_000;
/** Reads may take long, heartbeats may not. */
const READ_MS = 30_000;
const HEARTBEAT_MS = 3_000;
const CONNECT_S = 5;
const PAUSE_MS = 100;
const DEFAULT_RETRY_FOR_MS = 2_000;
const DEFAULT_READERS = 3;
/** The readers, the writer and its successor, heartbeats, and the listener. */
export const CONNECTIONS_PER_BROKER = DEFAULT_READERS + 4;
const DEFAULT_STATEMENT_TIMEOUT_MS = 12_000;

const SESSION_SETTINGS = {
  idle_in_transaction_session_timeout: IDLE_MS,
  lock_timeout: LOCK_MS,
  statement_timeout: READ_MS,
  jit: "off",
};

/**
 * For the writer. Its statements use an index for any values (plans.test.ts), so one generic plan serves every batch.
 * Sequential scans are off: a new database would plan them for its small tables and keep these plans when they grow.
 */
const WRITER_SETTINGS = { ...SESSION_SETTINGS, plan_cache_mode: "force_generic_plan", enable_seqscan: "off" };

/** A statement is prepared once a connection, by its text. */
const PREPARED = { prepare: true };

export class Connections {
  /** Which server and database, for messages: without the password. */
  readonly displayUrl: string;
  readonly retryForMs: number;
  readonly statementTimeoutMs: number;
  readonly #address: ServerAddress;
  readonly #readerCount: number;
  #readers: Client;
  #heartbeats: Client;
  #writer: Client;
  #closed = false;

  constructor(options: ConnectionOptions) {
    const {
      url,
      readers = DEFAULT_READERS,
      retryForMs = DEFAULT_RETRY_FOR_MS,
      statementTimeoutMs = DEFAULT_STATEMENT_TIMEOUT_MS,
    } = options;
    this.#address = withServerCa(url);
    this.displayUrl = withoutPassword(url);
    this.retryForMs = retryForMs;
    this.statementTimeoutMs = statementTimeoutMs;
    this.#readerCount = readers;
    this.#readers = this.client(readers);
    this.#heartbeats = this.client(1);
    this.#writer = this.client(1, WRITER_SETTINGS);
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** A client that the caller ends. Without settings it has the server's defaults. */
  client(max: number, settings: Readonly<Record<string, string | number>> = SESSION_SETTINGS): Client {
    const { url, ssl } = this.#address;
    try {
      return postgres(url, {
        max,
        ...definedOnly({ ssl }),
        connect_timeout: CONNECT_S,
        // A connection that is ended for its age could end in the middle of a batch.
        max_lifetime: null,
        backoff: (retries) => Math.min(1, 0.05 * 2 ** retries),
        keep_alive: 10,
        fetch_types: false,
        types: { bigint: { to: 20, from: [20], parse: Number, serialize: String } },
        onnotice: () => {},
        connection: { application_name: "laboro", ...settings },
      });
    } catch (cause) {
      const text = cause instanceof Error ? cause.message : String(cause);
      throw badInput(`${this.displayUrl} is not the address of a PostgreSQL database: ${text}`, cause);
    }
  }

  /** The only connection that writes, so statements keep their order. */
  get writer(): Client {
    return this.#writer;
  }

  /** Replaces the connection that writes; statements of the former one without an answer are rejected. */
  replaceWriter(): void {
    if (this.#closed) return;
    void this.#writer.end({ timeout: 0 });
    this.#writer = this.client(1, WRITER_SETTINGS);
  }

  /** Sends a statement that changes nothing; retries for `retryForMs`. */
  read<Row extends object>(statement: string, values: readonly Value[] = []): Promise<readonly Row[]> {
    const ask = (): Promise<readonly Row[]> =>
      withTimeout(READ_MS + HEARTBEAT_MS, send<Row>(this.#readers, statement, values), () => {
        void this.#readers.end({ timeout: 0 });
        this.#readers = this.client(this.#readerCount);
      });
    return this.#withRetries(ask);
  }

  /** Sends a heartbeat: once, without a retry. */
  async heartbeat<Row extends object>(statement: string, values: readonly Value[]): Promise<readonly Row[]> {
    try {
      return await withTimeout(HEARTBEAT_MS, send<Row>(this.#heartbeats, statement, values), () => {
        void this.#heartbeats.end({ timeout: 0 });
        this.#heartbeats = this.client(1);
      });
    } catch (cause) {
      throw storeFailure(cause, this.displayUrl);
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all([this.#writer, this.#readers, this.#heartbeats].map((client) => client.end({ timeout: 2 })));
  }

  async #withRetries<T>(ask: () => Promise<T>): Promise<T> {
    const deadline = performance.now() + this.retryForMs;
    for (;;) {
      try {
        return await ask();
      } catch (cause) {
        const failure = storeFailure(cause, this.displayUrl);
        if (failure.code !== "LABORO_STORE_UNAVAILABLE" || performance.now() > deadline || this.#closed) throw failure;
        await pause(PAUSE_MS);
      }
    }
  }
}

/** Without an answer in time, closes the connection, which rejects the statement. The next try has a new one. */
async function withTimeout<T>(ms: number, answering: Promise<T>, cutOff: () => void): Promise<T> {
  const timer = setTimeout(cutOff, ms);
  try {
    return await answering;
  } finally {
    clearTimeout(timer);
  }
}

export const send = <Row extends object>(
  client: Pick<Client, "unsafe">,
  statement: string,
  values: readonly Value[] = [],
): Promise<readonly Row[]> => client.unsafe<Row[]>(statement, [...values], PREPARED).execute();

/**
 * One transaction of a client with one connection. Not the client's own `begin`, which ends the process if the
 * connection is lost. If it is lost between two statements, the later ones run outside the transaction.
 */
export async function inTransaction<T>(client: Client, work: () => Promise<T>): Promise<T> {
  await client.unsafe("BEGIN").execute();
  try {
    const result = await work();
    await client.unsafe("COMMIT").execute();
    return result;
  } catch (cause) {
    await client.unsafe("ROLLBACK").catch(() => {});
    throw cause;
  }
}

function withoutPassword(url: string): string {
  try {
    const { host, pathname } = new URL(url);
    return `postgres://${host}${pathname}`;
  } catch {
    // Several hosts in one address are no URL to Node.
    return url.replace(/\/\/[^@/]*@/, "//").replace(/\?.*$/, "");
  }
}

// Failures of PostgreSQL as coded errors. The server's codes are listed in
// https://www.postgresql.org/docs/current/errcodes-appendix.html

/** Temporary: nothing was changed, and a retry may succeed. */
const TRANSIENT_CLASSES = new Set([
  "08", // connection
  "40", // deadlock, serialization: another transaction was in the way
  "53", // too many connections, out of memory
  "55", // a lock was not available in time
  "57", // shut down, starting up, cancelled by a time-out
  "58", // the server's own disk or files
]);
const TRANSIENT = new Set([
  "25P01", // no transaction: the connection broke, and the commit went to a new one
  "42704", // no such setting: likewise, for any other statement of a batch
  "25P02", // another statement of the transaction has failed
  "25P03", // idle in transaction for too long
  "25006", // a standby, or one that was a primary: it takes no writes
]);
/** Of the client or the network. */
const CONNECTION_ERRORS = new Set(
  `CONNECTION_CLOSED CONNECTION_ENDED CONNECTION_DESTROYED CONNECT_TIMEOUT ECONNREFUSED ECONNRESET EPIPE ETIMEDOUT
   EHOSTUNREACH EHOSTDOWN ENETUNREACH ENETDOWN ENOTFOUND EAI_AGAIN ENOENT`.split(/\s+/),
);
const REFUSED = new Set(["28000", "28P01", "3D000", "42501", "3F000"]);
const DISK_FULL = "53100";
const CORRUPT = new Set(["XX001", "XX002"]);
const UNIQUE = "23505";
const SERVER_SHUTDOWN = new Set(["57P01", "57P02", "57P03", "57P05", "25P03"]);

/** `opening`: nothing was written yet, so a refusal of the server is LABORO_DATA_UNUSABLE, which a person must fix. */
export function storeFailure(cause: unknown, displayUrl: string, opening = false): LaboroError {
  if (cause instanceof LaboroError) return cause;
  const code = errnoOf(cause) ?? "";
  const text = `${displayUrl}: ${textOf(cause)}`;
  if (code === DISK_FULL) return new LaboroError("LABORO_DISK_FULL", `no disk space to write at ${text}`, { cause });
  if (REFUSED.has(code) && opening) return new LaboroError("LABORO_DATA_UNUSABLE", `cannot use ${text}`, { cause });
  if (CORRUPT.has(code)) return new LaboroError("LABORO_DATA_CORRUPT", text, { cause });
  if (REFUSED.has(code) || isTransient(code) || isOutsideTransaction(cause))
    return new LaboroError("LABORO_STORE_UNAVAILABLE", text, { cause });
  // Two task ranges with one id, a number out of range: a retry would not help.
  if (/^2[23]/.test(code)) return new LaboroError("LABORO_INTERNAL", text, { cause });
  return new LaboroError("LABORO_STORE_FAILED", text, { cause });
}

/** A statement of a batch outside its transaction, on a connection that was used before: the setting is empty. */
const isOutsideTransaction = (cause: unknown): boolean =>
  errnoOf(cause) === "22P02" && textOf(cause).includes('bigint: ""');

const isTransient = (code: string): boolean =>
  CONNECTION_ERRORS.has(code) || TRANSIENT.has(code) || (code.length === 5 && TRANSIENT_CLASSES.has(code.slice(0, 2)));

/** Whether a COMMIT may have been carried out although it failed. */
export function isUnconfirmed(cause: unknown): boolean {
  const code = errnoOf(cause) ?? "";
  return CONNECTION_ERRORS.has(code) || code.startsWith("08") || SERVER_SHUTDOWN.has(code) || code === "";
}

/** Ended by its time-out, which may have been too short. */
export const isTimeout = (cause: unknown): boolean => errnoOf(cause) === "57014";

/** The batch has been committed before. */
export const isAlreadyCommitted = (cause: unknown): boolean =>
  errnoOf(cause) === UNIQUE && fieldOf(cause, "constraint_name") === "last_batch_pkey";

/** Some refusals of connections come as a list, one an address. */
function textOf(cause: unknown): string {
  if (cause instanceof AggregateError && cause.message === "") return cause.errors.map(textOf).join(", ");
  return cause instanceof Error ? cause.message : String(cause);
}

function fieldOf(cause: unknown, name: string): unknown {
  return typeof cause === "object" && cause !== null ? Reflect.get(cause, name) : undefined;
}
