/** The config of one worker, in the format that it asks for. */

import type { Config } from "../../../base/config-value.js";
import { configFor, readSettings, type Settings } from "../../../model/worker-settings.js";
import type { BrokerUris, Parameters } from "../commands.js";
import { DEFAULT_HEARTBEAT_MS } from "../commands.js";
import { type ConfigType, writeConfig } from "../config-formats.js";
import type { Scale0Context } from "./context.js";

export class WorkerConfig {
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

  /** Those that laboro knows. */
  get settings(): Settings {
    if (this.#cached?.version !== this.version)
      this.#cached = { version: this.version, settings: readSettings(this.#own()) };
    return this.#cached.settings;
  }

  get heartbeatMs(): number {
    return this.settings.heartbeatMs ?? DEFAULT_HEARTBEAT_MS;
  }

  /** CONFIG: its parameters and its body. The text has the config among the parameters, so it is there as well. */
  message(type: ConfigType, services: readonly string[]): readonly [Parameters, Uint8Array[]] {
    const text = writeConfig(type, this.#content(services), this.version);
    return [{ config_type: type, config_version: this.version, config: text }, [Buffer.from(text)]];
  }

  #content(services: readonly string[]): Config {
    const { brokers } = this.#context;
    const [preferred = brokers.self, ...others] = brokers.list();
    const named = (entry: BrokerUris): Config => ({ ...entry });
    return {
      ...this.#own(),
      identity: this.#name,
      services,
      heartbeat_interval: this.heartbeatMs,
      preferred_broker: named(preferred),
      brokers: [preferred, ...others].map(named),
    };
  }

  #own(): Config {
    return configFor(this.#context.core.config.current.settings, { name: this.#name, pool: this.#context.pool });
  }
}
