/** The listener of an old protocol, and what it is given. */

import type { ConnectionGuard } from "../../base/connection-guard.js";
import type { Log } from "../../base/log.js";
import type { PeerErrors } from "../../base/peer-errors.js";
import type { TracedConnections } from "../../base/traced-connections.js";
import type { Core } from "../core.js";

/** They open only when named. */
export const LISTENER_NAMES = ["fuq", "fuq1", "runexp", "round-robin", "scale0"] as const;
export type ListenerName = (typeof LISTENER_NAMES)[number];

/** Where a listener opens: one port, or as many as its protocol has. 0 takes any free one. */
export interface ListenerAddress {
  readonly host: string;
  readonly ports: readonly number[];
}

/** What an operator may set for a listener, beyond its address. */
export interface ListenerSettings {
  /** The pool of the workers that connect here; `default` if absent. */
  readonly pool?: string;
  /** round-robin: the names under which peers connect, where the address is not enough. */
  readonly identities?: readonly string[];
  /** round-robin: the services of commands; a command is a name, or `0x` and its bytes. */
  readonly services?: Readonly<Record<string, string>>;
  /** round-robin: after this time a request is answered with a failure, and its slot is free. */
  readonly requestTimeoutMs?: number;
  /** ZeroMQ listeners: the broker's secret key, and the peers that may connect. Without it anyone may. */
  readonly curve?: CurveKeys;
}

/** Keys as ZeroMQ writes them: 40 characters of Z85. */
export interface CurveKeys {
  readonly publicKey: string;
  readonly secretKey: string;
  /** Public keys of the peers that may connect. */
  readonly known: readonly string[];
}

export interface ListenerContext {
  readonly core: Core;
  readonly guard: ConnectionGuard;
  readonly log: Log;
  /** Peers that misbehave; each is logged once, however often it does. */
  readonly peerErrors: PeerErrors;
  /** Records the messages of a connection while somebody inspects it. */
  readonly connections: TracedConnections;
  readonly settings: ListenerSettings;
}

export interface Listener {
  /** Where it is open, as a peer would write it. */
  readonly urls: readonly string[];
  /** Accepts no new peers and says goodbye to the connected ones, as their protocol has it. Resolves when all are closed. */
  close(): Promise<void>;
}

export type ListenerFactory = (context: ListenerContext, address: ListenerAddress) => Promise<Listener>;
