/** What a broker is started with, and what a program that embeds one gets. */
import type { LaboroError } from "../base/errors.js";
import type { Log } from "../base/log.js";
import type { Settings } from "../dispatch/index.js";
import type { Store } from "../model/store.js";
import type { Role } from "./access/roles.js";
import type { Core } from "./core.js";
import type { GroupOptions } from "./group/index.js";
import type { ListenerSettings } from "./listeners/listener.js";
import type { ListenerRequest, OpenListener } from "./listeners/requested.js";
import type { Retention } from "./retention.js";

export const DEFAULT_PORT = 5429;

export interface BrokerOptions {
  /** The data directory. */
  readonly dir: string;
  /** The address to listen on; 127.0.0.1 if absent. Any that other machines can reach means TLS. */
  readonly host?: string;
  /** 0 takes any free port. If absent it is 5429, or any free one where that is taken. */
  readonly port?: number;
  /** Names and addresses under which other machines reach this one; the first goes into the join URL. */
  readonly advertise?: readonly string[];
  /** `auto`: on loopback a certificate is made when somebody speaks TLS, elsewhere at once. `off` goes with loopback only. */
  readonly tls?: "auto" | "on" | "off";
  /** The admin's. */
  readonly token?: string;
  readonly heartbeatMs?: number;
  readonly settings?: Partial<Settings>;
  /** Doors for the old protocols; none if absent. */
  readonly doors?: readonly ListenerRequest[];
  /** Doors without authentication may be opened to other machines. */
  readonly insecure?: boolean;
  readonly doorSettings?: ListenerSettings;
  /** How long and how much of what has ended is kept; all of it if absent. */
  readonly retention?: Retention;
  readonly allowNetworkFilesystem?: boolean;
  /** For several brokers: the URL of a PostgreSQL database. In the data directory if absent. */
  readonly store?: string;
  /** How long the others wait for a sign of this broker before they take it for dead; 10 s if absent. */
  readonly leaseMs?: number;
  /** Open the doors only while no other broker is there. */
  readonly fallback?: boolean;
  /** The doors are open: at first, and each time that this broker opens anew. */
  readonly onOpened?: () => void;
  /** A fallback stands by: at first, and each time that it steps back. */
  readonly onStandby?: () => void;
  readonly log?: Log;
  /** The store has failed for good, or the like: the broker can only be stopped. */
  readonly onFailed?: (cause: LaboroError) => void;
}

export interface Broker {
  readonly url: string;
  /** The admin's. */
  readonly token: string;
  /** SHA-256 of the CA's certificate, where the URL is https. */
  readonly ca?: string | undefined;
  /** The default port was taken, and this one was used instead. */
  readonly moved: boolean;
  /** Those beside the main one. */
  readonly doors: readonly OpenListener[];
  tokenOf(role: Role): string | undefined;
  /** All that somebody of this role needs to come in, in one line; a worker if absent. */
  joinUrl(role?: Role): string;
  /** A link that lets a browser in once. */
  newEntry(role?: Role): { readonly code: string; readonly url: string; readonly expires: number };
  /** In order: doors closed, decisions on disk, store closed. Workers keep their tasks for the next start. */
  stop(): Promise<void>;
}

/** Options that only laboro's own commands and tests use. */
export interface ServerOptions extends Omit<BrokerOptions, "store"> {
  /** A commit returns before it is on disk: for callers that keep the results elsewhere. Only a crash of the machine loses the last commits. */
  readonly relaxed?: boolean;
  /** The URL of a PostgreSQL database, or how to open a store that others share. */
  readonly store?: string | (() => Store);
}

/** A broker with its internals. */
export interface RunningBroker extends Broker {
  readonly core: Core;
}

/** What makes a broker one of several, or the only one. */
export interface House {
  openStore(): Store | Promise<Store>;
  /** The store has failed, or this broker's lease on it has ended. */
  failed(cause: LaboroError): void;
  readonly group?: Pick<GroupOptions, "identity" | "leaseMs" | "fallback"> & { readonly stepBack?: () => void };
}
