/** `laboro worker`: a worker in the foreground. */
import { availableParallelism, hostname } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { Command, Option } from "commander";
import { now } from "../../base/clock.js";
import { badInput, LaboroError } from "../../base/errors.js";
import { openPrivateDirectory, refuseForeignDirectory } from "../../base/files/private-directory.js";
import { dataDirectory, findBroker } from "../../client/find-broker.js";
import { definedOnly } from "../../model/input.js";
import { parseAddress, resolveForemanUrl } from "../../protocols/fuq/worker/foreman-http.js";
import type { ForemanEndpoint } from "../../protocols/fuq/worker/index.js";
import type { BrokerAccess } from "../../protocols/laboro/broker-address.js";
import { type StopReason, startWorker, type Worker } from "../../worker/index.js";
import { logger, notifySystemd, onStopSignal } from "../lib/long-running.js";
import {
  collect,
  formatDuration,
  type PerCores,
  parseDuration,
  parsePerCores,
  parseResources,
  parseSize,
  wholeNumber,
} from "../lib/option-parsers.js";
import { printLines, printNotice } from "../lib/print.js";
import { programsOf, type ServiceOptions, serviceModeOption, serviceOption } from "../lib/service-options.js";

interface Options extends ServiceOptions {
  readonly join?: string;
  readonly broker?: string;
  readonly data?: string;
  readonly wait: boolean;
  readonly dir?: string;
  readonly name?: string;
  readonly slots: number;
  readonly pool?: string;
  readonly tag: readonly string[];
  readonly resource: readonly string[];
  readonly detect: boolean;
  readonly reserveRequests?: number;
  readonly minMemory?: number;
  readonly maxLoad?: PerCores;
  readonly lifetime?: number;
  readonly lifetimeGrace?: number;
  readonly idleTimeout?: number;
  readonly cancelGrace?: number;
  readonly stopGrace?: number;
  readonly offlineTimeout?: number;
  readonly missingDir?: string;
  readonly tunnels?: string;
  readonly handlers: readonly string[];
  readonly handlerMemory?: number;
  readonly fuq?: string;
  readonly fuqPoll?: boolean;
  readonly fuqCa?: string;
  readonly fuqCertName?: string;
  readonly fuqRaw?: string;
  readonly fuq1?: string;
}

export function worker(): Command {
  return new Command("worker")
    .description("Run a worker: it runs tasks of a broker and answers requests, until it is stopped.")
    .option("--join <@file>", "a file with the broker's join URL (default: $LABORO_BROKER, else access.json)")
    .addOption(new Option("--broker <@file>", "the same as --join").conflicts("join"))
    .option("--data <dir>", "the data directory, with access.json (default: $LABORO_DATA, ~/.local/share/laboro)")
    .option("--no-wait", "exit with 3 if no broker answers at the first try")
    .option(
      "--dir <dir>",
      "directory for the identity and undelivered results of this worker (default: workers/NAME in the data directory)",
    )
    .option("--name <name>", "name of the worker (default: the host name)")
    .option(
      "--slots <n>",
      "how many tasks run at once (default: the number of cores)",
      wholeNumber(4, 1),
      availableParallelism(),
    )
    .option("--pool <name>", "run tasks of this pool only")
    .option("--tag <tag>", "a tag that tasks can require; may be repeated", collect, [])
    .option(
      "--resource <name=amount>",
      "a resource that tasks can require, such as gpu=2; may be repeated",
      collect,
      [],
    )
    .option("--no-detect", "do not offer the GPUs (gpu) and the memory in MiB (mem) that this machine has")
    .option("--reserve-requests <n>", "slots that only requests may use", wholeNumber(2))
    .option("--min-memory <size>", "start no task while less memory than this is available, such as 2G", parseSize)
    .option(
      "--max-load <n>",
      "start no task while this many processes run or are ready to run on the machine: 8, 100% of its cores",
      parsePerCores,
    )
    .option("--lifetime <duration>", "stop gracefully after this time, such as 1h30m or 01:30:00", parseDuration)
    .option("--lifetime-grace <duration>", "then let tasks run on for this long (default: 0s)", parseDuration)
    .option("--idle-timeout <duration>", "stop gracefully after this long without a task", parseDuration)
    .option(
      "--cancel-grace <duration>",
      "time between SIGTERM and SIGKILL for a cancelled task (default: 5s)",
      parseDuration,
    )
    .option(
      "--stop-grace <duration>",
      "time for running tasks to end after SIGTERM (default: 25s) or Ctrl-C (default: no limit); what still runs then " +
        "is stopped and returned. A second signal ends the worker at once",
      parseDuration,
    )
    .option("--offline-timeout <duration>", "stop when no broker has answered for this long", parseDuration)
    .option("--missing-dir <dir>", "where a task runs whose directory does not exist here (default: it fails)")
    .addOption(new Option("--tunnels <dir>", "reach brokers through the Unix sockets in this directory").hideHelp())
    .option("--handlers <file>", "a module with task handlers, which run in threads; may be repeated", collect, [])
    .option(
      "--handler-memory <size>",
      "run handlers in processes instead of threads, each with this much heap, such as 512M: one that needs more fails its " +
        "task alone",
      parseSize,
    )
    .addOption(serviceOption())
    .addOption(serviceModeOption())
    .option(
      "--fuq <url>",
      "work for this fuq foreman: https://PASSWORD@HOST:PORT#CA-FINGERPRINT or @FILE; the password may be in LABORO_FUQ_TOKEN",
    )
    .option("--fuq-poll", "with --fuq: request each task over HTTP instead of using a WebSocket")
    .option("--fuq-ca <file>", "with --fuq: file with the CA of the foreman's certificate")
    .option("--fuq-cert-name <name>", "with --fuq: name in the foreman's certificate, if it differs from the host")
    .option("--fuq-raw <host:port>", "work for this fuq v2 foreman over a raw TCP stream")
    .option("--fuq1 <host:port>", "work for this fuq v1 server")
    .addHelpText("after", EXAMPLES)
    .action(run);
}

const EXAMPLES = `
Examples:
  laboro worker --slots 8 --tag big --resource gpu=2
  laboro worker --join @broker.url --lifetime 55m --idle-timeout 5m
  laboro worker --handlers ./tasks.js --slots 8
  laboro worker --service upper='tr a-z A-Z'`;

async function run(options: Options): Promise<void> {
  const name = options.name ?? hostname();
  if (!/^[\w.:-]+$/.test(name)) throw badInput(`--name: expected letters, digits and . : - _, got ${name}`);
  const dir = options.dir ?? join(dataDirectory(options), "workers", name);
  if (options.dir === undefined) refuseForeignDirectory(dataDirectory(options));
  if (options.fuq !== undefined || options.fuqRaw !== undefined || options.fuq1 !== undefined) {
    rejectNonFuqOptions(options);
    openPrivateDirectory(resolve(dir));
    return runFuqWorker(options, name, dir);
  }
  const resources = parseResources(options.resource);
  const programs = programsOf(options);
  // Ready before it has joined: a machine starts without waiting for its broker.
  notifySystemd("looking for the broker");
  const found = await awaitBroker(options);
  const exitWith = (why: string, code: number): void => {
    printLines(`worker ${name} has stopped: ${why}`);
    process.exit(code);
  };
  const { pool, reserveRequests, minMemory, lifetime, lifetimeGrace, idleTimeout, cancelGrace, missingDir, tunnels } =
    options;
  let everJoined = false;
  let offlineSince = now();
  /** A message says already that no broker answers. */
  let reportedUnreachable = false;
  const started = startWorker({
    broker: found.urls,
    token: found.token,
    ...(found.caFingerprint === undefined ? {} : { caFingerprint: found.caFingerprint }),
    ...{ dir, name, resources, programs },
    detect: options.detect,
    slots: options.slots,
    tags: options.tag,
    log: logger(),
    ...definedOnly({ pool, reserveRequests, minMemory }),
    ...(options.maxLoad === undefined ? {} : { maxLoad: options.maxLoad(availableParallelism()) }),
    ...definedOnly({
      lifetimeMs: lifetime,
      lifetimeGraceMs: lifetimeGrace,
      idleTimeoutMs: idleTimeout,
      cancelGraceMs: cancelGrace,
      missingDir,
      tunnels,
    }),
    onJoined: () => {
      if (!everJoined || reportedUnreachable) printLines(`worker ${name} has joined`);
      everJoined = true;
      reportedUnreachable = false;
      notifySystemd("joined its broker");
    },
    onRefused: (error) => {
      const why = `the broker refuses it: ${error.message} (${error.code})`;
      // Running tasks are stopped; undelivered results stay for the next start.
      void started.stop({ finish: false }).then(() => exitWith(why, 3));
    },
    onUnreachable: (error) => {
      if (!options.wait && !everJoined) {
        void started.stop({ graceMs: 0 }).then(() => exitWith(`${error.message} (${error.code})`, 3));
        return;
      }
      if (!reportedUnreachable) {
        printNotice(`${error.message}; trying again until it answers`);
        notifySystemd("trying to reach its broker");
        // A round of tries fails soon after the connection has ended.
        if (everJoined) offlineSince = now();
      }
      reportedUnreachable = true;
      const { offlineTimeout = Number.POSITIVE_INFINITY } = options;
      if (now() - offlineSince > offlineTimeout) {
        const why = `no broker has answered for ${formatDuration(offlineTimeout)}`;
        void started.stop({ finish: false }).then(() => exitWith(why, 3));
        return;
      }
      // A restarted broker may use another port.
      const moved = refreshBroker(options);
      if (moved !== undefined) started.setBrokers(moved.urls);
    },
    onStopped: (why) => exitWith(reasonText(why, options), 0),
  });
  // Running tasks may finish: after SIGTERM as long as service managers wait, after Ctrl-C without limit. SIGHUP stops
  // them.
  onStopSignal((signal) => {
    const { stopGrace = signal === "SIGINT" ? Number.POSITIVE_INFINITY : STOP_GRACE_MS } = options;
    const how = signal === "SIGHUP" || stopGrace === 0 ? { finish: false } : { graceMs: stopGrace };
    void started.stop(how).then(() => exitWith(`${signal} came`, 0));
  });
  await loadHandlers(started, options);
}

async function loadHandlers(started: Worker, { handlers, handlerMemory }: Options): Promise<void> {
  const memory = handlerMemory === undefined ? {} : { memoryMb: Math.max(1, Math.round(handlerMemory / MEBIBYTE)) };
  for (const file of handlers) {
    try {
      const names = await started.handle(pathToFileURL(resolve(file)), memory);
      printLines(`${file}: handles ${names.join(", ")}`);
    } catch (cause) {
      await started.stop({ graceMs: 0 });
      throw badInput(`--handlers ${file}: ${cause instanceof Error ? cause.message : String(cause)}`, cause);
    }
  }
}

const MEBIBYTE = 1024 * 1024;

/** Service managers, Kubernetes and Slurm kill a process that has not ended after 30 s. */
const STOP_GRACE_MS = 25_000;

/** Options that a foreman of fuq does not support. */
const NON_FUQ_OPTIONS = [
  "join",
  "broker",
  "pool",
  "reserveRequests",
  "minMemory",
  "maxLoad",
  "lifetime",
  "lifetimeGrace",
  "idleTimeout",
  "stopGrace",
  "offlineTimeout",
  "missingDir",
] as const;

function rejectNonFuqOptions(options: Options): void {
  const lists = (["resource", "handlers", "service"] as const).filter((name) => options[name].length > 0);
  const [name] = [...NON_FUQ_OPTIONS.filter((one) => options[one] !== undefined), ...lists];
  if (name === undefined) return;
  const written = name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
  throw badInput(`--${written} cannot be used with a fuq foreman`);
}

/** Waits until there is an address of a broker. */
async function awaitBroker(options: Options): Promise<BrokerAccess> {
  for (let reported = false; ; reported = true) {
    try {
      return findBroker(brokerLocation(options));
    } catch (cause) {
      if (!options.wait || !isUnreachable(cause)) throw cause;
      if (!reported) printNotice(`${cause.message}; waiting for one`);
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}

function refreshBroker(options: Options): BrokerAccess | undefined {
  try {
    return findBroker(brokerLocation(options));
  } catch (cause) {
    if (cause instanceof LaboroError) return undefined;
    throw cause;
  }
}

const RETRY_MS = 1_000;

/** LABORO_BROKER takes precedence over --data, which also sets the directory of this worker. */
const brokerLocation = ({ join: url, broker = url, data }: Options) =>
  (process.env.LABORO_BROKER ?? "") === "" ? { broker, data } : { broker };

const isUnreachable = (cause: unknown): cause is LaboroError =>
  cause instanceof LaboroError && cause.code === "LABORO_BROKER_UNREACHABLE";

function reasonText(why: StopReason, { lifetime = 0, idleTimeout = 0 }: Options): string {
  if (why === "broker") return "the broker asked for it";
  return why === "lifetime"
    ? `its lifetime of ${formatDuration(lifetime)} is over`
    : `it had nothing to do for ${formatDuration(idleTimeout)}`;
}

/** A worker for a foreman of fuq. */
async function runFuqWorker(options: Options, name: string, dir: string): Promise<void> {
  const { slots, tag, wait, cancelGrace } = options;
  const endpoint = parseForeman(options);
  const { startFuqWorker } = await import("../../protocols/fuq/worker/index.js");
  const exitWith = (why: string, code: number): void => {
    printLines(`worker ${name} has stopped: ${why}`);
    process.exit(code);
  };
  const stopWith = ({ message, code }: LaboroError): void => {
    void worker.stop().then(() => exitWith(`${message} (${code})`, 3));
  };
  notifySystemd("working for a fuq foreman");
  let everJoined = false;
  /** A message says already that the foreman does not answer. */
  let reportedUnreachable = false;
  const worker = startFuqWorker({
    ...{ endpoint, slots, dir },
    node: name,
    tags: tag,
    log: logger(),
    ...(cancelGrace === undefined ? {} : { cancelGraceMs: cancelGrace }),
    onJoined: () => {
      everJoined = true;
      reportedUnreachable = false;
    },
    onRefused: stopWith,
    onUnreachable: (error) => {
      if (!wait && !everJoined) {
        stopWith(error);
        return;
      }
      if (!reportedUnreachable) printNotice(`${error.message}; trying again until it answers`);
      reportedUnreachable = true;
    },
    onStopped: () => exitWith("the foreman asked for it", 0),
  });
  onStopSignal((signal) => {
    void worker.stop({ finish: true }).then(() => exitWith(`${signal} came`, 0));
  });
}

function parseForeman({ fuq, fuqPoll, fuqCa, fuqCertName, fuqRaw, fuq1 }: Options): ForemanEndpoint {
  if ([fuq, fuqRaw, fuq1].filter((given) => given !== undefined).length !== 1) {
    throw badInput("--fuq, --fuq-raw and --fuq1 exclude each other: a worker has one foreman");
  }
  if (fuqRaw !== undefined) return { by: "raw", address: parseAddress(fuqRaw, "--fuq-raw") };
  if (fuq1 !== undefined) return { by: "v1", address: parseAddress(fuq1, "--fuq1") };
  const foreman = resolveForemanUrl({ fuq: fuq ?? "", ca: fuqCa, certificateName: fuqCertName });
  return { by: fuqPoll === true ? "polling" : "websocket", foreman };
}
