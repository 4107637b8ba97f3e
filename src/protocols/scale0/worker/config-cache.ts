/** What a worker remembers from one start to the next: its last config, with the brokers of the group. */
import { readFileSync } from "node:fs";
import { type Config, isConfig, readConfig } from "../../../base/config-value.js";
import { badInput, errnoOf, LaboroError } from "../../../base/errors.js";
import { writeFileAtomically } from "../../../base/files/durable.js";
import { type BrokerUris, readBrokers } from "../commands.js";

export interface CachedConfig {
  /** As the broker gave it; compared, not counted with. */
  readonly version: string;
  readonly config: Config;
}

/** Undefined where nothing was remembered yet. */
export function readCachedConfig(path: string): CachedConfig | undefined {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (cause) {
    if (errnoOf(cause) === "ENOENT") return undefined;
    throw badInput(`${path}: ${cause instanceof Error ? cause.message : cause}`, cause);
  }
  try {
    const { version, config } = JSON.parse(text) as Partial<CachedConfig>;
    return { version: String(version), config: readConfig(config) };
  } catch (cause) {
    throw new LaboroError("LABORO_DATA_CORRUPT", `${path} holds no config; remove it to begin without`, { cause });
  }
}

export function writeCachedConfig(path: string, cached: CachedConfig): void {
  writeFileAtomically(path, `${JSON.stringify(cached, null, 2)}\n`);
}

/** The brokers that a config names, the preferred one first. */
export function brokersIn(config: Config): BrokerUris[] {
  const preferred = isConfig(config.preferred_broker) ? [config.preferred_broker] : [];
  // One alone may have come from a format that does not mark lists.
  const group = isConfig(config.brokers) ? [config.brokers] : Array.isArray(config.brokers) ? config.brokers : [];
  const all = readBrokers([...preferred, ...group]);
  return all.filter((one, at) => all.findIndex(({ identity }) => identity === one.identity) === at);
}
