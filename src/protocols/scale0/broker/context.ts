/** What the client port and the worker port of a Scale0 listener share. */
import { now } from "../../../base/clock.js";
import type { ErrorCode } from "../../../base/errors.js";
import type { GroupBroker } from "../../../broker/config/group.js";
import type { Core } from "../../../broker/core.js";
import { readSettings, type Settings } from "../../../model/worker-settings.js";
import type { BrokerUris, MessageIdParameter, Parameters, WorkCommand } from "../commands.js";

export interface Scale0Context {
  readonly core: Core;
  readonly pool: string;
  /** Only peers with a known CURVE key may connect. */
  readonly requiresKeys: boolean;
  readonly brokers: Brokers;
  onPeerError(address: string, why: string, code?: ErrorCode): void;
}

/** What goes with a request, for a worker of this protocol: all that the client sent. */
export class ClientRequest {
  constructor(
    readonly client: string,
    readonly messageId: MessageIdParameter,
    readonly workCommand: WorkCommand,
    readonly parameters: Parameters,
    readonly body: readonly Uint8Array[],
  ) {}
}

/** What comes with an answer, for a client of this protocol. */
export class WorkerReply {
  constructor(
    readonly body: readonly Uint8Array[],
    readonly error: unknown,
  ) {}
}

const CLOCK_TOLERANCE_MS = 60_000;
/** A clock that counts seconds is below this for the next thousand years; one that counts milliseconds has been above it since 1973. */
const SECONDS_BELOW = 100_000_000_000;

const settingsOf = (core: Core): Settings => readSettings(core.config.current.settings);

/** The parameters of PONG. `time` is that of the PING by the text, and the broker's by the later notes: where the PING had none, it is. */
export function pong(core: Core, time?: number): Parameters {
  const broker = Math.round(now());
  return { time: time ?? broker, broker_time: broker, config_version: core.config.current.version };
}

/** What is wrong with a peer's clock, if so much that something must be. */
export function clockError(core: Core, time: number | undefined, now: number): string | undefined {
  if (time === undefined) return undefined;
  const { clockTolerance = CLOCK_TOLERANCE_MS } = settingsOf(core);
  const off = Math.round((Math.abs(time) < SECONDS_BELOW ? time * 1_000 : time) - now);
  if (Math.abs(off) <= clockTolerance) return undefined;
  return `yours is ${Math.abs(off)} ms ${off > 0 ? "ahead of" : "behind"} the broker's, ${clockTolerance} ms are allowed`;
}

/** The brokers that a peer may use: this one, those of its group, and those in the config. */
export class Brokers {
  readonly #core: Core;
  readonly #self: BrokerUris;

  /** `self.identity` is for a broker that is in no group. */
  constructor(core: Core, self: BrokerUris) {
    this.#core = core;
    this.#self = self;
  }

  get self(): BrokerUris {
    return { ...this.#self, identity: this.#core.group?.identity ?? this.#self.identity };
  }

  /** The preferred one first: this one, unless it is drained. Fallbacks last: they open when no other is left. */
  list(): BrokerUris[] {
    return this.#core.maintenance.draining
      ? this.others()
      : [this.self, ...this.others(), ...urisOf(this.#core.group?.standbys?.())];
  }

  /** Those that a peer can go to now. */
  others(): BrokerUris[] {
    const configured = (settingsOf(this.#core).brokers ?? []).flatMap(({ identity, worker_uri, client_uri }) =>
      worker_uri === undefined && client_uri === undefined
        ? []
        : [{ identity, worker_uri: worker_uri ?? "", client_uri: client_uri ?? "" }],
    );
    const found = new Map<string, BrokerUris>();
    for (const entry of [...this.#alive(), ...configured]) {
      const own = entry.identity === this.self.identity || entry.worker_uri === this.self.worker_uri;
      if (!own && !found.has(entry.identity)) found.set(entry.identity, entry);
    }
    return [...found.values()];
  }

  /** One of the group that is known to be there. */
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
