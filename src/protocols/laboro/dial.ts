/**
 * Keeps one link to a broker open, for a worker or client.
 *
 *   connecting  one attempt at one URL, for at most CONNECT_TIMEOUT. The URLs are tried in turn
 *   open        onOpen was called with a connection
 *   waiting     every URL has failed, or the open connection ended: the next round starts after a random delay that
 *               grows with each failed round, so that a thousand workers do not come back in the same moment
 *   stopped     by stop(), or because the broker refused: nothing is called or tried any more
 *
 * A connection counts as a success after the first message of the broker: one that is closed right after opening does
 * not reset the delay.
 */
import type { Socket } from "node:net";
import type { ConnectionOptions as TlsOptions } from "node:tls";
import { badInput, errnoOf, LaboroError } from "../../base/errors.js";
import { type BrokerAddress, type InProcessBroker, isInProcess, normalizeFingerprint } from "./broker-address.js";
import { ClientWebSocket, certificateError, isRefusal, openWebSocket } from "./client-web-socket.js";
import { type CloseReason, Connection, type LinkLog } from "./connection.js";
import { MemorySocket } from "./memory-transport.js";
import type { FromClient, FromWorker, ToClient, ToWorker } from "./messages.js";

const CONNECT_TIMEOUT = 5_000;
/** An opened link without a message of the broker is given up after this time: no heartbeat watches it yet. */
const FIRST_MESSAGE_TIMEOUT = 15_000;
const FIRST_DELAY = 100;
const MAX_DELAY = 5_000;
const PATH = "node/persistent";

interface DialerMessages {
  readonly worker: { readonly receives: ToWorker; readonly sends: FromWorker };
  readonly client: { readonly receives: ToClient; readonly sends: FromClient };
}

type DialerRole = keyof DialerMessages;
export type LinkOf<From extends DialerRole> = Connection<
  DialerMessages[From]["receives"],
  DialerMessages[From]["sends"]
>;

export interface DialOptions<From extends DialerRole> {
  readonly from: From;
  /** With the scheme `http:`, `https:`, `ws:` or `wss:`. A fingerprint after `#` is required of that broker's CA. */
  readonly urls: readonly BrokerAddress[];
  readonly token?: string;
  /** SHA-256 of the CA's certificate, required of every `https:` URL without its own. */
  readonly caFingerprint?: string;
  /** A directory with a Unix socket for each broker behind a tunnel. Then no broker is reached otherwise. */
  readonly tunnels?: string;
  readonly onOpen: (connection: LinkOf<From>) => void;
  readonly onMessages: (batch: readonly DialerMessages[From]["receives"][], connection: LinkOf<From>) => void;
  /** An open connection ended; the next is being tried. */
  readonly onDisconnected: (reason: CloseReason) => void;
  /** Refused: LABORO_BAD_TOKEN, LABORO_FORBIDDEN, LABORO_VERSION, by HTTP or a close frame. Not tried again. */
  readonly onRefused: (error: LaboroError) => void;
  /** Every URL has failed, for the n-th time in a row. */
  readonly onUnreachable?: (error: LaboroError, rounds: number) => void;
  /** Whether a refusal at this URL counts as no answer: the others are tried. */
  readonly ignoreRefusal?: (url: BrokerAddress) => boolean;
  readonly log?: LinkLog;
  readonly connectTimeoutMs?: number;
  readonly firstMessageTimeoutMs?: number;
  readonly random?: () => number;
  readonly setTimer?: SetTimer;
}

/** Calls `act` after `ms` unless the function that it returns is called first. */
type SetTimer = (ms: number, act: () => void) => () => void;

export interface Dial {
  /** The brokers to try from now on, and those to try if none of them answers. The open connection stays. */
  readonly setUrls: (urls: readonly BrokerAddress[], fallback?: readonly BrokerAddress[]) => void;
  readonly stop: (code?: number, text?: string) => void;
}

export const dial = <From extends DialerRole>(options: DialOptions<From>): Dial => new Dialer(options);

/** Full jitter: anything from 0 to a bound that doubles with each failed round. */
export const reconnectDelay = (rounds: number, random: number): number =>
  random * Math.min(MAX_DELAY, FIRST_DELAY * 2 ** Math.min(rounds, 10));

class Dialer<From extends DialerRole> implements Dial {
  readonly #options: DialOptions<From>;
  readonly #setTimer: SetTimer;
  #urls: readonly BrokerAddress[];
  #position = 0;
  #triedThisRound = 0;
  #failedRounds = 0;
  #stopped = false;
  /** Ends the current wait, attempt or connection. */
  #cancelCurrent: (code?: number, text?: string) => void = () => {};

  constructor(options: DialOptions<From>) {
    if (options.urls.length === 0) throw badInput("no URL of a broker was given");
    this.#options = options;
    this.#setTimer = options.setTimer ?? setSystemTimer;
    this.#urls = options.urls;
    this.#attempt();
  }

  setUrls(urls: readonly BrokerAddress[], fallback: readonly BrokerAddress[] = []): void {
    const all = [...new Set([...urls, ...fallback])];
    if (all.length === 0) return;
    const current = this.#urls[this.#position];
    this.#urls = all;
    const wanted = urls.length === 0 ? all : urls;
    this.#position = current === undefined ? 0 : Math.max(0, wanted.indexOf(current));
  }

  stop(code?: number, text?: string): void {
    if (this.#stopped) return;
    this.#stopped = true;
    this.#cancelCurrent(code, text);
  }

  #attempt(): void {
    const address = this.#urls[this.#position] ?? "";
    if (isInProcess(address)) this.#attemptHere(address);
    else this.#attemptAt(address);
  }

  /** On the next turn: the caller of dial() does not have its Dial yet. */
  #attemptHere(broker: InProcessBroker): void {
    const attempt = setImmediate(() => {
      let socket: object;
      try {
        socket = broker.openLink(this.#options.token ?? "");
        if (!(socket instanceof MemorySocket)) throw badInput("broker: expected what startBroker returned");
      } catch (cause) {
        const error = unreachable("the broker of this process", cause);
        if (isRefusal(error)) this.#refused(error);
        else this.#failed(error);
        return;
      }
      this.#opened(socket as MemorySocket);
    });
    this.#cancelCurrent = () => clearImmediate(attempt);
  }

  #attemptAt(address: string): void {
    const { token, caFingerprint = "", connectTimeoutMs = CONNECT_TIMEOUT, tunnels } = this.#options;
    let aborter: AbortController | undefined;
    let broker = "the broker";
    let socket: Socket | undefined;
    let pending = true;
    const settle = (then: () => void): void => {
      if (!pending) return;
      pending = false;
      cancelDeadline();
      then();
    };
    const cancel = (): void => {
      aborter?.abort();
      socket?.destroy();
    };
    const giveUp = (error: LaboroError): void =>
      settle(() => {
        cancel();
        if (isRefusal(error)) this.#refused(error);
        else this.#failed(error);
      });
    const fail = (cause: unknown): void => giveUp(certificateError(cause, broker) ?? unreachable(broker, cause));
    const cancelDeadline = this.#setTimer(connectTimeoutMs, () => fail(`no answer within ${connectTimeoutMs} ms`));
    this.#cancelCurrent = () => settle(cancel);

    const connect = (url: URL, tls?: TlsOptions): Promise<void> =>
      openWebSocket(
        url,
        token,
        tls,
        {
          onSocket: (opening) => {
            socket = opening;
            if (!pending) opening.destroy();
          },
          onOpen: (opened, transport) => settle(() => this.#opened(opened, transport)),
          onFailed: fail,
        },
        tunnels,
      );
    const connectPinned = async (url: URL, fingerprint: string): Promise<void> => {
      // Loaded here: a link within one machine needs none of it.
      const { fetchCa, pinnedTlsOptions } = await import("./dial-tls.js");
      if (pinnedTlsOptions(fingerprint) === undefined) {
        aborter = new AbortController();
        await fetchCa(url, fingerprint, aborter.signal, tunnels);
      }
      if (pending) await connect(url, pinnedTlsOptions(fingerprint));
    };
    try {
      const { url, fingerprint } = linkUrl(address, caFingerprint);
      broker = url.origin;
      (fingerprint === undefined ? connect(url) : connectPinned(url, fingerprint)).catch(fail);
    } catch (cause) {
      // On the next turn: the caller of dial() does not have its Dial yet.
      setImmediate(() => fail(cause));
    }
  }

  #opened(socket: ClientWebSocket | MemorySocket, transport?: { readonly bytesRead: number }): void {
    const {
      from,
      log,
      onOpen,
      onMessages,
      onDisconnected,
      firstMessageTimeoutMs = FIRST_MESSAGE_TIMEOUT,
    } = this.#options;
    const options = {
      from: from === "worker" ? "brokerToWorker" : "brokerToClient",
      ...(transport === undefined ? {} : { transport }),
    } as const;
    let messageReceived = false;
    // The waiting messages are this program's own, and the broker may take a while to read them.
    const unlimited = { ...options, bufferLimit: Number.POSITIVE_INFINITY };
    const connection: LinkOf<From> = new Connection(socket, log === undefined ? unlimited : { ...unlimited, log }, {
      onMessages: (batch: readonly DialerMessages[From]["receives"][]) => {
        messageReceived = true;
        this.#failedRounds = 0;
        cancelDeadline();
        onMessages(batch, connection);
      },
      onClose: (reason) => {
        cancelDeadline();
        if (this.#stopped) return;
        onDisconnected(reason);
        if (this.#stopped) return;
        if (reason.by === "peer" && reason.error !== undefined && isRefusal(reason.error)) this.#refused(reason.error);
        else {
          if (!messageReceived) this.#turnToNextUrl();
          this.#waitForNextRound();
        }
      },
    });
    const cancelDeadline = this.#setTimer(firstMessageTimeoutMs, () =>
      connection.close(1008, `the broker said nothing within ${firstMessageTimeoutMs} ms`),
    );
    this.#cancelCurrent = (code, text) => {
      connection.close(code, text);
      // A client closes when everything is answered. The last messages of a worker must still arrive.
      if (from === "client" && socket instanceof ClientWebSocket) socket.unref();
    };
    onOpen(connection);
  }

  #turnToNextUrl(): void {
    this.#position = (this.#position + 1) % this.#urls.length;
  }

  #failed(error: LaboroError): void {
    this.#turnToNextUrl();
    this.#triedThisRound++;
    if (this.#triedThisRound < this.#urls.length) {
      this.#attempt();
      return;
    }
    this.#options.onUnreachable?.(error, this.#failedRounds + 1);
    if (!this.#stopped) this.#waitForNextRound();
  }

  #refused(error: LaboroError): void {
    if (this.#options.ignoreRefusal?.(this.#urls[this.#position] ?? "") === true) {
      this.#failed(error);
      return;
    }
    this.#stopped = true;
    this.#options.onRefused(error);
  }

  #waitForNextRound(): void {
    this.#triedThisRound = 0;
    const delay = reconnectDelay(this.#failedRounds++, (this.#options.random ?? Math.random)());
    this.#cancelCurrent = this.#setTimer(delay, () => this.#attempt());
  }
}

/** The URL of the link at a broker, and the fingerprint of its CA. Neither token nor fingerprint are in the URL. */
function linkUrl(base: string, caFingerprint: string): { readonly url: URL; readonly fingerprint?: string } {
  const [address = "", ownFingerprint = ""] = base.split("#", 2);
  const url = new URL(PATH, address.replace(/\/*$/, "/"));
  url.username = "";
  url.password = "";
  const wanted = ownFingerprint === "" ? caFingerprint : ownFingerprint;
  if (wanted === "" || !/^(https|wss):$/.test(url.protocol)) return { url };
  const fingerprint = normalizeFingerprint(wanted);
  if (fingerprint !== undefined) return { url, fingerprint };
  throw badInput(`${quoted(wanted)} is no SHA-256 fingerprint`);
}

const quoted = (text: string): string => JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text);

/** Errors of a connection attempt if there is no broker. */
const ABSENCE: Readonly<Record<string, string>> = {
  ECONNREFUSED: "nothing listens there",
  ENOTFOUND: "this host name is not known",
  EAI_AGAIN: "this host name cannot be looked up now",
  EHOSTUNREACH: "there is no route to this host",
  ENETUNREACH: "there is no route to its network",
  ETIMEDOUT: "no answer came",
};

/** Whether the attempt failed because nothing listens there. */
export const isAbsent = ({ cause }: LaboroError): boolean => (errnoOf(cause) ?? "") in ABSENCE;

function unreachable(broker: string, cause: unknown): LaboroError {
  if (cause instanceof LaboroError) return cause;
  const errno = errnoOf(cause) ?? "";
  const reason =
    ABSENCE[errno] ?? (cause instanceof Error ? cause.message || errno || "cannot connect" : String(cause));
  return new LaboroError("LABORO_BROKER_UNREACHABLE", `no broker answers at ${broker}: ${reason}`, { cause });
}

const setSystemTimer: SetTimer = (ms, act) => {
  const timer = setTimeout(act, ms);
  return () => clearTimeout(timer);
};
