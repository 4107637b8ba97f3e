/** `laboro serve`: a broker in the foreground. */
import { isIP } from "node:net";
import { join, resolve } from "node:path";
import { Command, InvalidArgumentError } from "commander";
import { badInput } from "../../base/errors.js";
import { startFailure, writeFileAtomically } from "../../base/files/durable.js";
import { DEFAULT_PORT, type RunningBroker, type ServerOptions } from "../../broker/options.js";
import { dataDirectory } from "../../client/find-broker.js";
import { startBroker } from "../../server.js";
import { parseDuration } from "../lib/duration.js";
import { logger, onStopSignal } from "../lib/long-running.js";
import { collect } from "../lib/option-parsers.js";
import { printLines, printNotice } from "../lib/print.js";
import { shellQuote } from "../lib/shell-quote.js";
import { parseSize } from "../lib/size.js";
import { resolveStoreUrl } from "../lib/store-url.js";
import { addProtocolOptions, listenerOptions, type ProtocolOptions } from "./serve/protocol-options.js";

interface Options extends ProtocolOptions {
  readonly data?: string;
  readonly listen?: Address;
  readonly advertise: readonly string[];
  readonly keepFor?: number;
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
      "Run a broker. It keeps its jobs in the data directory and goes on where it was when started again. " +
        "It listens on this machine alone unless --listen opens it wider, which is always with TLS and a token.",
    )
    .option("--data <dir>", "the data directory (default: $LABORO_DATA, ~/.local/share/laboro)")
    .option(
      "--listen <addr[:port]>",
      `where to listen; port 0 takes any free one (default: 127.0.0.1:${DEFAULT_PORT})`,
      parseAddress,
    )
    .option("--advertise <host>", "the name by which other machines reach this one; may be repeated", collect, [])
    .option(
      "--heartbeat <duration>",
      "time between heartbeats on a link; three missed ones end it (default: 2s)",
      parseMilliseconds,
    )
    .option(
      "--grace <duration>",
      "how long the tasks of a silent worker are kept for it (default: 30s; 2s if it closed its connection)",
      parseMilliseconds,
    )
    .option(
      "--store <url>",
      "keep jobs in a PostgreSQL database that other brokers share, or @FILE (default: $LABORO_STORE)",
    )
    .option(
      "--lease <duration>",
      "with --store: after so long without a heartbeat the others take over (default: 10s)",
      parseMilliseconds,
    )
    .option("--fallback", "with --store: listen only while no other broker is there")
    .option("--keep-for <duration>", "forget jobs that ended longer ago than this: 30d", parseDuration)
    .option(
      "--keep-size <bytes>",
      "forget the oldest ended jobs while all jobs take more disk space than this: 50G",
      parseSize,
    )
    .option("--standing", "suspend and ban workers that fail too often")
    .option("--allow-network-filesystem", "use a data directory on NFS or the like, at your own risk")
    .option("--verbose", "say more when something fails")
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
    throw badInput("--fallback and --lease are for brokers that share a store, see --store");
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
    ...retentionOf(options),
    ...(options.allowNetworkFilesystem === undefined ? {} : { allowNetworkFilesystem: true }),
    ...(store === undefined ? {} : { store, fallback: options.fallback === true }),
    ...(options.lease === undefined ? {} : { leaseMs: options.lease }),
    onStandby: () => printLines("standing by: it listens when no other broker is there"),
    // A fallback opens later, and a broker of a group may have to open again.
    onOpened: () => {
      if (started !== undefined) announce(started, dir);
    },
    // The store has failed: the next start recovers what was committed.
    onFailed: () => process.exit(1),
  });
  started = broker;
  onStopSignal(() => void broker.stop().then(() => process.exit(0)));
  if (options.fallback === true) return;
  try {
    announce(broker, dir);
  } catch (cause) {
    await broker.stop();
    throw startFailure(cause, "the broker", dir);
  }
}

function announce(broker: RunningBroker, dir: string): void {
  if (broker.portChanged) printNotice(`port ${DEFAULT_PORT} is taken, so another one is used`);
  const file = join(dir, JOIN_FILE);
  const url = broker.joinUrl();
  writeFileAtomically(file, `${url}\n`);
  const clients = join(dir, CLIENT_FILE);
  writeFileAtomically(clients, `${broker.joinUrl("client")}\n`);
  // Not as an argument: everyone on the machine can see those.
  printLines(
    `listening on ${broker.url}`,
    ...broker.listeners.map(({ name, urls }) => `${name} listens on ${urls.join(", ")}`),
    "a worker joins with",
    `  laboro worker --join @${shellQuote(file)}`,
    ...elsewhereLines(url),
    `the other verbs find it by themselves here, and elsewhere with what is in ${clients}`,
    "  laboro status --broker @client.url",
  );
}

/** The token is shown to a person at a terminal. Other output may be kept in a log that others read. */
function elsewhereLines(url: string): readonly string[] {
  if (process.stdout.isTTY !== true) return ["where it can read that file, or a copy of it"];
  return ["where it can read that file, and otherwise with", `  LABORO_BROKER=${shellQuote(url)} laboro worker`];
}

/** ADDRESS, ADDRESS:PORT, [V6]:PORT or a bare address of version 6. */
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

function retentionOf({ keepFor, keepSize }: Options): Pick<ServerOptions, "retention"> {
  if (keepFor === undefined && keepSize === undefined) return {};
  return {
    retention: {
      ...(keepFor === undefined ? {} : { keepForMs: keepFor }),
      ...(keepSize === undefined ? {} : { keepBytes: keepSize }),
    },
  };
}

/** A bare number is milliseconds. */
function parseMilliseconds(text: string): number {
  return /^\d+$/.test(text) ? Number(text) : parseDuration(text);
}
