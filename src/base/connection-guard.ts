/**
 * The connections of all listeners of a broker. File descriptors are a resource like disk space: some stay reserved for the store, and
 * whoever has not authenticated holds few of them, for a short time.
 *
 *   new            accepted. It must authenticate, or complete the greeting of its protocol, before the timeout
 *   authenticated  counts as an open connection only
 *
 * Beyond a bound on new connections the oldest new one is destroyed, not the one that comes: a peer with a token authenticates within
 * milliseconds, so silent connections cannot lock it out.
 */
import * as fs from "node:fs";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { networkOf } from "./addresses.js";
import type { ErrorCode } from "./errors.js";

export interface ConnectionBounds {
  /** The time to authenticate or to complete the greeting. */
  readonly greetingTimeoutMs: number;
  /** New connections of one address, and of all. */
  readonly newPerAddress: number;
  readonly newInAll: number;
  /** Connections of any kind. */
  readonly connections: number;
  /** Those of listeners without authentication. */
  readonly withoutAuthentication: number;
}

export const GREETING_TIMEOUT_MS = 5_000;
const NEW_IN_ALL = 4_096;
const WITHOUT_AUTHENTICATION = 20_000;
/** Descriptors for the database, output files, and what the process itself needs. */
const RESERVED_DESCRIPTORS = 256;
/** How long a peer may take to close its side of a connection that was ended here. */
const CLOSE_MS = 1_000;

export function connectionBounds(descriptors = descriptorLimit()): ConnectionBounds {
  const reserved = Math.min(RESERVED_DESCRIPTORS, Math.ceil(descriptors * 0.75));
  const connections = descriptors - reserved;
  const newInAll = Math.min(NEW_IN_ALL, connections);
  return {
    greetingTimeoutMs: GREETING_TIMEOUT_MS,
    newPerAddress: Math.ceil(newInAll / 2),
    newInAll,
    connections,
    withoutAuthentication: Math.min(WITHOUT_AUTHENTICATION, Math.ceil(connections / 2)),
  };
}

/** Node has raised the soft limit to the hard one. */
function descriptorLimit(): number {
  try {
    const limits = fs.readFileSync("/proc/self/limits", "latin1");
    return Number(/^Max open files +(\d+)/m.exec(limits)?.[1] ?? Number.MAX_SAFE_INTEGER);
  } catch {
    // What macOS allows a process.
    return 10_240;
  }
}

/** The guard, as one listener uses it. */
export interface ListenerGuard {
  /** Counts a new connection. False: it was destroyed. */
  admit(socket: Socket): boolean;
  /** Its peer has authenticated, or completed its greeting. */
  authenticated(socket: Endpoints): void;
}

/** Names a connection: the socket itself, or the TLS socket on top of it. */
export type Endpoints = Pick<Socket, "remoteAddress" | "remotePort" | "localPort">;

export type RefusalReport = (listener: string, address: string, code: ErrorCode, why: string) => void;

interface NewConnection {
  readonly socket: Socket;
  readonly listener: string;
  readonly address: string;
  readonly network: string;
  readonly timer: NodeJS.Timeout;
  /** Its descriptor is free. */
  readonly release: () => void;
}

const MAIN = "main";

export class ConnectionGuard {
  readonly #bounds: ConnectionBounds;
  readonly #report: RefusalReport;
  /** The oldest first. */
  readonly #new = new Map<string, NewConnection>();
  readonly #byNetwork = new Map<string, Set<string>>();
  #open = 0;
  #withoutAuthentication = 0;

  constructor(bounds: Partial<ConnectionBounds> = {}, report: RefusalReport = () => {}) {
    this.#bounds = { ...connectionBounds(), ...bounds };
    this.#report = report;
  }

  get greetingTimeoutMs(): number {
    return this.#bounds.greetingTimeoutMs;
  }

  of(listener: string): ListenerGuard {
    return {
      admit: (socket) => this.#admit(listener, socket),
      authenticated: (socket) => this.authenticated(socket),
    };
  }

  authenticated(socket: Endpoints): void {
    this.#forget(keyOf(socket));
  }

  #admit(listener: string, socket: Socket): boolean {
    const { remoteAddress: address } = socket;
    // It is closed already.
    if (address === undefined) {
      socket.destroy();
      return false;
    }
    const { newPerAddress, newInAll, connections, withoutAuthentication, greetingTimeoutMs } = this.#bounds;
    const network = networkOf(address);
    const there = this.#byNetwork.get(network) ?? new Set();
    const full = (key: string | undefined, why: string): void => this.#drop(key, "LABORO_TOO_MANY_PEERS", why);
    if (there.size >= newPerAddress) full(first(there), `${newPerAddress} of this address have not said who they are`);
    if (this.#new.size >= newInAll) full(first(this.#new.keys()), `${newInAll} have not said who they are`);
    if (this.#open >= connections) full(first(this.#new.keys()), `${connections} connections are open`);
    const crowded = listener !== MAIN && this.#withoutAuthentication >= withoutAuthentication;
    if (crowded || this.#open >= connections) {
      this.#report(listener, address, "LABORO_TOO_MANY_PEERS", `${this.#open} connections are open already`);
      socket.destroy();
      return false;
    }
    const key = keyOf(socket);
    const timer = setTimeout(
      () => this.#drop(key, "LABORO_DEADLINE", `it has not said who it is within ${greetingTimeoutMs} ms`),
      greetingTimeoutMs,
    );
    let open = true;
    const release = (): void => {
      if (!open) return;
      open = false;
      this.#forget(key);
      this.#open--;
      if (listener !== MAIN) this.#withoutAuthentication--;
    };
    this.#new.set(key, { socket, listener, address, network, timer, release });
    this.#byNetwork.set(network, there.add(key));
    this.#open++;
    if (listener !== MAIN) this.#withoutAuthentication++;
    socket.once("close", release);
    return true;
  }

  #drop(key: string | undefined, code: ErrorCode, why: string): void {
    const dropped = key === undefined ? undefined : this.#new.get(key);
    if (dropped === undefined) return;
    this.#report(dropped.listener, dropped.address, code, why);
    dropped.socket.destroy();
    dropped.release();
  }

  #forget(key: string): void {
    const known = this.#new.get(key);
    if (known === undefined) return;
    clearTimeout(known.timer);
    this.#new.delete(key);
    const those = this.#byNetwork.get(known.network);
    those?.delete(key);
    if (those?.size === 0) this.#byNetwork.delete(known.network);
  }
}

const first = (keys: Iterable<string>): string | undefined => keys[Symbol.iterator]().next().value;

const keyOf = ({ remoteAddress, remotePort, localPort }: Endpoints): string =>
  `${remoteAddress} ${remotePort} ${localPort}`;

/** Sends the last bytes and closes. A peer that does not close its side soon is cut off. */
export function endSocket(socket: Duplex, last = ""): void {
  if (!socket.writableEnded) socket.end(last);
  // Bytes that nobody reads would reset the connection, and the peer could lose the last ones.
  socket.resume();
  const timer = setTimeout(() => socket.destroy(), CLOSE_MS);
  socket.once("close", () => clearTimeout(timer));
}
