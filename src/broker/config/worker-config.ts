/**
 * What workers are told: one set of settings, in numbered versions. Each version is kept under its number, so that two brokers of a
 * group that set one at the same time get two numbers. Version 0 is the empty one that every broker begins with.
 */

import { type Config, isConfig } from "../../base/config-value.js";
import { LaboroError } from "../../base/errors.js";
import type { Log } from "../../base/log.js";
import type { Store } from "../../model/store.js";
import { checkSettings } from "../../model/worker-settings.js";

export interface ConfigVersion {
  readonly version: number;
  /** Milliseconds since 1970. */
  readonly changed: number;
  readonly settings: Config;
}

/** What it needs of the core. */
export interface ConfigKeeper {
  readonly store: Pick<Store, "kept" | "shared">;
  keep(area: string, key: string, value: string | null, version?: number): Promise<{ readonly kept: boolean }>;
}

/** Versions that are kept. */
export const CONFIG_HISTORY = 50;
const AREA = "config";
/** How often a broker of a group looks whether another has set one. */
const POLL_MS = 1_000;

export class WorkerConfig {
  readonly #keeper: ConfigKeeper;
  readonly #log: Log;
  readonly #listeners = new Set<(config: ConfigVersion) => void>();
  #versions: readonly ConfigVersion[] = [];
  #watch: NodeJS.Timeout | undefined;

  constructor(keeper: ConfigKeeper, log: Log) {
    this.#keeper = keeper;
    this.#log = log;
  }

  async open(): Promise<void> {
    await this.#load();
    if (!this.#keeper.store.shared) return;
    this.#watch = setInterval(() => {
      this.#load().catch((cause: unknown) => this.#log.warn({ error: String(cause) }, "the config could not be read"));
    }, POLL_MS);
    this.#watch.unref();
  }

  close(): void {
    clearInterval(this.#watch);
  }

  get current(): ConfigVersion {
    return this.#versions.at(-1) ?? { version: 0, changed: 0, settings: {} };
  }

  /** Oldest first; at most CONFIG_HISTORY. */
  get history(): readonly ConfigVersion[] {
    return this.#versions;
  }

  /** Called with each new version, until the function that it returns is called. */
  onChanged(tell: (config: ConfigVersion) => void): () => void {
    this.#listeners.add(tell);
    return () => this.#listeners.delete(tell);
  }

  /** Durable when it resolves, and told to whoever listens. With `expected`, only where that is the version there is. */
  async set(settings: Config, expected?: number): Promise<ConfigVersion> {
    checkSettings(settings);
    for (;;) {
      const { version } = this.current;
      if (expected !== undefined && expected !== version) {
        throw new LaboroError("LABORO_BAD_INPUT", `the config is at version ${version} now, not at ${expected}`);
      }
      const { kept } = await this.#keeper.keep(AREA, String(version + 1), JSON.stringify(settings), 0);
      await this.#load();
      if (kept) break;
    }
    await this.#forgetOld();
    return this.current;
  }

  async #load(): Promise<void> {
    const before = this.current.version;
    const kept = await this.#keeper.store.keyValues(AREA);
    const found = kept.map(({ key, value, updatedAt: changed }) => ({
      version: Number(key),
      changed,
      settings: settingsIn(value),
    }));
    found.sort((a, b) => a.version - b.version);
    // Another look may have ended first, with more.
    if ((found.at(-1)?.version ?? 0) < this.current.version) return;
    this.#versions = found.slice(-CONFIG_HISTORY);
    if (this.current.version > before) for (const tell of this.#listeners) tell(this.current);
  }

  async #forgetOld(): Promise<void> {
    for (const { key } of await this.#keeper.store.keyValues(AREA)) {
      if (Number(key) <= this.current.version - CONFIG_HISTORY) await this.#keeper.keep(AREA, key, null);
    }
  }
}

function settingsIn(value: string): Config {
  const settings: Config = JSON.parse(value);
  return isConfig(settings) ? settings : {};
}
