/**
 * A DEALER socket in plain TypeScript: it connects, and reconnects by itself.
 *
 *   connecting   opens a socket, then the handshake
 *   open         messages flow
 *   waiting      the connection was lost or refused; a timer starts the next try
 *   closed       by `close`
 */
import { connect } from "node:net";
import { badInput } from "../../base/errors.js";
import {
  type ConnectOptions,
  DEFAULT_HEARTBEAT_MS,
  DEFAULT_LIMITS,
  type Dealer,
  type DealerListener,
} from "./types.js";
import { ZmtpConnection } from "./zmtp-connection.js";

const RECONNECT_MS = 100;
const RECONNECT_MAX_MS = 5_000;
const CLOSE_TIMEOUT_MS = 200;

export class ZmtpDealer implements Dealer {
  readonly #options: ConnectOptions;
  readonly #listener: DealerListener;
  readonly #address: { readonly host: string; readonly port: number };
  readonly #heartbeat: NodeJS.Timeout;
  #state: "connecting" | "open" | "waiting" | "closed" = "connecting";
  #connection: ZmtpConnection | undefined;
  #tries = 0;
  #reconnectTimer: NodeJS.Timeout | undefined;
  /** Each loss is reported once. */
  #lossReported = false;
  #ended: (() => void) | undefined;

  constructor(options: ConnectOptions, listener: DealerListener) {
    this.#options = options;
    this.#listener = listener;
    this.#address = parseTcpUrl(options.url);
    const { heartbeatMs = DEFAULT_HEARTBEAT_MS } = options;
    this.#heartbeat = setInterval(() => this.#connection?.beat(), heartbeatMs);
    this.#connect();
  }

  send(frames: readonly Uint8Array[]): boolean {
    return this.#state === "open" && (this.#connection?.send(frames) ?? false);
  }

  close(): Promise<void> {
    clearInterval(this.#heartbeat);
    clearTimeout(this.#reconnectTimer);
    this.#state = "closed";
    const connection = this.#connection;
    if (connection === undefined) return Promise.resolve();
    return new Promise((resolve) => {
      const closeTimer = setTimeout(() => connection.destroy("it was closed"), CLOSE_TIMEOUT_MS);
      this.#ended = () => {
        clearTimeout(closeTimer);
        resolve();
      };
      connection.end();
    });
  }

  #connect(): void {
    this.#state = "connecting";
    const { identity = "" } = this.#options;
    const socket = connect(this.#address);
    let fault: string | undefined;
    this.#connection = new ZmtpConnection(
      socket,
      {
        socketType: "DEALER",
        accepts: ["ROUTER", "DEALER", "REP"],
        bound: false,
        identity: () => Buffer.from(identity, "latin1"),
        limits: DEFAULT_LIMITS,
      },
      {
        opened: () => {
          if (this.#state !== "connecting") return;
          this.#state = "open";
          this.#tries = 0;
          this.#lossReported = false;
          this.#listener.opened?.();
        },
        message: (frames) => {
          if (this.#state === "open") this.#listener.message(frames);
        },
        protocolError: ({ message }) => {
          fault = message;
        },
        closed: (why) => this.#lost(fault ?? why),
      },
    );
  }

  #lost(why: string): void {
    this.#connection = undefined;
    if (this.#state === "closed") {
      this.#ended?.();
      return;
    }
    this.#state = "waiting";
    const { reconnectMs = RECONNECT_MS, reconnectMaxMs = RECONNECT_MAX_MS } = this.#options;
    const wait = Math.min(reconnectMs * 2 ** this.#tries, reconnectMaxMs);
    this.#tries = Math.min(this.#tries + 1, 30);
    // After a restart of the server not all reconnect at the same moment.
    this.#reconnectTimer = setTimeout(() => this.#connect(), wait * (0.75 + Math.random() / 4));
    if (this.#lossReported) return;
    this.#lossReported = true;
    this.#listener.closed?.(why);
  }
}

export function parseTcpUrl(url: string): { readonly host: string; readonly port: number } {
  const [, v6, name, port] = /^tcp:\/\/(?:\[([^\]]+)\]|([^:/[\]]+)):(\d{1,5})$/.exec(url) ?? [];
  const host = v6 ?? name;
  if (host === undefined || Number(port) > 65_535) throw badInput(`expected tcp://HOST:PORT, got ${url}`);
  return { host, port: Number(port) };
}
