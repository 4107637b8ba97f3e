/**
 * A Scale0 worker.
 *
 *   negotiating   CONNECT was sent to a broker, or NEEDBROKER to one of its group
 *   registered    the broker has answered PING with PONG: requests come, heartbeats go
 *   leaving       CONNECT was sent, which takes the worker out of the LRU queue; it ends when all requests are answered
 *   ended         for good: stopped, or refused
 *
 * Once it was registered it does not give up: it tries its own broker and those of the group until one answers.
 */
import { once } from "node:events";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { asLaboroError, badInput } from "../../../base/errors.js";
import { type Log, SILENT } from "../../../base/log.js";
import { type Config, MAX_HEARTBEAT, MIN_HEARTBEAT, readConfig } from "../../../model/worker-settings.js";
import { type CurveClient, parseTcpUrl } from "../../zeromq/index.js";
import {
  type BrokerUris,
  DEFAULT_HEARTBEAT_MS,
  disconnectError,
  JsonText,
  type Parameters,
  readBrokers,
} from "../commands.js";
import { parseConfig } from "../config-formats.js";
import type { Message } from "../frames.js";
import { ActiveRequests, type Scale0Handler } from "./active-requests.js";
import { brokersIn, readCachedConfig, writeCachedConfig } from "./config-cache.js";
import {
  CONNECT_TIMEOUT_MS,
  firstSuccessful,
  needBroker,
  RegistrationRefused,
  RetryDelay,
  Scale0Link,
  unreachable,
} from "./link.js";

export type { Scale0Call, Scale0Handler } from "./active-requests.js";

export interface Scale0WorkerOptions {
  /** The worker port of its broker, tcp://HOST:PORT; by default the one in the config cache. */
  readonly broker?: string | undefined;
  /** Used if there is no `broker` and none in the config cache. */
  readonly defaultBroker?: string;
  /** The host name and the process id if absent. */
  readonly identity?: string;
  readonly services: Readonly<Record<string, Scale0Handler>>;
  readonly slots?: number;
  /** Only a longer interval than the config's is used. */
  readonly heartbeatMs?: number | undefined;
  /** Retry if no broker answers at the start. */
  readonly keepTrying?: boolean;
  /** A file for the last config, with which another broker of the group is found when this one is down. */
  readonly configCache?: string | undefined;
  readonly curve?: CurveClient | undefined;
  readonly connectTimeoutMs?: number;
  /** The first delay between attempts; later ones are up to ten times as long. */
  readonly retryMs?: number;
  readonly log?: Log;
  readonly onRegistered?: (broker: string) => void;
}

export interface Scale0Worker {
  readonly identity: string;
  readonly config: Config;
  /** Resolves when it was stopped. Rejects if no broker accepts it. */
  readonly ended: Promise<void>;
  /** Answers its requests, but waits no longer than the grace period. */
  stop(graceMs?: number): Promise<void>;
}

const GRACE_MS = 5_000;
/** Redirects of one attempt. */
const MAX_REDIRECTS = 5;
/** Codes with which a broker refuses a worker permanently. */
const FINAL_CODES = [400, 401, 409, 444, 501];

/** A broker sends this worker to others. */
class Redirected extends Error {
  constructor(readonly brokers: readonly BrokerUris[]) {
    super("moved");
  }
}

/** Throws LABORO_BAD_INPUT; later failures are in `ended`. */
export const startScale0Worker = (options: Scale0WorkerOptions): Scale0Worker => new Worker(options);

class Worker implements Scale0Worker {
  readonly identity: string;
  readonly ended: Promise<void>;
  readonly #services: readonly string[];
  readonly #connectTimeoutMs: number;
  readonly #options: Scale0WorkerOptions;
  readonly #log: Log;
  readonly #slots: number;
  readonly #activeRequests: ActiveRequests;
  readonly #retryDelay: RetryDelay;
  #config: Config = {};
  /** Returned to the broker unchanged. */
  #version: JsonText | undefined;
  #preferred: string;
  #everRegistered = false;
  #link: Scale0Link | undefined;
  readonly #stop = new AbortController();
  readonly #stopped: Promise<undefined> = once(this.#stop.signal, "abort").then(() => undefined);

  constructor(options: Scale0WorkerOptions) {
    this.#options = options;
    this.#log = options.log ?? SILENT;
    this.identity = options.identity ?? `${hostname()}-${process.pid}`;
    this.#services = Object.keys(options.services);
    this.#connectTimeoutMs = options.connectTimeoutMs ?? CONNECT_TIMEOUT_MS;
    this.#slots = options.slots ?? 1;
    this.#activeRequests = new ActiveRequests(options.services);
    this.#retryDelay = new RetryDelay(options.retryMs);
    const known = options.configCache === undefined ? undefined : readCachedConfig(options.configCache);
    if (known !== undefined) {
      this.#config = known.config;
      this.#version = known.version;
    }
    const preferred = options.broker ?? brokersIn(this.#config)[0]?.worker_uri ?? options.defaultBroker;
    if (preferred === undefined) throw badInput("no broker is given, and the config cache names none");
    parseTcpUrl(preferred);
    this.#preferred = preferred;
    this.ended = this.#run();
    // The failure is reported by `ended`.
    this.ended.catch(() => {});
  }

  get config(): Config {
    return this.#config;
  }

  get #stopping(): boolean {
    return this.#stop.signal.aborted;
  }

  async stop(graceMs = GRACE_MS): Promise<void> {
    // No request comes after the CONFIG that answers this.
    if (!this.#stopping && this.#link !== undefined) this.#connect(this.#link);
    this.#stop.abort();
    const graceTimer = setTimeout(() => {
      this.#activeRequests.abort();
      this.#link?.fail(unreachable("the worker was stopped"));
    }, graceMs);
    await this.ended.catch(() => {});
    clearTimeout(graceTimer);
  }

  // The main loop

  async #run(): Promise<void> {
    for (; !this.#stopping; await this.#waitForRetry()) {
      try {
        const link = await this.#unlessStopped(this.#findBroker());
        if (link === undefined) return;
        await this.#serve(link);
      } catch (cause) {
        if (this.#stopping) return;
        if (cause instanceof RegistrationRefused) {
          // The operator stops it.
          if (cause.cause.status === 444) return;
          throw cause.cause;
        }
        const error = asLaboroError(cause);
        if (!this.#everRegistered && this.#options.keepTrying !== true) throw unreachable(error.message);
        this.#log.warn({ code: error.code }, `no broker, retrying: ${error.message}`);
      }
    }
  }

  async #unlessStopped(finding: Promise<Scale0Link>): Promise<Scale0Link | undefined> {
    const link = await Promise.race([finding, this.#stopped]);
    if (link !== undefined) return link;
    void finding.then((late) => late.close()).catch(() => {});
    return undefined;
  }

  /** Registers with its own broker. If that does not answer, a broker of the group says where to go. */
  async #findBroker(): Promise<Scale0Link> {
    try {
      return this.#registered(await this.#register(this.#preferred));
    } catch (cause) {
      if (cause instanceof RegistrationRefused || this.#stopping) throw cause;
      const known = brokersIn(this.#config);
      const others = known.map(({ worker_uri }) => worker_uri).filter((uri) => uri !== this.#preferred && uri !== "");
      if (others.length === 0) throw cause;
      this.#log.warn(
        { broker: this.#preferred },
        `asking the group for another broker: ${asLaboroError(cause).message}`,
      );
      const own = known.find(({ worker_uri }) => worker_uri === this.#preferred)?.identity;
      return await firstSuccessful(others, async (uri) => {
        const request = { identity: this.identity, services: this.#services, preferred_broker: own };
        const brokers = await needBroker(await this.#openLink(uri), request, this.#connectTimeoutMs);
        return this.#registered(await firstSuccessful(brokers, (one) => this.#register(one.worker_uri)));
      });
    }
  }

  #registered(link: Scale0Link): Scale0Link {
    this.#preferred = link.url;
    this.#everRegistered = true;
    this.#log.info({ broker: link.url, version: this.#version?.text }, "registered with the broker");
    this.#options.onRegistered?.(link.url);
    return link;
  }

  /** CONNECT, CONFIG, PING, PONG. Follows redirects. Throws LABORO_BROKER_…, or RegistrationRefused. */
  async #register(url: string, redirects = { left: MAX_REDIRECTS }): Promise<Scale0Link> {
    const link = await this.#openLink(url);
    try {
      await this.#negotiate(link);
      return link;
    } catch (cause) {
      await link.close();
      if (!(cause instanceof Redirected)) throw cause;
      if (redirects.left-- <= 0) throw unreachable(`redirected ${MAX_REDIRECTS} times, the last time by ${url}`);
      await this.#waitForRetry();
      return firstSuccessful(cause.brokers, ({ worker_uri }) => this.#register(worker_uri, redirects));
    }
  }

  /** Until PONG comes. */
  async #negotiate(link: Scale0Link): Promise<void> {
    const end = performance.now() + this.#connectTimeoutMs;
    let stale = false;
    let received = false;
    for (;;) {
      const left = end - performance.now();
      if (received && left <= 0) throw this.#notRegistered(link);
      const taken = await link.receive(Math.max(1, left)).catch((cause: unknown) => {
        throw received && performance.now() >= end ? this.#notRegistered(link) : cause;
      });
      if (taken === "opened") {
        this.#connect(link);
        continue;
      }
      received = true;
      const { command, parameters } = taken;
      if (command === "CONFIG") {
        this.#configReceived(taken, link);
      } else if (command === "PONG") {
        return;
      } else if (command === "FORCENEGOTIATE") {
        this.#renegotiate(link);
      } else if (command === "CHANGEBROKER") {
        throw new Redirected(readBrokers(parameters.brokers));
      } else if (command === "DISCONNECTERROR") {
        const error = disconnectError(parameters);
        if (error.status === 301) await this.#awaitRedirect(link);
        if (FINAL_CODES.includes(error.status) || (error.status === 426 && stale)) throw new RegistrationRefused(error);
        if (error.status !== 426 && error.status !== 408) throw error;
        stale = true;
        this.#renegotiate(link);
      }
    }
  }

  #notRegistered({ url }: Scale0Link): Error {
    return unreachable(`${url} did not register this worker in ${this.#connectTimeoutMs} ms`);
  }

  /** After 301: CHANGEBROKER follows, or is sent on request. */
  async #awaitRedirect(link: Scale0Link): Promise<never> {
    link.send("NEEDBROKER", { identity: this.identity, services: this.#services });
    for (;;) {
      const taken = await link.receive(this.#connectTimeoutMs);
      if (taken !== "opened" && taken.command === "CHANGEBROKER")
        throw new Redirected(readBrokers(taken.parameters.brokers));
    }
  }

  /** Until it is redirected or stopped. */
  async #serve(link: Scale0Link): Promise<void> {
    this.#link = link;
    let interval = this.#heartbeatMs();
    let pingTimer = setInterval(() => this.#ping(link), interval);
    try {
      if (this.#stopping) this.#connect(link);
      for (;;) {
        const taken = await link.receive(3 * interval);
        if (taken === "opened") this.#ping(link);
        else await this.#handleMessage(taken, link);
        if (this.#stopping && taken !== "opened" && taken.command === "CONFIG") break;
        if (this.#heartbeatMs() === interval) continue;
        interval = this.#heartbeatMs();
        clearInterval(pingTimer);
        pingTimer = setInterval(() => this.#ping(link), interval);
      }
    } catch (cause) {
      if (!(cause instanceof Redirected)) throw cause;
      const [first] = cause.brokers;
      if (first !== undefined && first.worker_uri !== "") this.#preferred = first.worker_uri;
      this.#log.info({ broker: first?.worker_uri }, `${link.url} sends this worker to another broker`);
    } finally {
      clearInterval(pingTimer);
      link.cancelConnect();
      this.#link = undefined;
      // Requests of this broker are answered while the next one is found.
      const left = this.#activeRequests.whenIdle(link).then(() => link.close());
      if (this.#stopping) await left;
    }
  }

  async #handleMessage(message: Message, link: Scale0Link): Promise<void> {
    const { command, parameters } = message;
    switch (command) {
      case "WORKREQUEST":
      case "TASK":
        void this.#activeRequests.handle(message, link).then(() => {
          if (this.#link === link) this.#ping(link);
        });
        // Another slot may be free.
        if (this.#activeRequests.count < this.#slots) this.#ping(link);
        return;
      case "CONFIG":
        this.#configReceived(message, link);
        return;
      case "FORCENEGOTIATE":
        this.#renegotiate(link);
        return;
      case "CHANGEBROKER":
        throw new Redirected(readBrokers(parameters.brokers));
      case "DISCONNECTERROR": {
        const error = disconnectError(parameters);
        if (error.status === 301) await this.#awaitRedirect(link);
        // After other codes the worker registers again.
        throw FINAL_CODES.includes(error.status) ? new RegistrationRefused(error) : error;
      }
      default:
        return;
    }
  }

  #openLink(url: string): Promise<Scale0Link> {
    const { identity } = this;
    return Scale0Link.open({ url, identity, connectTimeoutMs: this.#connectTimeoutMs, curve: this.#options.curve });
  }

  #connect(link: Scale0Link, delayMs = 0): void {
    link.connect(() => this.#connectParameters(), delayMs);
  }

  #waitForRetry(): Promise<void> {
    return sleep(this.#retryDelay.next(), undefined, { signal: this.#stop.signal }).catch(() => {});
  }

  #renegotiate(link: Scale0Link): void {
    this.#connect(link, this.#retryDelay.next());
  }

  /** The version in both spellings of the specification. */
  #connectParameters(): Parameters {
    const version = this.#version === undefined ? {} : { configversion: this.#version, config_version: this.#version };
    return { config_type: "JSON", ...version, services: this.#services, slots: this.#slots };
  }

  /** A config that answers no CONNECT is acknowledged by the next heartbeat. */
  #configReceived({ parameters, body: [frame] }: Message, link: Scale0Link): void {
    const { config_version: version, config } = parameters;
    try {
      const given: unknown = frame === undefined ? config : Buffer.from(frame).toString();
      this.#config = typeof given === "string" ? parseConfig(given) : readConfig(given ?? {});
      this.#version = version instanceof JsonText ? version : undefined;
      const { configCache } = this.#options;
      if (configCache !== undefined) writeCachedConfig(configCache, { version: this.#version, config: this.#config });
    } catch (cause) {
      this.#log.warn({ error: String(cause) }, `${link.url} sent a config that cannot be used; the old one stays`);
    }
    if (link.answersConnect()) this.#ping(link);
  }

  /** A heartbeat that also asks for work: the broker counts the free slots. */
  #ping(link: Scale0Link): void {
    if (this.#stopping) return;
    const version = this.#version === undefined ? {} : { config_version: this.#version };
    link.send("PING", { heartbeat_interval: this.#heartbeatMs(), time: Date.now(), ...version });
  }

  #heartbeatMs(): number {
    const { heartbeat_interval: configured } = this.#config;
    const least = typeof configured === "number" && configured > 0 ? configured : DEFAULT_HEARTBEAT_MS;
    // Within the bounds that laboro's broker has for it: a timer cannot wait longer than a few weeks.
    const interval = Math.max(least, this.#options.heartbeatMs ?? 0, MIN_HEARTBEAT);
    return Math.min(interval, MAX_HEARTBEAT);
  }
}
