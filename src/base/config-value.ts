/**
 * The config pushed to workers, as a value: names with strings, numbers, booleans, lists and nested names. It is the
 * same in every format.
 */
import { badInput, type LaboroError } from "./errors.js";

export type ConfigValue = null | boolean | number | string | readonly ConfigValue[] | Config;
export interface Config {
  readonly [name: string]: ConfigValue;
}

/** Bytes of a config in any of its formats. */
export const CONFIG_BYTES = 256 * 1024;
/** How deep names may be nested. */
export const CONFIG_DEPTH = 32;
/** Names and items in all. */
const CONFIG_VALUES = 10_000;

export const isConfig = (value: ConfigValue | undefined): value is Config =>
  typeof value === "object" && value !== null && !Array.isArray(value);

export const badConfig = (why: string, cause?: unknown): LaboroError => badInput(`config: ${why}`, cause);

/** Throws LABORO_BAD_INPUT with the place of the first value that is not allowed. */
export function readConfig(value: unknown): Config {
  const config = read(value, "", 0, { values: 0 });
  if (!isConfig(config)) throw badConfig("expected names and their values");
  checkSize(JSON.stringify(config));
  return config;
}

export function checkSize(text: string): void {
  const bytes = Buffer.byteLength(text);
  if (bytes > CONFIG_BYTES) throw badConfig(`it has ${bytes} bytes, the limit is ${CONFIG_BYTES}`);
}

function read(value: unknown, at: string, depth: number, count: { values: number }): ConfigValue {
  if (++count.values > CONFIG_VALUES) throw badConfig(`more than ${CONFIG_VALUES} values`);
  if (depth > CONFIG_DEPTH) throw badConfig(`${at}: more than ${CONFIG_DEPTH} levels`);
  if (value === null || typeof value === "boolean" || typeof value === "string") return value;
  // JSON has no negative zero.
  if (typeof value === "number" && Number.isFinite(value)) return value === 0 ? 0 : value;
  if (Array.isArray(value)) return value.map((item, i) => read(item, `${at}[${i}]`, depth + 1, count));
  if (typeof value === "object") {
    // Not by assignment, because a name may be __proto__.
    return Object.fromEntries(
      Object.entries(value).map(([name, one]) => [
        name,
        read(one, at === "" ? name : `${at}.${name}`, depth + 1, count),
      ]),
    );
  }
  throw badConfig(`${at}: expected text, a number, true, false, null, a list or names`);
}

/** The value of an unquoted text in XML and ZFL; undefined if it is a string. */
export function plainValue(text: string): null | boolean | number | undefined {
  if (text === "null") return null;
  if (text === "true") return true;
  if (text === "false") return false;
  if (!/^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/.test(text)) return undefined;
  const number = Number(text);
  return Number.isFinite(number) ? (number === 0 ? 0 : number) : undefined;
}

/** No lone surrogates: UTF-8 cannot represent them. */
export const isWellFormed = (text: string): boolean => !/\p{Surrogate}/u.test(text);
