/**
 * A Scale0 worker.
 *
 *   negotiating   a broker was sent CONNECT, or one of its group NEEDBROKER
 *   registered    the broker has answered PING with PONG: requests come, and heartbeats go on
 *   leaving       CONNECT was sent to be taken out of the LRU queue; what is under way is answered, then it ends
 *   ended         for good: stopped, or refused
 *
 * Once it was registered it does not give up: it tries its own broker and those of the group until one answers.
 */
import { once } from "node:events";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { type Config, readConfig } from "../../../base/config-value.js";
import { asLaboroError, badInput } from "../../../base/errors.js";
import { type Log, SILENT } from "../../../base/log.js";
import { type CurveClient, parseTcpUrl } from "../../zeromq/index.js";
import { DEFAULT_HEARTBEAT_MS, disconnectError, type Parameters, readBrokers } from "../commands.js";
import { parseConfig } from "../config-formats.js";
import type { Message } from "../frames.js";
import { JsonText } from "../json-text.js";
import { ActiveRequests, type Scale0Handler } from "./active-requests.js";
import { brokersIn, readCachedConfig, writeCachedConfig } from "./config-cache.js";
import { Scale0Link } from "./link.js";
import {
  awaitRedirect,
  CONNECT_TIMEOUT_MS,
  firstSuccessful,
  isFinalRefusal,
  needBroker,
  Redirected,
  type RegisteringWorker,
  RegistrationRefused,
  RetryDelay,
  register,
  unreachable,
} from "./registration.js";

export type { Scale0Call, Scale0Handler } from "./active-requests.js";

export interface Scale0WorkerOptions {
  /** The worker port of its broker, tcp://HOST:PORT; the remembered one if absent. */
  readonly broker?: string | undefined;
  /** Where no broker is named and none is remembered. */
  readonly defaultBroker?: string;
  /** By which the broker knows it; the host's name and the process number if absent. */
  readonly identity?: string;
  readonly services: Readonly<Record<string, Scale0Handler>>;
  readonly slots?: number;
  /** Longer than the config's, if it is to be; never shorter. */
  readonly heartbeatMs?: number | undefined;
  /** Go on where no broker answers at the first start. */
  readonly keepTrying?: boolean;
  /** A file for the last config, so that another broker of the group is found when this one is down. */
  readonly configCache?: string | undefined;
  readonly curve?: CurveClient | undefined;
  readonly connectTimeoutMs?: number;
  /** The wait between two attempts that follow each other closely: so long at first, up to ten times as long later. */
  readonly retryMs?: number;
  readonly log?: Log;
  readonly onRegistered?: (broker: string) => void;
}

export interface Scale0Worker {
  readonly identity: string;
  readonly config: Config;
  /** Resolves when it was stopped, and rejects where no broker would have it. */
  readonly ended: Promise<void>;
  /** Answers what it has, and goes; what takes longer than the grace is left. */
  stop(graceMs?: number): Promise<void>;
}

const GRACE_MS = 5_000;

/** Throws LABORO_BAD_INPUT; what comes later is in `ended`. */
export const startScale0Worker = (options: Scale0WorkerOptions): Scale0Worker => new Worker(options);

class Worker implements Scale0Worker, RegisteringWorker {
  readonly identity: string;
  readonly ended: Promise<void>;
  readonly services: readonly string[];
  readonly connectTimeoutMs: number;
  readonly #options: Scale0WorkerOptions;
  readonly #log: Log;
  readonly #slots: number;
  readonly #activeRequests: ActiveRequests;
  readonly #retryDelay: RetryDelay;
  #config: Config = {};
  /** Given back as it came. */
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
    this.services = Object.keys(options.services);
    this.connectTimeoutMs = options.connectTimeoutMs ?? CONNECT_TIMEOUT_MS;
    this.#slots = options.slots ?? 1;
    this.#activeRequests = new ActiveRequests(options.services);
    this.#retryDelay = new RetryDelay(options.retryMs);
    const known = options.configCache === undefined ? undefined : readCachedConfig(options.configCache);
    if (known !== undefined) {
      this.#config = known.config;
      this.#version = known.version;
    }
    const preferred = options.broker ?? brokersIn(this.#config)[0]?.worker_uri ?? options.defaultBroker;
    if (preferred === undefined) throw badInput("no broker is named, and none is remembered");
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
    // Nothing new comes after the CONFIG that answers this.
    if (!this.#stopping && this.#link !== undefined) this.connect(this.#link);
    this.#stop.abort();
    const graceTimer = setTimeout(() => {
      this.#activeRequests.abort();
      this.#link?.fail(unreachable("it is stopped"));
    }, graceMs);
    await this.ended.catch(() => {});
    clearTimeout(graceTimer);
  }

  // The main loop

  async #run(): Promise<void> {
    for (; !this.#stopping; await this.waitForRetry()) {
      try {
        const link = await this.#unlessStopped(this.#findBroker());
        if (link === undefined) return;
        await this.#serve(link);
      } catch (cause) {
        if (this.#stopping) return;
        if (cause instanceof RegistrationRefused) {
          // The operator has stopped it.
          if (cause.cause.status === 444) return;
          throw cause.cause;
        }
        const error = asLaboroError(cause);
        if (!this.#everRegistered && this.#options.keepTrying !== true) throw unreachable(error.message);
        this.#log.warn({ code: error.code }, `no broker: ${error.message}; it is tried again`);
      }
    }
  }

  async #unlessStopped(finding: Promise<Scale0Link>): Promise<Scale0Link | undefined> {
    const link = await Promise.race([finding, this.#stopped]);
    if (link !== undefined) return link;
    void finding.then((late) => late.close()).catch(() => {});
    return undefined;
  }

  /** Its own broker; where that does not answer, one of the group says which to take. */
  async #findBroker(): Promise<Scale0Link> {
    try {
      return this.#registered(await register(this, this.#preferred));
    } catch (cause) {
      if (cause instanceof RegistrationRefused || this.#stopping) throw cause;
      const known = brokersIn(this.#config);
      const others = known.map(({ worker_uri }) => worker_uri).filter((uri) => uri !== this.#preferred && uri !== "");
      if (others.length === 0) throw cause;
      this.#log.warn({ broker: this.#preferred }, `${asLaboroError(cause).message}: the group is asked for another`);
      const own = known.find(({ worker_uri }) => worker_uri === this.#preferred)?.identity;
      return await firstSuccessful(others, async (uri) => {
        const request = { identity: this.identity, services: this.services, preferred_broker: own };
        const brokers = await needBroker(await this.openLink(uri), request, this.connectTimeoutMs);
        return this.#registered(await firstSuccessful(brokers, (one) => register(this, one.worker_uri)));
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

  /** Until it has to go elsewhere, or is stopped. */
  async #serve(link: Scale0Link): Promise<void> {
    this.#link = link;
    let interval = this.#heartbeatMs();
    let pingTimer = setInterval(() => this.ping(link), interval);
    try {
      if (this.#stopping) this.connect(link);
      for (;;) {
        const taken = await link.receive(3 * interval);
        if (taken === "opened") this.ping(link);
        else await this.#handleMessage(taken, link);
        if (this.#stopping && taken !== "opened" && taken.command === "CONFIG") break;
        if (this.#heartbeatMs() === interval) continue;
        interval = this.#heartbeatMs();
        clearInterval(pingTimer);
        pingTimer = setInterval(() => this.ping(link), interval);
      }
    } catch (cause) {
      if (!(cause instanceof Redirected)) throw cause;
      const [first] = cause.brokers;
      if (first !== undefined && first.worker_uri !== "") this.#preferred = first.worker_uri;
      this.#log.info({ broker: first?.worker_uri }, "the broker says to go to another");
    } finally {
      clearInterval(pingTimer);
      link.cancelConnect();
      this.#link = undefined;
      // Requests of this broker are answered there, while another broker is being found.
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
          if (this.#link === link) this.ping(link);
        });
        // Another slot may be free.
        if (this.#activeRequests.count < this.#slots) this.ping(link);
        return;
      case "CONFIG":
        this.configReceived(message, link);
        return;
      case "FORCENEGOTIATE":
        this.renegotiate(link);
        return;
      case "CHANGEBROKER":
        throw new Redirected(readBrokers(parameters.brokers));
      case "DISCONNECTERROR": {
        const error = disconnectError(parameters);
        if (error.status === 301) await awaitRedirect(this, link);
        // After any other code the broker has forgotten this worker, which registers again.
        throw isFinalRefusal(error.status) ? new RegistrationRefused(error) : error;
      }
      default:
        return;
    }
  }

  // RegisteringWorker

  openLink(url: string): Promise<Scale0Link> {
    const { identity, connectTimeoutMs } = this;
    return Scale0Link.open({ url, identity, connectTimeoutMs, curve: this.#options.curve });
  }

  connect(link: Scale0Link, delayMs = 0): void {
    link.connect(() => this.#connectParameters(), delayMs);
  }

  waitForRetry(): Promise<void> {
    return sleep(this.#retryDelay.next(), undefined, { signal: this.#stop.signal }).catch(() => {});
  }

  renegotiate(link: Scale0Link): void {
    this.connect(link, this.#retryDelay.next());
  }

  /** The version in the text's spelling, and in that of all other messages. */
  #connectParameters(): Parameters {
    const version = this.#version === undefined ? {} : { configversion: this.#version, config_version: this.#version };
    return { config_type: "JSON", ...version, services: this.services, slots: this.#slots };
  }

  /** A config that comes unasked is acknowledged by the next heartbeat. */
  configReceived({ parameters, body: [frame] }: Message, link: Scale0Link): void {
    const { config_version: version, config } = parameters;
    try {
      const given: unknown = frame === undefined ? config : Buffer.from(frame).toString();
      this.#config = typeof given === "string" ? parseConfig(given) : readConfig(given ?? {});
      this.#version = version instanceof JsonText ? version : undefined;
      const { configCache } = this.#options;
      if (configCache !== undefined) writeCachedConfig(configCache, { version: this.#version, config: this.#config });
    } catch (cause) {
      this.#log.warn({ error: String(cause) }, "the broker's config cannot be used");
    }
    if (link.answersConnect()) this.ping(link);
  }

  /** A heartbeat, and the sign that a slot is free: the broker counts the requests that it has assigned. */
  ping(link: Scale0Link): void {
    if (this.#stopping) return;
    const version = this.#version === undefined ? {} : { config_version: this.#version };
    link.send("PING", { heartbeat_interval: this.#heartbeatMs(), time: Date.now(), ...version });
  }

  #heartbeatMs(): number {
    const { heartbeat_interval: configured } = this.#config;
    const least = typeof configured === "number" && configured > 0 ? configured : DEFAULT_HEARTBEAT_MS;
    return Math.max(least, this.#options.heartbeatMs ?? 0);
  }
}
