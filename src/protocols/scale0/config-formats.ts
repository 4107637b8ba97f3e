/** The formats in which a worker may ask for its config. All of them are written; JSON is also read. */
import { badConfig, type Config, checkSize, readConfig } from "../../base/config-value.js";
import { writeXml } from "./config-xml.js";
import { writeZfl } from "./config-zfl.js";

export const CONFIG_TYPES = ["JSON", "XML", "ZFL"] as const;
export type ConfigType = (typeof CONFIG_TYPES)[number];

/** Also in small letters; undefined for what is none. */
export const configTypeOf = (name: string): ConfigType | undefined =>
  CONFIG_TYPES.find((type) => type === name.toUpperCase());

const WRITERS: Readonly<Record<ConfigType, (config: Config, version: number) => string>> = {
  JSON: (config) => `${JSON.stringify(config, null, 2)}\n`,
  XML: writeXml,
  ZFL: writeZfl,
};

export const writeConfig = (type: ConfigType, config: Config, version: number): string =>
  WRITERS[type](config, version);

/** Reads JSON. Throws LABORO_BAD_INPUT. */
export function parseConfig(text: string): Config {
  checkSize(text);
  return readConfig(parsed(text));
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw badConfig(`JSON: ${cause instanceof Error ? cause.message : String(cause)}`, cause);
  }
}
