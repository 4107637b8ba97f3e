/**
 * A Scale0 client: any number of requests at a time, each answered or refused once.
 *
 *   connecting   requests wait for a broker
 *   open         requests are sent at once
 *   closed       for good
 *
 * If its broker does not answer, it sends NEEDBROKER to the others that it knows. CHANGEBROKER takes it elsewhere.
 */
import { setTimeout as delay } from "node:timers/promises";
import { asLaboroError, LaboroError } from "../../../base/errors.js";
import { type CurveClient, parseTcpUrl } from "../../zeromq/index.js";
import { type BrokerUris, DEFAULT_TIMEOUT, disconnectError, type Parameters, readBrokers } from "../commands.js";
import { CONNECT_TIMEOUT_MS, firstSuccessful, needBroker, RetryDelay, Scale0Link, unreachable } from "./link.js";

export interface Scale0ClientOptions {
  /** The client port of a broker, tcp://HOST:PORT. */
  readonly broker: string;
  /** Client ports of other brokers, if that one does not answer. */
  readonly others?: readonly string[];
  readonly identity?: string | undefined;
  readonly curve?: CurveClient | undefined;
  readonly connectTimeoutMs?: number;
  /** The first delay between changes of the broker; later ones are up to ten times as long. */
  readonly retryMs?: number;
  /** How long after a deadline to wait for the broker's refusal, which is more specific; 2 s if absent. */
  readonly marginMs?: number;
}

interface Scale0RequestOptions {
  readonly timeoutMs?: number;
  /** Send it to another worker if the first is lost. */
  readonly retry?: boolean;
}

type Frames = Uint8Array | string | readonly (Uint8Array | string)[];

interface Pending {
  /** Where it was sent last. */
  link: Scale0Link;
  readonly parameters: Parameters;
  readonly body: readonly Uint8Array[];
  readonly timer: NodeJS.Timeout;
  readonly resolve: (frames: readonly Uint8Array[]) => void;
  readonly reject: (error: LaboroError) => void;
}

const MARGIN_MS = 2_000;
const FOREVER_MS = 2 ** 31 - 1;

/** It connects with the first request. */
export class Scale0Client {
  readonly #options: Scale0ClientOptions;
  readonly #pending = new Map<number, Pending>();
  readonly #links = new Set<Scale0Link>();
  /** Requests that a draining broker refused. */
  readonly #redirected = new Set<number>();
  readonly #retryDelay: RetryDelay;
  #numbers = 0;
  #current: Scale0Link | undefined;
  #broker: string;
  #link: Promise<Scale0Link> | undefined;
  #closed = false;

  /** Throws LABORO_BAD_INPUT. */
  constructor(options: Scale0ClientOptions) {
    for (const url of [options.broker, ...(options.others ?? [])]) parseTcpUrl(url);
    this.#options = options;
    this.#retryDelay = new RetryDelay(options.retryMs);
    this.#broker = options.broker;
  }

  get broker(): string {
    return this.#broker;
  }

  /** The frames of the answer. Rejects with LABORO_SERVICE_FAILED if the service failed, else with the reason. */
  async request(service: string, body: Frames, options: Scale0RequestOptions = {}): Promise<readonly Uint8Array[]> {
    const { timeoutMs = DEFAULT_TIMEOUT, retry = false } = options;
    const { marginMs = MARGIN_MS } = this.#options;
    if (this.#closed) throw new LaboroError("LABORO_BROKER_GONE", "this client is closed");
    const frames = (Array.isArray(body) ? body : [body]).map((one: Uint8Array | string) => Buffer.from(one));
    this.#link ??= this.#findBroker();
    const link = await this.#link;
    const id = ++this.#numbers;
    const parameters = { service, message_id: id, timeout: timeoutMs, ...(retry ? { retry } : {}) };
    return new Promise((resolve, reject) => {
      const timer = setTimeout(
        () => this.#settle(id, (pending) => pending.reject(late(timeoutMs))),
        Math.min(timeoutMs + marginMs, FOREVER_MS),
      );
      const pending: Pending = { link, parameters, body: frames, timer, resolve, reject };
      this.#pending.set(id, pending);
      this.#ask(id, pending, link);
    });
  }

  #ask(id: number, pending: Pending, link: Scale0Link): void {
    pending.link = link;
    const { parameters, body } = pending;
    if (!link.send("WORKREQUEST", parameters, body)) this.#settle(id, ({ reject }) => reject(lost(link.url)));
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#refuse(new LaboroError("LABORO_BROKER_GONE", "this client is closed"));
    this.#link?.catch(() => {});
    await Promise.all([...this.#links].map((link) => link.close()));
  }

  /** Its broker. If that does not answer, one of the others says where to go. */
  async #findBroker(): Promise<Scale0Link> {
    const { broker, others = [] } = this.#options;
    try {
      return await this.#connect(this.#broker);
    } catch (cause) {
      this.#link = undefined;
      const left = [broker, ...others].filter((url) => url !== this.#broker);
      if (left.length === 0) throw unreachable(asLaboroError(cause).message);
      const entries = await firstSuccessful(left, (url) => this.#needBroker(url)).catch((more: unknown) => {
        throw unreachable(`${asLaboroError(cause).message}; ${asLaboroError(more).message}`);
      });
      const link = await firstSuccessful(entries, (one) => this.#connect(one.client_uri));
      this.#link = Promise.resolve(link);
      return link;
    }
  }

  async #needBroker(url: string): Promise<readonly BrokerUris[]> {
    const request = { identity: this.#options.identity ?? "", services: [] };
    return needBroker(await this.#openLink(url), request, this.#connectTimeoutMs);
  }

  async #connect(url: string): Promise<Scale0Link> {
    const link = await this.#openLink(url);
    try {
      await link.receive(this.#connectTimeoutMs);
    } catch (cause) {
      await link.close();
      throw cause;
    }
    this.#broker = url;
    this.#links.add(link);
    this.#current = link;
    void this.#receiveLoop(link);
    return link;
  }

  #openLink(url: string): Promise<Scale0Link> {
    const { identity, curve } = this.#options;
    // The broker forgets the requests of a lost connection.
    const reconnectTimeoutMs = 0;
    return Scale0Link.open({ url, identity, curve, connectTimeoutMs: this.#connectTimeoutMs, reconnectTimeoutMs });
  }

  get #connectTimeoutMs(): number {
    return this.#options.connectTimeoutMs ?? CONNECT_TIMEOUT_MS;
  }

  async #receiveLoop(link: Scale0Link): Promise<void> {
    try {
      for (;;) {
        const taken = await link.receive(FOREVER_MS);
        if (taken === "opened") continue;
        const { command, parameters, body } = taken;
        const id = Number(parameters.message_id);
        if (command === "WORKREPLY" || command === "TASKREPLY") {
          this.#settle(id, ({ resolve, reject }) =>
            parameters.error === undefined ? resolve(body) : reject(failed(parameters.error, body)),
          );
        } else if (command === "DISCONNECTERROR") {
          const error = disconnectError(parameters);
          // CHANGEBROKER follows; the request is sent again there.
          if (error.status === 301) this.#redirected.add(id);
          else if (parameters.message_id === undefined) this.#refuse(error, link);
          else this.#settle(id, ({ reject }) => reject(error));
        } else if (command === "CHANGEBROKER") {
          this.#changeBroker(readBrokers(parameters.brokers));
        }
      }
    } catch (cause) {
      this.#links.delete(link);
      if (this.#current === link) this.#link = undefined;
      this.#refuse(asLaboroError(cause), link);
      await link.close();
    }
  }

  /** The next requests go there. Those that were accepted are answered on their old link. */
  #changeBroker([first]: readonly BrokerUris[]): void {
    if (first === undefined || first.client_uri === "" || first.client_uri === this.#broker) return;
    this.#broker = first.client_uri;
    this.#link = delay(this.#retryDelay.next()).then(() => this.#findBroker());
    const redirected = [...this.#redirected];
    this.#redirected.clear();
    this.#link.then(
      (link) => {
        for (const id of redirected) {
          const pending = this.#pending.get(id);
          if (pending !== undefined) this.#ask(id, pending, link);
        }
      },
      (cause: unknown) => {
        for (const id of redirected) this.#settle(id, ({ reject }) => reject(asLaboroError(cause)));
      },
    );
  }

  #settle(id: number, how: (pending: Pending) => void): void {
    const pending = this.#pending.get(id);
    this.#pending.delete(id);
    clearTimeout(pending?.timer);
    if (pending !== undefined) how(pending);
  }

  /** Rejects the requests of this link, or all. */
  #refuse(error: LaboroError, link?: Scale0Link): void {
    for (const [id, pending] of [...this.#pending]) {
      if (link === undefined || pending.link === link) this.#settle(id, ({ reject }) => reject(error));
    }
  }
}

const late = (ms: number): LaboroError => new LaboroError("LABORO_DEADLINE", `no answer came in ${ms} ms`);
const lost = (url: string): LaboroError =>
  new LaboroError("LABORO_BROKER_GONE", `${url}: the connection was lost before the answer came`);

function failed(error: unknown, body: readonly Uint8Array[]): LaboroError {
  const text = Buffer.concat(body).toString() || String(error);
  return new LaboroError("LABORO_SERVICE_FAILED", text);
}
