/** Requests to a foreman over HTTP: /hello, which gives a cookie, and the requests that need one. */
import { Agent as PlainAgent, request as plainRequest } from "node:http";
import { Agent as SecureAgent, request as secureRequest } from "node:https";
import { errnoOf, LaboroError } from "../../../base/errors.js";
import { certificateError } from "../../laboro/web-socket-handshake.js";
import { type ForemanUrl, tlsOptions } from "./foreman-url.js";

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
