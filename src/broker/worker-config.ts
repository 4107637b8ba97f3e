/**
 * The config pushed to workers: one set of settings, in numbered versions. Each version is stored under its number, so
 * two brokers that set one at the same time get different numbers. Version 0 is empty and needs no storage.
 */
import { badInput } from "../base/errors.js";
import type { Log } from "../base/log.js";
import type { Store } from "../model/store.js";
import { type Config, checkSettings, isConfig } from "../model/worker-settings.js";

interface ConfigVersion {
  readonly version: number;
  /** Milliseconds since 1970. */
  readonly changed: number;
  readonly settings: Config;
}

/** The part of the core that is used here. */
interface ConfigStore {
  readonly store: Pick<Store, "keyValues" | "shared">;
  put(bucket: string, key: string, value: string | null, version?: number): Promise<{ readonly stored: boolean }>;
}

/** How many versions are kept. */
export const CONFIG_HISTORY = 50;
const BUCKET = "config";
/** How often a broker of a group checks whether another has set a version. */
const POLL_MS = 1_000;

export class WorkerConfig {
  readonly #core: ConfigStore;
  readonly #log: Log;
  readonly #listeners = new Set<(config: ConfigVersion) => void>();
  #versions: readonly ConfigVersion[] = [];
  #watch: NodeJS.Timeout | undefined;

  constructor(core: ConfigStore, log: Log) {
    this.#core = core;
    this.#log = log;
  }

  async open(): Promise<void> {
    await this.#load();
    if (!this.#core.store.shared) return;
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

  /** Calls `listener` with each new version. Returns the function that removes it. */
  onChanged(listener: (config: ConfigVersion) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Resolves when the version is durable and known. Refuses if `expectedVersion` is not the current version. */
  async set(settings: Config, expectedVersion?: number): Promise<ConfigVersion> {
    checkSettings(settings);
    for (;;) {
      const { version } = this.current;
      if (expectedVersion !== undefined && expectedVersion !== version) {
        throw badInput(`the config is at version ${version} now, not at ${expectedVersion}`);
      }
      const { stored } = await this.#core.put(BUCKET, String(version + 1), JSON.stringify(settings), 0);
      await this.#load();
      if (stored) break;
    }
    await this.#removeOld();
    return this.current;
  }

  async #load(): Promise<void> {
    const before = this.current.version;
    const stored = await this.#core.store.keyValues(BUCKET);
    const found = stored.map(({ key, value, updatedAt }) => ({
      version: Number(key),
      changed: updatedAt,
      settings: settingsIn(value),
    }));
    found.sort((a, b) => a.version - b.version);
    // Another read may have ended first, with a newer version.
    if ((found.at(-1)?.version ?? 0) < this.current.version) return;
    this.#versions = found.slice(-CONFIG_HISTORY);
    if (this.current.version > before) for (const listener of this.#listeners) listener(this.current);
  }

  async #removeOld(): Promise<void> {
    for (const { key } of await this.#core.store.keyValues(BUCKET)) {
      if (Number(key) <= this.current.version - CONFIG_HISTORY) await this.#core.put(BUCKET, key, null);
    }
  }
}

function settingsIn(value: string): Config {
  const settings: Config = JSON.parse(value);
  return isConfig(settings) ? settings : {};
}
