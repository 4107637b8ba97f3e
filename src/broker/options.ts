/** Options of a broker, and the interface of an embedded one. */
import type { ConnectionBounds, ConnectionGuard } from "../base/connection-guard.js";
import type { LaboroError } from "../base/errors.js";
import type { Log } from "../base/log.js";
import type { Settings } from "../dispatch/index.js";
import type { Job } from "../model/job.js";
import type { Store } from "../model/store.js";
import type { Role } from "./access/tokens.js";
import type { AllocationHost } from "./alloc/allocators.js";
import type { Core } from "./core.js";
import type { GroupOptions } from "./group/index.js";
import type { ListenerRequest, ListenerSettings, OpenListener } from "./listeners/listener.js";
import type { AskBounds } from "./operations/asks.js";
import type { Retention } from "./retention.js";

export const DEFAULT_PORT = 5429;

/** Only `dir` is needed. */
export interface BrokerOptions {
  /** The data directory; `:memory:` for a temporary one, which is removed when the broker stops. */
  readonly dir: string;
  /** The address to listen on; 127.0.0.1 if absent. An address that other machines can reach requires TLS. */
  readonly host?: string;
  /** 0 takes any free port. If absent: 5429, or any free port if that is taken. */
  readonly port?: number;
  /** Names and addresses under which other machines reach this one. The join URL contains the first. */
  readonly advertise?: readonly string[];
  /**
   * `auto`: on loopback the certificate is made at the first TLS connection, else at the start. `off`: only loopback.
   */
  readonly tls?: "auto" | "on" | "off";
  /** The admin token. */
  readonly token?: string;
  /** Workers and clients that miss three are disconnected; 2 s if absent. */
  readonly heartbeatMs?: number;
  /** Grace periods, retries and bounds of dispatch. */
  readonly settings?: Partial<Settings>;
  /** Listeners for the old protocols; none if absent. */
  readonly listeners?: readonly ListenerRequest[];
  /** Listeners without authentication may be opened to other machines. */
  readonly insecure?: boolean;
  /** Settings of all these listeners. */
  readonly listenerSettings?: ListenerSettings;
  /** How long ended jobs without their own time are kept, and how many bytes; all if absent. */
  readonly retention?: Retention;
  /** Allow SQLite on a network filesystem, where it can lose data. Refused if absent. */
  readonly allowNetworkFilesystem?: boolean;
  /** The URL of a PostgreSQL database, for several brokers. If absent, SQLite in the data directory. */
  readonly store?: string;
  /** After this time without a heartbeat the other brokers consider this one dead; 10 s if absent. */
  readonly leaseMs?: number;
  /** Open the listeners only while no other broker is open. */
  readonly fallback?: boolean;
  /** Called when the listeners are open: after the start, and each time that this broker reopens. */
  readonly onOpened?: () => void;
  /** Called when a fallback stands by: after the start, and each time that it steps back. */
  readonly onStandby?: () => void;
  /** Anything with `info`, `warn` and `error` as in pino; silent if absent. */
  readonly log?: Log;
  /** Called when the broker cannot continue, for example because the store has failed. It can only be stopped. */
  readonly onFailed?: (cause: LaboroError) => void;
}

/** A broker in this process. */
export interface Broker {
  /** The URL of the main listener. */
  readonly url: string;
  /** The admin token. */
  readonly token: string;
  /** SHA-256 of the CA's certificate, if the URL is https. */
  readonly ca?: string | undefined;
  /** The default port was taken, and another one is used. */
  readonly portChanged: boolean;
  /** The listeners besides the main one. */
  readonly listeners: readonly OpenListener[];
  /** The token of a role, for programs that should not have the admin token. */
  tokenOf(role: Role): string | undefined;
  /** For `startWorker({ broker })` and `connect({ broker })` in this process: a link without a socket. */
  openLink(token: string): object;
  /** Address, token and fingerprint for this role, in one URL; `worker` if absent. */
  joinUrl(role?: Role): string;
  /** A link that logs a browser in once. */
  newLoginLink(role?: Role): { readonly code: string; readonly url: string; readonly expires: number };
  /** Closes the listeners, commits all decisions, closes the store. Workers keep their tasks for the next start. */
  stop(): Promise<void>;
  /** `stop()`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** Options that only laboro's own commands and tests use. */
export interface ServerOptions extends Omit<BrokerOptions, "store"> {
  /** Holds the open jobs for which it returns true, before the first client or worker can connect. */
  readonly holdAtStart?: (job: Job) => boolean;
  /**
   * The main listener opens a moment after the first task has started, or after the start, because clients in this
   * process do not need it. Until then `url` has no port.
   */
  readonly listenLater?: boolean;
  /** When allocations are requested, and of which batch system; Slurm if absent. */
  readonly allocations?: Omit<AllocationHost, "joinUrl">;
  readonly connectionBounds?: Partial<ConnectionBounds>;
  readonly askBounds?: AskBounds;
  /** The URL of a PostgreSQL database, or how to open a store that others share. */
  readonly store?: string | (() => Store);
}

/** A broker with its internals. */
export interface RunningBroker extends Broker {
  readonly core: Core;
  readonly guard: ConnectionGuard;
}

/** Before it can be disposed of. */
export type StartedBroker = Omit<RunningBroker, typeof Symbol.asyncDispose>;

/** What differs between a broker with its own store and one of a group. */
export interface BrokerHost {
  openStore(): Store | Promise<Store>;
  /** The store has failed, or this broker's lease on it has ended. */
  failed(cause: LaboroError): void;
  readonly group?: Pick<GroupOptions, "identity" | "leaseMs" | "fallback"> & { readonly stepBack?: () => void };
}
