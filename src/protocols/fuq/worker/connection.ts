/** A way to a foreman, up or not: what carries messages, and how it is made. */

/** A connection that is open. */
export interface ForemanConnection {
  send(bytes: Buffer): void;
  /** Says goodbye, where the wire has a way to. Nothing follows. */
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
