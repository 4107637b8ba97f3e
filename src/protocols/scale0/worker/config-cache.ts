/** The last config of a worker, in a file: it names the brokers of the group. */
import { readFileSync } from "node:fs";
import { badInput, errnoOf, LaboroError } from "../../../base/errors.js";
import { writeFileAtomically } from "../../../base/files/durable.js";
import { type Config, isConfig, readConfig } from "../../../model/worker-settings.js";
import { type BrokerUris, JsonText, readBrokers } from "../commands.js";

interface CachedConfig {
  /** As the broker gave it. */
  readonly version: JsonText | undefined;
  readonly config: Config;
}

/** Undefined if there is no file yet. */
export function readCachedConfig(path: string): CachedConfig | undefined {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (cause) {
    if (errnoOf(cause) === "ENOENT") return undefined;
    throw badInput(`${path}: ${cause instanceof Error ? cause.message : cause}`, cause);
  }
  try {
    const { version, config } = JSON.parse(text) as { readonly version?: unknown; readonly config?: unknown };
    return { version: typeof version === "string" ? asJson(version) : undefined, config: readConfig(config) };
  } catch (cause) {
    throw new LaboroError("LABORO_DATA_CORRUPT", `${path} holds no config; remove it to begin without`, { cause });
  }
}

/** The version is stored as text, so that no reader changes its digits. */
export function writeCachedConfig(path: string, { version, config }: CachedConfig): void {
  writeFileAtomically(path, `${JSON.stringify({ version: version?.text, config }, null, 2)}\n`);
}

function asJson(text: string): JsonText {
  JSON.parse(text);
  return new JsonText(text);
}

/** The brokers that a config names, the preferred one first. */
export function brokersIn(config: Config): BrokerUris[] {
  const preferred = isConfig(config.preferred_broker) ? [config.preferred_broker] : [];
  const group = Array.isArray(config.brokers) ? config.brokers : [];
  const all = readBrokers([...preferred, ...group]);
  return all.filter((one, at) => all.findIndex(({ identity }) => identity === one.identity) === at);
}
