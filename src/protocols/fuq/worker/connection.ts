/** Connections to a foreman: what carries messages, and how one is opened. */

/** A connection that is open. */
export interface ForemanConnection {
  send(bytes: Buffer): void;
  /** Closes in order, where the transport can. Nothing follows. */
  close(): void;
}

/** Called from the event loop only, and not after `closed`. */
export interface ForemanConnectionEvents {
  message(bytes: Buffer): void;
  /** Nothing follows. */
  closed(why: string): void;
}

/** Makes one try. Rejects where there is no connection: LABORO_BAD_TOKEN and LABORO_BAD_CERTIFICATE will not change by themselves. */
export type Connect = (events: ForemanConnectionEvents, signal: AbortSignal) => Promise<ForemanConnection>;
