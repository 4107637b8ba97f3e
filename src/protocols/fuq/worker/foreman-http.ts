/**
 * Requests to a foreman over HTTP: /hello, which gives a cookie, and the requests that need one.
 *
 * The address of a foreman and its credentials: `@FILE` with `https://PASSWORD@HOST:PORT#FINGERPRINT`, or a URL without
 * a password. Then the password, or `@FILE` with it, is in LABORO_FUQ_TOKEN, because every user of the machine can read
 * arguments. A CA that the system does not trust is given by its fingerprint or as a file.
 *
 * Connections to a foreman: raw streams, and the WebSocket of the original program.
 */
import { readFileSync } from "node:fs";
import { Agent as PlainAgent, request as plainRequest } from "node:http";
import { Agent as SecureAgent, request as secureRequest } from "node:https";
import { connect, type Socket } from "node:net";
import { checkServerIdentity, type PeerCertificate } from "node:tls";
import { WebSocket } from "ws";
import { isLoopback } from "../../../base/addresses.js";
import { badInput, errnoOf, LaboroError, whyUnreadable } from "../../../base/errors.js";
import { normalizeFingerprint } from "../../laboro/broker-address.js";
import { certificateError } from "../../laboro/client-web-socket.js";
import { fetchCa, pinnedTlsOptions } from "../../laboro/dial-tls.js";
import { Framer, type Layout, MESSAGE_LIMIT } from "../codec.js";

export interface ForemanUrl {
  /** Without password and fingerprint. */
  readonly url: URL;
  readonly password: string;
  /** SHA-256 of the CA's certificate in lower-case hexadecimal digits. */
  readonly fingerprint?: string | undefined;
  readonly ca?: string | undefined;
  /** The name in the foreman's certificate, if it differs from the host. */
  readonly certificateName?: string | undefined;
}

interface ForemanUrlOptions {
  readonly fuq: string;
  /** A file with the CA's certificate. */
  readonly ca?: string | undefined;
  readonly certificateName?: string | undefined;
  readonly env?: NodeJS.ProcessEnv;
}

const DEFAULT_PORT = "5429";

export interface Address {
  readonly host: string;
  readonly port: number;
}

/** `HOST:PORT`, an IPv6 address in brackets. */
export function parseAddress(text: string, option: string): Address {
  const [, v6, host = v6, port] = /^(?:\[([^\]]+)\]|([^:[\]]+)):(\d{1,5})$/.exec(text) ?? [];
  if (host !== undefined && port !== undefined && Number(port) <= 65_535) return { host, port: Number(port) };
  throw badInput(`${option}: expected HOST:PORT, got ${text}`);
}

/** Throws LABORO_BAD_INPUT. The message never contains the password. */
export function resolveForemanUrl({ fuq, ca, certificateName, env = process.env }: ForemanUrlOptions): ForemanUrl {
  const text = textOrFile(fuq, "--fuq");
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol) || url.hostname === "")
    throw badInput("--fuq: expected https://HOST:PORT, and the password in LABORO_FUQ_TOKEN; or @FILE that holds both");
  if (text === fuq && url.username + url.password !== "")
    throw badInput(
      "--fuq: every user of this machine can read a password in an argument: use LABORO_FUQ_TOKEN, or @FILE",
    );
  if (url.protocol === "http:" && !isLoopback(url.hostname))
    throw badInput(`--fuq: http:// would send the password to ${url.host} unencrypted: use https://`);
  const given = decoded(url.username) || decoded(url.password) || env.LABORO_FUQ_TOKEN || "";
  const password = textOrFile(given, "LABORO_FUQ_TOKEN");
  if (password === "") throw badInput("--fuq: the foreman's password is missing: set LABORO_FUQ_TOKEN");
  const fingerprint = url.hash === "" ? undefined : normalizeFingerprint(decoded(url.hash.slice(1)));
  if (url.hash !== "" && fingerprint === undefined) throw badInput("--fuq: expected a SHA-256 fingerprint after #");
  const bare = new URL(`${url.protocol}//${url.host}/`);
  if (bare.port === "" && !/:\d+(\/|#|$)/.test(text)) bare.port = DEFAULT_PORT;
  return { url: bare, password, fingerprint, ca: ca === undefined ? ca : contentOf(ca, "--fuq-ca"), certificateName };
}

/** Options of a TLS connection to the foreman. Fetches its CA if only the fingerprint is known. */
async function tlsOptions(foreman: ForemanUrl, signal: AbortSignal): Promise<object> {
  const { url, fingerprint, ca, certificateName } = foreman;
  if (url.protocol !== "https:") return {};
  if (fingerprint !== undefined) {
    if (pinnedTlsOptions(fingerprint) === undefined) await fetchCa(url, fingerprint, signal);
    return pinnedTlsOptions(fingerprint) ?? {};
  }
  const trusted = ca === undefined ? {} : { ca };
  if (certificateName === undefined) return trusted;
  const checkName = (_host: string, shown: PeerCertificate) => checkServerIdentity(certificateName, shown);
  return { ...trusted, servername: certificateName, checkServerIdentity: checkName };
}

const textOrFile = (text: string, what: string): string =>
  text.startsWith("@") ? contentOf(text.slice(1), what).trim() : text;

function contentOf(file: string, what: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (cause) {
    throw badInput(`${what}: the file ${file} cannot be read: ${whyUnreadable(cause)}`, cause);
  }
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export interface HttpResponse {
  readonly status: number;
  readonly text: string;
}

interface LocalNodeInfo {
  readonly node: string;
  readonly pid: number;
  readonly tags: readonly string[];
  readonly nproc: number;
}

interface Registration {
  readonly name: string;
  readonly cookie: string;
}

const COOKIE = "fuq_foreman_auth";
const KEEP_ALIVE_MS = 30_000;
const MAX_ANSWER = 64 * 1024 * 1024;

export class ForemanHttp {
  readonly #foreman: ForemanUrl;
  readonly #info: LocalNodeInfo;
  readonly #agent: PlainAgent | SecureAgent;
  #registration: Registration | undefined;
  #registering: Promise<Registration> | undefined;

  constructor(foreman: ForemanUrl, info: LocalNodeInfo) {
    this.#foreman = foreman;
    this.#info = info;
    // The foreman considers a worker without connections disconnected.
    const keep = { keepAlive: true, keepAliveMsecs: KEEP_ALIVE_MS, maxFreeSockets: 2 };
    this.#agent = foreman.url.protocol === "https:" ? new SecureAgent(keep) : new PlainAgent(keep);
  }

  get registration(): Registration | undefined {
    return this.#registration;
  }

  /** The name and cookie from the foreman. Requested once, and again after `forget`. */
  async hello(signal: AbortSignal): Promise<Registration> {
    if (this.#registration !== undefined) return this.#registration;
    // Slots that ask at the same time belong to one worker.
    this.#registering ??= this.#sayHello(signal).finally(() => {
      this.#registering = undefined;
    });
    this.#registration = await this.#registering;
    return this.#registration;
  }

  async #sayHello(signal: AbortSignal): Promise<Registration> {
    const { node, pid, tags, nproc } = this.#info;
    const { password: auth, url } = this.#foreman;
    const hello = { auth, node, pid, session: "", ...(tags.length === 0 ? {} : { tags }), nproc };
    const answer = await this.post("hello", hello, signal);
    if (answer.status === 403)
      throw new LaboroError(
        "LABORO_BAD_TOKEN",
        "the foreman does not know this password: check LABORO_FUQ_TOKEN or @FILE",
      );
    const registration = answer.status === 200 ? parseJson(answer.text) : undefined;
    const { Name: name, Cookie: cookie } = (registration ?? {}) as Readonly<Record<string, unknown>>;
    if (typeof name === "string" && typeof cookie === "string") return { name, cookie };
    const why = `${url.host} answered ${answer.status} to /hello: ${answer.text.slice(0, 200).trim()}`;
    throw new LaboroError("LABORO_BROKER_UNREACHABLE", why);
  }

  /** The foreman does not know the cookie any more. */
  forget(): void {
    this.#registration = undefined;
  }

  get cookie(): string {
    return this.#registration === undefined ? "" : `${COOKIE}=${this.#registration.cookie}`;
  }

  /** Asks the foreman, as a client would, to stop this worker. */
  async requestStop(signal: AbortSignal): Promise<boolean> {
    if (this.#registration === undefined) return false;
    const msg = { uniq_names: [this.#registration.name] };
    const auth = { password: this.#foreman.password, client: "laboro worker" };
    return (await this.post("client/nodes/shutdown", { auth, msg }, signal)).status === 200;
  }

  /** Rejects with LABORO_BROKER_UNREACHABLE or LABORO_BAD_CERTIFICATE. */
  async post(path: string, body: object, signal: AbortSignal): Promise<HttpResponse> {
    const { url } = this.#foreman;
    try {
      const tls = await tlsOptions(this.#foreman, signal);
      return await this.#post(new URL(path, url), JSON.stringify(body), tls, signal);
    } catch (cause) {
      if (cause instanceof LaboroError) throw cause;
      const reason = cause instanceof Error ? cause.message || errnoOf(cause) : String(cause);
      throw (
        certificateError(cause, url.host) ??
        new LaboroError("LABORO_BROKER_UNREACHABLE", `${url.host} cannot be reached: ${reason}`, { cause })
      );
    }
  }

  #post(url: URL, body: string, tls: object, signal: AbortSignal): Promise<HttpResponse> {
    const headers = {
      "content-type": "application/json",
      "content-length": Buffer.byteLength(body),
      ...(this.cookie === "" ? {} : { cookie: this.cookie }),
    };
    const options = { method: "POST", headers, agent: this.#agent, signal, ...tls };
    return new Promise((resolve, reject) => {
      const request = url.protocol === "https:" ? secureRequest(url, options) : plainRequest(url, options);
      request.on("error", reject);
      // A request may wait for hours. Without keep-alive the loss of its connection would not be noticed.
      request.on("socket", (socket) => socket.setKeepAlive(true, KEEP_ALIVE_MS));
      request.on("response", (response) => {
        const parts: Buffer[] = [];
        let length = 0;
        response.on("data", (part: Buffer) => {
          length += part.length;
          if (length > MAX_ANSWER) response.destroy(new Error("the answer is too long"));
          else parts.push(part);
        });
        response.on("error", reject);
        response.on("end", () => resolve({ status: response.statusCode ?? 0, text: Buffer.concat(parts).toString() }));
      });
      request.end(body);
    });
  }

  close(): void {
    this.#agent.destroy();
  }
}

/** Undefined if the text is not JSON. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

export interface ForemanConnection {
  send(bytes: Buffer): void;
  /** Closes gracefully if possible. No event follows. */
  close(): void;
}

/** Called from the event loop only. Nothing follows `closed`. */
interface ForemanConnectionEvents {
  message(bytes: Buffer): void;
  closed(why: string): void;
}

/** Makes one try. Rejects with LABORO_BROKER_UNREACHABLE, LABORO_BAD_TOKEN or LABORO_BAD_CERTIFICATE. */
export type Connect = (events: ForemanConnectionEvents, signal: AbortSignal) => Promise<ForemanConnection>;

/** How long to wait for the foreman to close its side. */
const CLOSE_TIMEOUT_MS = 1_000;
/** As often as the original. Two in a row without a PONG end the connection. */
const PING_MS = 60_000;
const PINGS_MISSED = 2;

const unreachable = (place: string, why: string, cause?: unknown): LaboroError =>
  new LaboroError("LABORO_BROKER_UNREACHABLE", `${place} cannot be reached: ${why}`, { cause });

export const tcpConnector =
  ({ host, port }: Address, layout: Layout): Connect =>
  (events, signal) =>
    new Promise((resolve, reject) => {
      const socket: Socket = connect({ host, port, signal });
      const failed = (cause: Error): void => reject(unreachable(`${host}:${port}`, cause.message, cause));
      socket.once("error", failed);
      socket.once("connect", () => {
        socket.off("error", failed);
        socket.setNoDelay(true);
        socket.setKeepAlive(true, KEEP_ALIVE_MS);
        let why = "it closed the connection";
        const framer = new Framer(layout, MESSAGE_LIMIT);
        socket.on("error", (cause) => {
          why = cause.message;
        });
        socket.on("data", (chunk) => {
          const { messages, failure } = framer.push(chunk);
          for (const message of messages) if (!socket.destroyed) events.message(message);
          if (failure === undefined) return;
          why = failure.message;
          socket.destroy();
        });
        socket.on("close", () => events.closed(why));
        resolve({
          send: (bytes) => void socket.write(bytes),
          close: () => {
            socket.end();
            setTimeout(() => socket.destroy(), CLOSE_TIMEOUT_MS).unref();
          },
        });
      });
    });

/** Sends /hello first if there is no cookie yet. */
export const webSocketConnector =
  (foreman: ForemanUrl, http: ForemanHttp): Connect =>
  async (events, signal) => {
    const { name } = await http.hello(signal);
    const url = new URL("node/persistent", foreman.url);
    url.protocol = foreman.url.protocol === "https:" ? "wss:" : "ws:";
    const tls = await tlsOptions(foreman, signal);
    const headers = { cookie: http.cookie };
    const socket = new WebSocket(url, { ...tls, headers, perMessageDeflate: false, maxPayload: MESSAGE_LIMIT });
    const stop = (): void => socket.terminate();
    signal.addEventListener("abort", stop, { once: true });
    try {
      await waitForOpen(socket, url.host, http);
    } finally {
      signal.removeEventListener("abort", stop);
    }
    return connectionOf(socket, name, events);
  };

function waitForOpen(socket: WebSocket, host: string, http: ForemanHttp): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.once("open", resolve);
    socket.on("error", (cause) => {
      const why = cause.message || (errnoOf(cause) ?? "no connection");
      reject(certificateError(cause, host) ?? unreachable(host, why, cause));
    });
    socket.once("unexpected-response", (request, { statusCode = 0 }) => {
      // The foreman does not know the cookie any more. The next try sends /hello again.
      if (statusCode === 401 || statusCode === 403) http.forget();
      reject(unreachable(host, `it answered ${statusCode} to /node/persistent`));
      request.destroy();
    });
  });
}

function connectionOf(socket: WebSocket, name: string, events: ForemanConnectionEvents): ForemanConnection {
  let unanswered = 0;
  let pings = 0;
  const pingTimer = setInterval(() => {
    if (unanswered++ >= PINGS_MISSED) socket.close(1001, "no answer to pings");
    else socket.ping(`PING:w2f_${name}:${++pings}`);
  }, PING_MS);
  const received = (): void => {
    unanswered = 0;
  };
  let why = "";
  socket.on("error", (cause) => {
    why = cause.message;
  });
  socket.on("pong", received);
  socket.on("ping", received);
  socket.on("message", (data, isBinary) => {
    received();
    if (isBinary) events.message(data as Buffer);
    else socket.close(1003, "binary messages only");
  });
  socket.on("close", (code, reason) => {
    clearInterval(pingTimer);
    events.closed(why || `${code} ${reason.toString()}`.trim());
  });
  return {
    send: (bytes) => socket.send(bytes),
    close: () => {
      socket.close(1000, "closing");
      setTimeout(() => socket.terminate(), CLOSE_TIMEOUT_MS).unref();
    },
  };
}
