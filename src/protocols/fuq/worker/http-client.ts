/** Requests to a foreman over HTTP: /hello, which gives a cookie, and all requests that need one. */
import { Agent as PlainAgent, request as plainRequest } from "node:http";
import { Agent as SecureAgent, request as secureRequest } from "node:https";
import { errnoOf, LaboroError } from "../../../base/errors.js";
import { certificateError } from "../../laboro/dial-tls.js";
import { type ForemanUrl, tlsOptions } from "./foreman-url.js";

export interface HttpResponse {
  readonly status: number;
  readonly text: string;
}

/** What this worker says of itself. */
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
    // The foreman takes a worker whose connections are gone for gone.
    const keep = { keepAlive: true, keepAliveMsecs: KEEP_ALIVE_MS, maxFreeSockets: 2 };
    this.#agent = foreman.url.protocol === "https:" ? new SecureAgent(keep) : new PlainAgent(keep);
  }

  get registration(): Registration | undefined {
    return this.#registration;
  }

  /** The name and cookie that the foreman gave; asked for once, and again when it no longer knows them. */
  async hello(signal: AbortSignal): Promise<Registration> {
    if (this.#registration !== undefined) return this.#registration;
    // Slots that ask at the same time are one worker.
    this.#registering ??= this.#sayHello(signal).finally(() => {
      this.#registering = undefined;
    });
    this.#registration = await this.#registering;
    return this.#registration;
  }

  async #sayHello(signal: AbortSignal): Promise<Registration> {
    const { node, pid, tags, nproc } = this.#info;
    const optional = tags.length === 0 ? {} : { tags };
    const answer = await this.post(
      "hello",
      { auth: this.#foreman.password, node, pid, session: "", ...optional, nproc },
      signal,
    );
    if (answer.status === 403) throw new LaboroError("LABORO_BAD_TOKEN", "the foreman does not know this password");
    const { Name: name, Cookie: cookie } = answer.status === 200 ? fieldsOf(answer.text) : {};
    if (typeof name === "string" && typeof cookie === "string") return { name, cookie };
    throw new LaboroError(
      "LABORO_BROKER_UNREACHABLE",
      `${this.#foreman.url.host} answered ${answer.status} to /hello: ${answer.text.slice(0, 200).trim()}`,
    );
  }

  /** The foreman does not know this cookie: its memory is gone. */
  forget(): void {
    this.#registration = undefined;
  }

  get cookie(): string {
    return this.#registration === undefined ? "" : `${COOKIE}=${this.#registration.cookie}`;
  }

  /** Asks to be stopped, as a client of the foreman may: so that it assigns nothing more, and loses nothing by it. */
  async requestStop(signal: AbortSignal): Promise<boolean> {
    if (this.#registration === undefined) return false;
    const msg = { uniq_names: [this.#registration.name] };
    const auth = { password: this.#foreman.password, client: "laboro worker" };
    return (await this.post("client/nodes/shutdown", { auth, msg }, signal)).status === 200;
  }

  /** Rejects with LABORO_BROKER_UNREACHABLE or LABORO_BAD_CERTIFICATE where no answer comes. */
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
      // A request may wait for hours, and its connection may die meanwhile without notice.
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

function fieldsOf(text: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}
