/** What the client port and the worker port of a Scale0 listener share. */
import { now } from "../../../base/clock.js";
import type { ErrorCode } from "../../../base/errors.js";
import type { Core } from "../../../broker/core.js";
import type { GroupBroker } from "../../../broker/group/membership.js";
import { type Config, configFor, readSettings, type Settings } from "../../../model/worker-settings.js";
import {
  type BrokerUris,
  DEFAULT_HEARTBEAT_MS,
  type MessageIdParameter,
  type Parameters,
  type WorkCommand,
} from "../commands.js";
import { type ConfigType, writeConfig } from "../config-formats.js";

export interface Scale0Context {
  readonly core: Core;
  readonly pool: string;
  /** Only peers with a known CURVE key may connect. */
  readonly requiresKeys: boolean;
  readonly brokers: Brokers;
  onPeerError(address: string, why: string, code?: ErrorCode): void;
}

/** Attached to a request, for a worker of this protocol: the complete message of the client. */
export class ClientRequest {
  constructor(
    readonly client: string,
    readonly messageId: MessageIdParameter,
    readonly workCommand: WorkCommand,
    readonly parameters: Parameters,
    readonly body: readonly Uint8Array[],
  ) {}
}

/** Attached to an answer, for a client of this protocol. */
export class WorkerReply {
  constructor(
    readonly body: readonly Uint8Array[],
    readonly error: unknown,
  ) {}
}

const CLOCK_TOLERANCE_MS = 60_000;
/** Smaller times are seconds: as milliseconds they would be before 1973. */
const SECONDS_BELOW = 100_000_000_000;

const settingsOf = (core: Core): Settings => readSettings(core.config.current.settings);

/** The parameters of PONG. `time`: the PING's by the specification, the broker's by the later notes. */
export function pong(core: Core, time?: number): Parameters {
  const broker = Math.round(now());
  return { time: time ?? broker, broker_time: broker, config_version: core.config.current.version };
}

/** Why a peer's clock is refused, if it is too far off. */
export function clockError(core: Core, time: number | undefined): string | undefined {
  if (time === undefined) return undefined;
  const { clockTolerance = CLOCK_TOLERANCE_MS } = settingsOf(core);
  const off = Math.round((Math.abs(time) < SECONDS_BELOW ? time * 1_000 : time) - now());
  if (Math.abs(off) <= clockTolerance) return undefined;
  const where = off > 0 ? "ahead of" : "behind";
  return `yours is ${Math.abs(off)} ms ${where} the broker's, ${clockTolerance} ms are allowed`;
}

/** The brokers that a peer may use: this one, those of its group, and those in the config. */
export class Brokers {
  readonly #core: Core;
  readonly #self: () => BrokerUris;

  /** The identity of `self` is for a broker without a group. */
  constructor(core: Core, self: () => BrokerUris) {
    this.#core = core;
    this.#self = self;
  }

  get self(): BrokerUris {
    const self = this.#self();
    return { ...self, identity: this.#core.group?.identity ?? self.identity };
  }

  /** The preferred one first: this one, unless it is drained. Standby brokers last: they open when no other is left. */
  list(): BrokerUris[] {
    if (this.#core.maintenance.draining) return this.others();
    return [this.self, ...this.others(), ...urisOf(this.#core.group?.standbys?.())];
  }

  /** The other brokers that are open now. */
  others(): BrokerUris[] {
    const { self } = this;
    const configured = (settingsOf(this.#core).brokers ?? []).flatMap(({ identity, worker_uri, client_uri }) =>
      worker_uri === undefined && client_uri === undefined
        ? []
        : [{ identity, worker_uri: worker_uri ?? "", client_uri: client_uri ?? "" }],
    );
    const found = new Map<string, BrokerUris>();
    for (const entry of [...this.#alive(), ...configured]) {
      const own = entry.identity === self.identity || entry.worker_uri === self.worker_uri;
      if (!own && !found.has(entry.identity)) found.set(entry.identity, entry);
    }
    return [...found.values()];
  }

  alive(identity: string): BrokerUris | undefined {
    return this.#alive().find((entry) => entry.identity === identity);
  }

  #alive(): BrokerUris[] {
    return urisOf(this.#core.group?.brokers());
  }
}

const urisOf = (brokers: readonly GroupBroker[] = []): BrokerUris[] =>
  brokers.flatMap(({ identity, listeners }) => {
    const [client, worker] = listeners.filter(({ name }) => name === "scale0").map(({ url }) => url);
    return client === undefined || worker === undefined ? [] : [{ identity, worker_uri: worker, client_uri: client }];
  });

/** The config of one worker. */
export class PushedConfig {
  readonly #context: Scale0Context;
  readonly #name: string;
  #cached: { readonly version: number; readonly settings: Settings } | undefined;

  constructor(context: Scale0Context, name: string) {
    this.#context = context;
    this.#name = name;
  }

  get version(): number {
    return this.#context.core.config.current.version;
  }

  get settings(): Settings {
    const { version } = this;
    if (this.#cached?.version !== version) this.#cached = { version, settings: readSettings(this.#own()) };
    return this.#cached.settings;
  }

  get heartbeatMs(): number {
    return this.settings.heartbeatMs ?? DEFAULT_HEARTBEAT_MS;
  }

  /** The parameters and the body of CONFIG. The specification has the config among the parameters, so it is in both. */
  message(type: ConfigType, services: readonly string[]): readonly [Parameters, Uint8Array[]] {
    const { brokers } = this.#context;
    const [preferred = brokers.self, ...others] = brokers.list();
    const config = {
      ...this.#own(),
      identity: this.#name,
      services,
      heartbeat_interval: this.heartbeatMs,
      preferred_broker: { ...preferred },
      brokers: [preferred, ...others].map((entry) => ({ ...entry })),
    };
    const text = writeConfig(type, config, this.version);
    return [{ config_type: type, config_version: this.version, config: text }, [Buffer.from(text)]];
  }

  #own(): Config {
    return configFor(this.#context.core.config.current.settings, { name: this.#name, pool: this.#context.pool });
  }
}
