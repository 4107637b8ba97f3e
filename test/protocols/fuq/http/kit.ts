/** A broker's main listener, asked over real sockets as fuq's programs ask it: their JSON, written here by hand. */

import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { type IncomingHttpHeaders, Agent as PlainAgent, request as plainRequest } from "node:http";
import { Agent as SecureAgent, request as secureRequest } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { RunningBroker, ServerOptions } from "../../../../src/broker/options.js";
import { type Client, connect } from "../../../../src/entries/client.js";
import { startWorker } from "../../../../src/entries/worker.js";
import { startBroker } from "../../../../src/server.js";
import { atEnd } from "../../../support/at-end.js";
import { freePort } from "../../../support/free-port.js";

export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
  readonly json: unknown;
}

/** One who asks, with connections of its own that it keeps, as Go's client does. */
export class Asker {
  readonly #base: () => string;
  readonly #ca: () => string | undefined;
  #agent: PlainAgent | SecureAgent;
  cookie: string | undefined;

  constructor(base: () => string, ca: () => string | undefined) {
    this.#base = base;
    this.#ca = ca;
    this.#agent = this.#newAgent();
  }

  #newAgent(): PlainAgent | SecureAgent {
    return this.#base().startsWith("https:")
      ? new SecureAgent({ keepAlive: true })
      : new PlainAgent({ keepAlive: true });
  }

  ask(method: string, path: string, body?: string, signal?: AbortSignal): Promise<Answer> {
    const url = new URL(path, this.#base());
    const ca = this.#ca();
    const options = {
      method,
      agent: this.#agent,
      headers: {
        ...(body === undefined
          ? {}
          : { "content-type": "application/json", "content-length": Buffer.byteLength(body) }),
        ...(this.cookie === undefined ? {} : { cookie: `fuq_foreman_auth=${this.cookie}` }),
      },
      ...(signal === undefined ? {} : { signal }),
    };
    return new Promise((resolve, reject) => {
      const request =
        url.protocol === "https:"
          ? secureRequest(url, ca === undefined ? options : { ...options, ca })
          : plainRequest(url, options);
      request.on("error", reject);
      request.on("response", (response) => {
        const parts: Buffer[] = [];
        response.on("data", (part: Buffer) => parts.push(part));
        response.on("error", reject);
        response.on("end", () => {
          const text = Buffer.concat(parts).toString();
          const { statusCode: status = 0, headers } = response;
          resolve({
            status,
            headers,
            text,
            get json() {
              return JSON.parse(text) as unknown;
            },
          });
        });
      });
      request.end(body);
    });
  }

  post(path: string, body: unknown, signal?: AbortSignal): Promise<Answer> {
    return this.ask("POST", path, typeof body === "string" ? body : JSON.stringify(body), signal);
  }

  /** Says /hello and keeps the cookie. */
  async hello(auth: string, nproc = 1, more: object = {}): Promise<string> {
    const answer = await this.post("/hello", { auth, node: "vm", pid: 27311, session: "", nproc, ...more });
    const { Name, Cookie } = answer.json as { Name: string; Cookie: string };
    this.cookie = Cookie;
    return Name;
  }

  /** As a process that ends: its connections go with it. */
  vanish(): void {
    this.#agent.destroy();
    this.#agent = this.#newAgent();
  }
}

export class Listener {
  readonly dir = mkdtempSync(join(tmpdir(), "laboro-fuq-"));
  readonly #options: Partial<ServerOptions>;
  #broker: RunningBroker | undefined;
  #client: Promise<Client> | undefined;
  #port = 0;

  constructor(options: Partial<ServerOptions>) {
    this.#options = options;
    atEnd(() => rmSync(this.dir, { recursive: true, force: true }));
    atEnd(() => this.#broker?.stop());
  }

  get broker(): RunningBroker {
    if (this.#broker === undefined) throw new Error("the broker was not started");
    return this.#broker;
  }

  get password(): string {
    return this.broker.tokenOf("fuq") ?? "";
  }

  async start(): Promise<void> {
    this.#port ||= await freePort();
    this.#broker = await startBroker({ dir: join(this.dir, "data"), port: this.#port, ...this.#options });
  }

  /** Stopped and started again on the same data and port. */
  async restart(): Promise<void> {
    this.#client = undefined;
    await this.broker.stop();
    await this.start();
  }

  asker(scheme: "http" | "https" = "http"): Asker {
    const ca = scheme === "https" ? () => readFileSync(join(this.dir, "data", "ca.pem"), "utf8") : () => undefined;
    const asker = new Asker(() => `${scheme}://127.0.0.1:${this.#port}`, ca);
    atEnd(() => asker.vanish());
    return asker;
  }

  /** What fuq's client asks, with its password. */
  async client(path: string, msg: object = {}, asker = this.asker()): Promise<Answer> {
    return asker.post(`/client/${path}`, { auth: { password: this.password, client: "fuqcli-alpha" }, msg });
  }

  /** Our own client, the same one while the broker is the same. */
  own(): Promise<Client> {
    this.#client ??= connect({ broker: this.broker.url, token: this.broker.token }).then((client) => {
      atEnd(() => client.close());
      return client;
    });
    return this.#client;
  }

  ownWorker(slots = 2): void {
    const worker = startWorker({ broker: this.broker.url, token: this.broker.token, slots });
    atEnd(() => worker.stop({ graceMs: 0 }));
  }

  job(name: string, num_tasks: number, command: string, more: object = {}): Promise<Answer> {
    const [working_dir, logging_dir] = [this.dir, this.dir];
    return this.client("job/new", {
      job_id: 0,
      name,
      num_tasks,
      working_dir,
      logging_dir,
      command,
      status: "waiting",
      ...more,
    });
  }
}

export async function openListener(options: Partial<ServerOptions> = {}): Promise<Listener> {
  const listener = new Listener(options);
  await listener.start();
  return listener;
}
