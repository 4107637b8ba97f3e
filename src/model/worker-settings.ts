/**
 * The settings that laboro itself knows, among all that an operator may put into the config. Settings at the top are for every
 * worker; those below `pools.NAME` and `workers.NAME` come on top, for the workers of a pool and for one worker.
 */

import { badConfig, type Config, isConfig } from "../base/config-value.js";
import * as input from "./input.js";

/** A broker that a worker may go to, as an operator or the group writes it. */
export interface BrokerAddress {
  readonly identity: string;
  /** The main listener, for laboro's own workers. */
  readonly url?: string;
  readonly worker_uri?: string;
  readonly client_uri?: string;
}

export interface Settings {
  /** Milliseconds. */
  readonly heartbeatMs?: number;
  /** For tasks of laboro's own workers, unless the job says otherwise. */
  readonly environment?: Readonly<Record<string, string>>;
  /** On top of the worker's own. */
  readonly tags?: readonly string[];
  readonly slots?: number;
  /** What a Scale0 worker serves that says nothing itself. */
  readonly services?: readonly string[];
  readonly brokers?: readonly BrokerAddress[];
  /** A Scale0 worker that fell back to this broker is sent back when its own broker is there again. */
  readonly switchBack?: boolean;
  /** How far a Scale0 peer's clock may be off, in milliseconds. */
  readonly clockTolerance?: number;
}

/** For one worker: what is at the top, then its pool's, then its own. */
export function configFor(config: Config, worker: { readonly name: string; readonly pool: string }): Config {
  const { pools, workers, ...all } = config;
  return { ...all, ...memberOf(pools, worker.pool), ...memberOf(workers, worker.name) };
}

function memberOf(section: Config[string] | undefined, name: string): Config {
  if (!isConfig(section) || !Object.hasOwn(section, name)) return {};
  const found = section[name];
  return isConfig(found) ? found : {};
}

/** Throws LABORO_BAD_INPUT where a setting that laboro knows is not what it must be. */
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

const MAX_HEARTBEAT = 3_600_000;

export function readSettings(config: Config, at = "config: "): Settings {
  const read = <T>(name: string, how: (value: unknown, what: string) => T): T | undefined =>
    input.optional(Object.hasOwn(config, name) ? config[name] : undefined, `${at}${name}`, how);
  const texts = (most: number) => (value: unknown, what: string) => input.list(listed(value), what, most, input.text);
  return input.definedOnly({
    heartbeatMs: read("heartbeat_interval", (value, what) => input.integer(value, what, 50, MAX_HEARTBEAT)),
    environment: read("environment", readEnvironment),
    tags: read("tags", texts(1024)),
    slots: read("slots", (value, what) => input.integer(value, what, 1, 100_000)),
    services: read("services", texts(1024)),
    brokers: read("brokers", (value, what) => input.list(listed(value), what, 1000, readBrokerAddress)),
    switchBack: read("switch_back", input.flag),
    clockTolerance: read("clock_tolerance", (value, what) => input.integer(value, what, 1, Number.MAX_SAFE_INTEGER)),
  });
}

/** A list of one, as a person writes it in a format that has no lists. */
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
