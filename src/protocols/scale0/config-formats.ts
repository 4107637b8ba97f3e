/** The three formats in which a worker may ask for its config. Each holds what the others hold, without loss. */
import { badConfig, type Config, checkSize, readConfig } from "../../base/config-value.js";

export const CONFIG_TYPES = ["JSON", "XML", "ZFL"] as const;
export type ConfigType = (typeof CONFIG_TYPES)[number];

export interface ConfigFormat {
  write(config: Config, version: number): string;
  /** Throws LABORO_BAD_INPUT. */
  read(text: string): Config;
}

export type ConfigFormats = Readonly<Record<ConfigType, ConfigFormat>>;

/** Also in small letters; undefined for what is none. */
export const configTypeOf = (name: string): ConfigType | undefined =>
  CONFIG_TYPES.find((type) => type === name.toUpperCase());

const JSON_FORMAT: ConfigFormat = {
  write: (config) => `${JSON.stringify(config, null, 2)}\n`,
  read: (text) => {
    checkSize(text);
    return readConfig(parsed(text));
  },
};

/** Loads the XML library, which only these formats need. */
export async function loadConfigFormats(): Promise<ConfigFormats> {
  const [xml, zfl] = await Promise.all([import("./config-xml.js"), import("./config-zfl.js")]);
  return {
    JSON: JSON_FORMAT,
    XML: { write: xml.writeXml, read: (text) => xml.readXml(text).config },
    ZFL: { write: zfl.writeZfl, read: zfl.readZfl },
  };
}

export async function writeConfig(type: ConfigType, config: Config, version: number): Promise<string> {
  return (type === "JSON" ? JSON_FORMAT : (await loadConfigFormats())[type]).write(config, version);
}

/** Throws LABORO_BAD_INPUT. */
export async function parseConfig(type: ConfigType, text: string): Promise<Config> {
  return (type === "JSON" ? JSON_FORMAT : (await loadConfigFormats())[type]).read(text);
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw badConfig(`JSON: ${cause instanceof Error ? cause.message : String(cause)}`, cause);
  }
}
