/**
 * Limits the connections of all listeners of a broker. Some file descriptors are reserved for the store, and
 * unauthenticated connections are limited in number and time.
 *
 *   new            accepted. The peer must authenticate, or complete the greeting of its protocol, before the timeout
 *   authenticated  counts as an open connection only
 *
 * At a limit, the oldest new connection that has sent nothing, or not enough within half of the timeout, is destroyed:
 * silent connections cannot lock out a peer with a token. If all new connections are in the middle of their handshake,
 * as when a thousand workers reconnect at once, the next one is refused, so that the others complete theirs.
 */
import * as fs from "node:fs";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { networkOf } from "./addresses.js";
import type { ErrorCode } from "./errors.js";

export const GREETING_TIMEOUT_MS = 5_000;
const NEW_IN_ALL = 2_048;
/** Connections of listeners without authentication. */
const WITHOUT_AUTHENTICATION = 20_000;
/** Descriptors for the database, output files, and what the process itself needs. */
const RESERVED_DESCRIPTORS = 256;
/** How long a peer may take to close its side of a connection that was ended here. */
const CLOSE_MS = 1_000;

export type ConnectionBounds = Readonly<ReturnType<typeof connectionBounds>>;

/** The limits that follow from the number of descriptors. */
function connectionBounds() {
  const descriptors = descriptorLimit();
  const connections = descriptors - Math.min(RESERVED_DESCRIPTORS, Math.ceil(descriptors * 0.75));
  const newInAll = Math.min(NEW_IN_ALL, connections);
  return {
    /** The time to authenticate or to complete the greeting. */
    greetingTimeoutMs: GREETING_TIMEOUT_MS,
    /** A connection that has sent nothing for this long is silent. */
    silentAfterMs: 250,
    newPerAddress: Math.ceil(newInAll / 2),
    newInAll,
    connections,
    withoutAuthentication: Math.min(WITHOUT_AUTHENTICATION, Math.ceil(connections / 2)),
  };
}

/** Node has raised the soft limit to the hard limit. */
function descriptorLimit(): number {
  try {
    const limits = fs.readFileSync("/proc/self/limits", "latin1");
    return Number(/^Max open files +(\d+)/m.exec(limits)?.[1] ?? Number.MAX_SAFE_INTEGER);
  } catch {
    // The default of macOS.
    return 10_240;
  }
}

/** The guard, as one listener uses it. */
export interface ListenerGuard {
  /** Counts a new connection. Returns false if the connection was destroyed. */
  admit(socket: Socket): boolean;
  /** Its peer has authenticated, or completed its greeting. */
  authenticated(socket: Endpoints): void;
}

/** Identifies a connection: the socket itself, or the TLS socket on top of it. */
type Endpoints = Pick<Socket, "remoteAddress" | "remotePort" | "localPort">;

type RefusalReport = (listener: string, address: string, code: ErrorCode, why: string) => void;

interface NewConnection {
  readonly isStalled: () => boolean;
  readonly listener: string;
  readonly network: string;
  readonly timer: NodeJS.Timeout;
  readonly drop: (code: ErrorCode, why: string) => void;
}

const MAIN = "main";

export class ConnectionGuard {
  readonly #bounds: ConnectionBounds;
  readonly #report: RefusalReport;
  /** The oldest first. */
  readonly #new = new Map<string, NewConnection>();
  /** How many of each network. */
  readonly #byNetwork = new Map<string, number>();
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
    // The socket is closed already.
    if (address === undefined) {
      socket.destroy();
      return false;
    }
    const { greetingTimeoutMs, silentAfterMs } = this.#bounds;
    const network = networkOf(address);
    for (let rivals = this.#rivals(listener, network); rivals !== undefined; rivals = this.#rivals(listener, network)) {
      if (this.#dropOldest(rivals)) continue;
      this.#report(listener, address, "LABORO_TOO_MANY_PEERS", `${this.#open} connections are open already`);
      socket.destroy();
      return false;
    }
    const key = keyOf(socket);
    let open = true;
    const release = (): void => {
      if (!open) return;
      open = false;
      this.#forget(key);
      this.#open--;
      if (listener !== MAIN) this.#withoutAuthentication--;
    };
    const drop = (code: ErrorCode, why: string): void => {
      this.#report(listener, address, code, why);
      socket.destroy();
      release();
    };
    let halves = 0;
    const since = performance.now();
    const isStalled = (): boolean =>
      halves > 0 || (socket.bytesRead === 0 && performance.now() - since >= silentAfterMs);
    // Two half intervals: if this process was suspended, data that arrived meanwhile is read before the second one.
    const timer = setInterval(() => {
      if (++halves === 2) drop("LABORO_DEADLINE", `it did not identify itself within ${greetingTimeoutMs} ms`);
    }, greetingTimeoutMs / 2);
    this.#new.set(key, { listener, network, timer, drop, isStalled });
    this.#byNetwork.set(network, (this.#byNetwork.get(network) ?? 0) + 1);
    this.#open++;
    if (listener !== MAIN) this.#withoutAuthentication++;
    socket.once("close", release);
    return true;
  }

  /** Returns the new connections that compete for the same limit, if it is reached. */
  #rivals(listener: string, network: string): ((one: NewConnection) => boolean) | undefined {
    const { newPerAddress, newInAll, connections, withoutAuthentication } = this.#bounds;
    if ((this.#byNetwork.get(network) ?? 0) >= newPerAddress) return (one) => one.network === network;
    if (this.#new.size >= newInAll || this.#open >= connections) return () => true;
    if (listener === MAIN || this.#withoutAuthentication < withoutAuthentication) return undefined;
    return (one) => one.listener !== MAIN;
  }

  #dropOldest(matches: (one: NewConnection) => boolean): boolean {
    for (const one of this.#new.values()) {
      if (!matches(one) || !one.isStalled()) continue;
      one.drop("LABORO_TOO_MANY_PEERS", `it did not identify itself, like ${this.#new.size} others`);
      return true;
    }
    return false;
  }

  #forget(key: string): void {
    const known = this.#new.get(key);
    if (known === undefined) return;
    clearInterval(known.timer);
    this.#new.delete(key);
    const left = (this.#byNetwork.get(known.network) ?? 1) - 1;
    if (left === 0) this.#byNetwork.delete(known.network);
    else this.#byNetwork.set(known.network, left);
  }
}

const keyOf = ({ remoteAddress, remotePort, localPort }: Endpoints): string =>
  `${remoteAddress} ${remotePort} ${localPort}`;

/** Sends the last bytes and closes. A peer that does not close its side soon is cut off. */
export function endSocket(socket: Duplex, last = ""): void {
  if (!socket.writableEnded) socket.end(last);
  // Unread bytes would reset the connection, and the peer could lose the last bytes sent to it.
  socket.resume();
  const timer = setTimeout(() => socket.destroy(), CLOSE_MS);
  socket.once("close", () => clearTimeout(timer));
}
