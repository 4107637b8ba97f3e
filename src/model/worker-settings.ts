/**
 * The settings of the config that laboro itself uses. An operator may add others. Settings at the top level are for
 * every worker. Settings in `pools.NAME` and `workers.NAME` override them, for the workers of a pool and for one
 * worker.
 *
 * The config pushed to workers, as a value: names with strings, numbers, booleans, lists and nested names. It is the
 * same in every format.
 */
import { badInput, type LaboroError } from "../base/errors.js";
import * as input from "./input.js";

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

/** A broker that a worker may connect to, given by an operator or the group. */
interface BrokerAddress {
  readonly identity: string;
  /** The main listener, for laboro's own workers. */
  readonly url?: string;
  readonly worker_uri?: string;
  readonly client_uri?: string;
}

export interface Settings {
  /** Milliseconds. */
  readonly heartbeatMs?: number;
  /** Environment of tasks at laboro's own workers. The environment of the job overrides it. */
  readonly environment?: Readonly<Record<string, string>>;
  /** Added to the tags of the worker itself. */
  readonly tags?: readonly string[];
  readonly slots?: number;
  /** The services of a Scale0 worker that has no services of its own. */
  readonly services?: readonly string[];
  readonly brokers?: readonly BrokerAddress[];
  /** Send a Scale0 worker that fell back to this broker back to its own broker when that is available again. */
  readonly switchBack?: boolean;
  /** The largest accepted clock difference of a Scale0 peer, in milliseconds. */
  readonly clockTolerance?: number;
}

/** The config of one worker: the top level, overridden by its pool's and its own settings. */
export function configFor(config: Config, worker: { readonly name: string; readonly pool: string }): Config {
  const { pools, workers, ...all } = config;
  return { ...all, ...memberOf(pools, worker.pool), ...memberOf(workers, worker.name) };
}

function memberOf(section: Config[string] | undefined, name: string): Config {
  if (!isConfig(section) || !Object.hasOwn(section, name)) return {};
  const found = section[name];
  return isConfig(found) ? found : {};
}

/** Throws LABORO_BAD_INPUT if a setting that laboro uses is invalid. */
export function checkSettings(config: Config): void {
  readSettings(config);
  for (const name of ["pools", "workers"] as const) {
    const section = config[name];
    if (section === undefined) continue;
    if (!isConfig(section)) throw badConfig(`${name}: expected names, each with its settings`);
    for (const [member, settings] of Object.entries(section)) {
      if (!isConfig(settings)) throw badConfig(`${name}.${member}: expected settings`);
      readSettings(settings, `${name}.${member}.`);
    }
  }
}

export const MIN_HEARTBEAT = 50;
export const MAX_HEARTBEAT = 3_600_000;

export function readSettings(config: Config, at = "config: "): Settings {
  const read = <T>(name: string, how: (value: unknown, what: string) => T): T | undefined =>
    input.optional(Object.hasOwn(config, name) ? config[name] : undefined, `${at}${name}`, how);
  const texts = (most: number) => (value: unknown, what: string) => input.list(listed(value), what, most, input.text);
  return input.definedOnly({
    heartbeatMs: read("heartbeat_interval", (value, what) => input.integer(value, what, MIN_HEARTBEAT, MAX_HEARTBEAT)),
    environment: read("environment", readEnvironment),
    tags: read("tags", texts(1024)),
    slots: read("slots", (value, what) => input.integer(value, what, 1, 100_000)),
    services: read("services", texts(1024)),
    brokers: read("brokers", (value, what) => input.list(listed(value), what, 1000, readBrokerAddress)),
    switchBack: read("switch_back", input.flag),
    clockTolerance: read("clock_tolerance", (value, what) => input.integer(value, what, 1, Number.MAX_SAFE_INTEGER)),
  });
}

/** A single value stands for a list of one, in formats without lists. */
const listed = (value: unknown): unknown => (Array.isArray(value) ? value : [value]);

function readEnvironment(value: unknown, what: string): Record<string, string> {
  const members = Object.entries(input.fields(value, what)).map(([name, one]) => {
    if (!/^[A-Za-z_]\w*$/.test(name)) throw input.unexpectedValue(what, "names of variables", name);
    if (typeof one === "number" || typeof one === "boolean") return [name, String(one)];
    if (typeof one === "string" && !one.includes("\0")) return [name, one];
    throw input.unexpectedValue(`${what}.${name}`, "text without NUL", one);
  });
  return Object.fromEntries(members) as Record<string, string>;
}

function readBrokerAddress(value: unknown, what: string): BrokerAddress {
  const { identity, url, worker_uri, client_uri } = input.fields(value, what);
  const uri = (one: unknown, name: string) => input.optional(one, `${what}.${name}`, input.text);
  return {
    identity: input.text(identity, `${what}.identity`),
    ...input.definedOnly({
      url: uri(url, "url"),
      worker_uri: uri(worker_uri, "worker_uri"),
      client_uri: uri(client_uri, "client_uri"),
    }),
  };
}

/** The machine that a worker runs on, as it is now. */
export interface MachineLoad {
  readonly cpus: number;
  /** How many processes ran or wanted to, on average over the last minute. */
  readonly load: number;
  /** In bytes. */
  readonly memory: number;
  readonly freeMemory: number;
}
