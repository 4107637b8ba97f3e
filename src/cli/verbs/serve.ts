/** `laboro serve`: a broker in the foreground. */
import { isIP } from "node:net";
import { join, resolve } from "node:path";
import { Command, InvalidArgumentError } from "commander";
import { asLaboroError, badInput } from "../../base/errors.js";
import { startFailure, writeFileAtomically } from "../../base/files/durable.js";
import { shellWord } from "../../base/format.js";
import {
  LISTENER_NAMES,
  type ListenerRequest,
  type ListenerSettings,
  parseListener,
} from "../../broker/listeners/listener.js";
import { DEFAULT_PORT, type RunningBroker, type ServerOptions } from "../../broker/options.js";
import type { Retention } from "../../broker/retention.js";
import { dataDirectory } from "../../client/find-broker.js";
import { MAX_MS } from "../../model/job.js";
import { startBroker } from "../../server.js";
import { logger, notifySystemd, onStopSignal } from "../lib/long-running.js";
import { collect, formatDuration, parseDuration, parseKeep, parseSize } from "../lib/option-parsers.js";

import { printLines, printNotice } from "../lib/print.js";
import { resolveStoreUrl } from "../lib/store-url.js";

interface Options extends ProtocolOptions {
  readonly data?: string;
  readonly listen?: Address;
  readonly advertise: readonly string[];
  readonly keep?: number;
  readonly keepFailed?: number;
  readonly keepSize?: number;
  readonly standing?: boolean;
  readonly allowNetworkFilesystem?: boolean;
  readonly store?: string;
  readonly lease?: number;
  readonly fallback?: boolean;
  readonly heartbeat?: number;
  readonly grace?: number;
}

interface Address {
  readonly host: string;
  /** Absent if none was given: then a free port is used if the default is taken. */
  readonly port?: number;
}

/** Files with the join URLs of workers and of clients. */
const JOIN_FILE = "join.url";
const CLIENT_FILE = "client.url";

export function serve(): Command {
  const command = new Command("serve")
    .description(
      "Run a broker. It keeps its jobs in the data directory and continues with them after a restart. " +
        "It listens on loopback only, unless --listen names another address. There it uses TLS and tokens.",
    )
    .option("--data <dir>", "the data directory (default: $LABORO_DATA, ~/.local/share/laboro)")
    .option(
      "--listen <addr[:port]>",
      `address to listen on; port 0 is any free port (default: 127.0.0.1:${DEFAULT_PORT})`,
      parseAddress,
    )
    .option(
      "--advertise <host>",
      "name or address by which other machines reach this one; may be repeated",
      collect,
      [],
    )
    .option(
      "--heartbeat <duration>",
      "time between heartbeats of a connection; three missed ones close it (default: 2s)",
      parseMilliseconds,
    )
    .option(
      "--grace <duration>",
      "how long a disconnected worker keeps its tasks (default: 30s; 2s if it closed the connection)",
      parseMilliseconds,
    )
    .option(
      "--store <url>",
      "keep jobs in this PostgreSQL database, which other brokers may share; @FILE reads the URL (default: $LABORO_STORE)",
    )
    .option(
      "--lease <duration>",
      "with --store: other brokers take over after this long without a heartbeat (default: 10s)",
      parseMilliseconds,
    )
    .option("--fallback", "with --store: listen only while no other broker runs")
    .option(
      "--keep <duration>",
      "delete jobs that ended longer ago than this, unless their submission says otherwise; none keeps them (default: 30d)",
      parseKeep,
    )
    .option("--keep-failed <duration>", "the same for jobs that did not succeed (default: 90d, or --keep)", parseKeep)
    .option(
      "--keep-size <bytes>",
      "delete the oldest ended jobs while jobs take more disk space than this: 50G",
      parseSize,
    )
    .option("--standing", "suspend and ban workers that fail too often")
    .option("--allow-network-filesystem", "accept a data directory on a network file system, at your own risk")
    .option("--verbose", "print details of failures")
    .addHelpText(
      "after",
      "\nExamples:\n  laboro serve\n  laboro serve --listen 0.0.0.0 --advertise head.cluster\n  laboro serve --data ./broker --listen 127.0.0.1:0",
    )
    .action(run);
  return addProtocolOptions(command);
}

async function run(options: Options): Promise<void> {
  const dir = resolve(dataDirectory({ data: options.data }));
  const { listen, advertise, heartbeat, grace } = options;
  const store = resolveStoreUrl(options.store);
  if (store === undefined && (options.fallback === true || options.lease !== undefined)) {
    throw badInput("--fallback and --lease need --store: they are for brokers that share a store");
  }
  let started: RunningBroker | undefined;
  const broker = await startBroker({
    dir,
    ...listen,
    advertise,
    log: logger(),
    ...(heartbeat === undefined ? {} : { heartbeatMs: heartbeat }),
    settings: { ...(grace === undefined ? {} : { graceMs: grace }), standing: options.standing === true },
    ...(await listenerOptions(options, dir)),
    retention: retentionOf(options),
    ...(options.allowNetworkFilesystem === undefined ? {} : { allowNetworkFilesystem: true }),
    ...(store === undefined ? {} : { store, fallback: options.fallback === true }),
    ...(options.lease === undefined ? {} : { leaseMs: options.lease }),
    onStandby: () => {
      printLines("standing by: it listens when no other broker runs");
      notifySystemd("standing by");
    },
    // A fallback opens later, and a broker of a group may open again.
    onOpened: () => {
      if (started !== undefined) announce(started, dir, options);
    },
    // The store has failed. The next start recovers the committed state.
    onFailed: () => process.exit(1),
  });
  started = broker;
  onStopSignal((signal) => {
    void broker.stop().then(() => {
      printLines(`the broker has stopped: ${signal} came`);
      process.exit(0);
    });
  });
  if (options.fallback === true) return;
  try {
    announce(broker, dir, options);
  } catch (cause) {
    await broker.stop();
    throw startFailure(cause, "the broker", dir);
  }
}

function announce(broker: RunningBroker, dir: string, options: Options): void {
  if (broker.portChanged) printNotice(`port ${DEFAULT_PORT} is in use, so another one is used`);
  const file = join(dir, JOIN_FILE);
  const url = broker.joinUrl();
  writeFileAtomically(file, `${url}\n`);
  const clients = join(dir, CLIENT_FILE);
  writeFileAtomically(clients, `${broker.joinUrl("client")}\n`);
  const here = options.data === undefined ? "by themselves" : `with --data ${shellWord(dir)}`;
  // Not as an argument, because every user of the machine can see arguments.
  printLines(
    `listening on ${broker.url}`,
    ...broker.listeners.map(({ name, urls }) => `${name} listens on ${urls.join(", ")}`),
    "a worker joins with",
    `  laboro worker --join @${shellWord(file)}`,
    ...elsewhereLines(url),
    `on this machine, the other verbs find it ${here}; elsewhere they need the URL in ${clients}`,
    "  laboro status --broker @client.url",
    retentionLine(retentionOf(options)),
  );
  notifySystemd(`listening on ${broker.url}`);
}

/** The token is shown to a person at a terminal. Other output may be kept in a log that others read. */
function elsewhereLines(url: string): readonly string[] {
  if (process.stdout.isTTY !== true) return ["where it can read that file, or a copy of it"];
  return ["where it can read that file, and otherwise with", `  LABORO_BROKER=${shellWord(url)} laboro worker`];
}

/** ADDRESS, ADDRESS:PORT, [IPV6]:PORT or a bare IPv6 address. */
function parseAddress(text: string): Address {
  if (isIP(text) === 6) return { host: text };
  const found = /^(?:\[(?<v6>[^\]]+)\]|(?<host>[^:[\]]+))(?::(?<port>\d{1,5}))?$/.exec(text);
  const host = found?.groups?.v6 ?? found?.groups?.host;
  const port = found?.groups?.port;
  if (host === undefined || Number(port ?? 0) > 65_535) {
    throw new InvalidArgumentError("expected ADDRESS or ADDRESS:PORT");
  }
  return port === undefined ? { host } : { host, port: Number(port) };
}

const DAY_MS = 86_400_000;

function retentionOf({ keep: given, keepFailed, keepSize }: Options): Retention {
  const keep = given ?? 30 * DAY_MS;
  const failed = keepFailed ?? given ?? 90 * DAY_MS;
  return {
    ...(keep === MAX_MS ? {} : { keepMs: keep }),
    ...(failed === MAX_MS ? {} : { keepFailedMs: failed }),
    ...(keepSize === undefined ? {} : { keepBytes: keepSize }),
  };
}

/** Printed at the start, because old results will be removed. */
function retentionLine({ keepMs, keepFailedMs }: Retention): string {
  const text = (ms: number | undefined): string => (ms === undefined ? "for ever" : `for ${formatDuration(ms)}`);
  return `ended jobs are kept ${text(keepMs)}, those that did not succeed ${text(keepFailedMs)} (--keep, --keep-failed)`;
}

/** A bare number is milliseconds. */
function parseMilliseconds(text: string): number {
  return /^\d+$/.test(text) ? Number(text) : parseDuration(text);
}

interface ProtocolOptions {
  readonly protocol: readonly ListenerRequest[];
  readonly pool: readonly string[];
  readonly insecure?: boolean;
  readonly curve?: boolean;
  readonly identity: readonly string[];
  readonly rrService: Readonly<Record<string, string>>;
  readonly rrTimeout?: number;
}

function addProtocolOptions(command: Command): Command {
  return command
    .option(
      "--protocol <name[=addr[:port,…]]>",
      `accept peers of another protocol: ${LISTENER_NAMES.join(", ")} or all; may be repeated`,
      collectProtocols,
      [],
    )
    .option(
      "--pool <[protocol=]name>",
      "pool of the workers that connect by these protocols, or by this one; may be repeated",
      collect,
      [],
    )
    .option("--insecure", "accept other machines by protocols that have no authentication")
    .option("--curve", "round-robin, scale0: accept only peers with a CURVE key (laboro keys)")
    .option(
      "--identity <url>",
      "round-robin: URL that peers connect to, if it differs from the address; may be repeated",
      collect,
      [],
    )
    .option(
      "--rr-service <command=service>",
      "round-robin: serve a command, given by name or as 0x0b, by this service; may be repeated",
      collectServices,
      {},
    )
    .option("--rr-timeout <duration>", "round-robin: how long a request may take", parseDuration);
}

/** `dir`: the data directory, which has the CURVE keys. */
async function listenerOptions(
  options: ProtocolOptions,
  dir: string,
): Promise<Pick<ServerOptions, "listeners" | "insecure" | "listenerSettings">> {
  const { protocol, pool, insecure = false } = options;
  return { listeners: assignPools(protocol, pool), insecure, listenerSettings: await listenerSettings(options, dir) };
}

async function listenerSettings(options: ProtocolOptions, dir: string): Promise<ListenerSettings> {
  const { identity, rrService, rrTimeout, protocol, curve = false } = options;
  const has = (...names: readonly string[]): boolean => protocol.some(({ name }) => names.includes(name));
  if (curve && !has("round-robin", "scale0"))
    throw badInput("--curve is for --protocol round-robin and scale0; other protocols know no keys");
  if (!has("round-robin"))
    for (const [given, option] of [
      [identity.length > 0, "--identity"],
      [Object.keys(rrService).length > 0, "--rr-service"],
      [rrTimeout !== undefined, "--rr-timeout"],
    ] as const)
      if (given) throw badInput(`${option} is for --protocol round-robin`);
  const pool = defaultPool(options.pool);
  return {
    ...(pool === undefined ? {} : { pool }),
    ...(identity.length === 0 ? {} : { identities: identity }),
    ...(Object.keys(rrService).length === 0 ? {} : { services: rrService }),
    ...(rrTimeout === undefined ? {} : { requestTimeoutMs: rrTimeout }),
    ...(curve ? { curve: (await import("../../broker/access/curve-keys.js")).readCurveKeys(dir) } : {}),
  };
}

const defaultPool = (pools: readonly string[]): string | undefined => pools.findLast((pool) => !pool.includes("="));

/** `NAME` is for every protocol, `PROTOCOL=NAME` for one. */
function assignPools(listeners: readonly ListenerRequest[], pools: readonly string[]): readonly ListenerRequest[] {
  for (const pool of pools) {
    const [protocol, name] = pool.split("=", 2);
    if (name === undefined || listeners.some((one) => one.name === protocol)) continue;
    throw badInput(`--pool ${pool}: protocol ${protocol} is not enabled, see --protocol`);
  }
  return listeners.map((listener) => {
    const pool = pools.findLast((one) => one.startsWith(`${listener.name}=`))?.slice(listener.name.length + 1);
    return pool === undefined ? listener : { ...listener, pool };
  });
}

function collectProtocols(text: string, before: readonly ListenerRequest[]): readonly ListenerRequest[] {
  try {
    return [...before, ...parseListener(text)];
  } catch (cause) {
    throw new InvalidArgumentError(asLaboroError(cause).message);
  }
}

function collectServices(text: string, before: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  const [, command, service] = /^([^=]+)=(.+)$/.exec(text) ?? [];
  if (command === undefined || service === undefined) throw new InvalidArgumentError("expected COMMAND=SERVICE");
  return { ...before, [command]: service };
}
