/** What every door of an old protocol is, and what it is given. */

import type { PeerErrors } from "../../base/peer-errors.js";
import type { TracedConnections } from "../../base/traced-connections.js";
import type { Log } from "../../base/log.js";
import type { Core } from "../core.js";

/** Those that open only when named. */
export const LISTENER_NAMES = ["fuq", "fuq1", "runexp", "round-robin", "scale0"] as const;
export type ListenerName = (typeof LISTENER_NAMES)[number];

/** Where a door opens: one port, or as many as its protocol has. 0 takes any free one. */
export interface ListenerAddress {
  readonly host: string;
  readonly ports: readonly number[];
}

/** What an operator may set for a door, beyond its place. */
export interface ListenerSettings {
  /** The pool of the workers that come in here; `default` if absent. */
  readonly pool?: string;
  /** round-robin: the names under which peers connect, where the address is not enough. */
  readonly identities?: readonly string[];
  /** round-robin: commands, by name or as `0x` and their bytes, and the services that they are. */
  readonly services?: Readonly<Record<string, string>>;
  /** round-robin: after so long a request is answered with a failure, and its slot is free. */
  readonly requestTimeoutMs?: number;
  /** ZeroMQ doors: the broker's secret key and who else is let in. Without it anyone is. */
  readonly curve?: CurveKeys;
}

/** Keys as ZeroMQ writes them: 40 characters of Z85. */
export interface CurveKeys {
  readonly publicKey: string;
  readonly secretKey: string;
  /** Public keys of those that may come in. */
  readonly known: readonly string[];
}

export interface ListenerContext {
  readonly core: Core;
  readonly log: Log;
  /** For a peer that misbehaves: it is named once, however often it does. */
  readonly peerErrors: PeerErrors;
  /** What is said on each connection, for who wants to see it. */
  readonly connections: TracedConnections;
  readonly settings: ListenerSettings;
}

export interface Listener {
  /** Where it is open, as a peer would write it. */
  readonly urls: readonly string[];
  /** No new peers, those that are there are told what their protocol has for it; resolves when nothing is left open. */
  close(): Promise<void>;
}

export type ListenerFactory = (context: ListenerContext, place: ListenerAddress) => Promise<Listener>;
