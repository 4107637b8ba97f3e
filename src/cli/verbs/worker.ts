/** `laboro worker`: a worker in the foreground. */
import { availableParallelism, hostname } from "node:os";
import { join, resolve } from "node:path";
import { Command, Option } from "commander";
import { badInput, LaboroError } from "../../base/errors.js";
import { openPrivateDirectory, refuseForeignDirectory } from "../../base/files/private-directory.js";
import { type BrokerAccess, dataDirectory, findBroker } from "../../client/find-broker.js";
import {
  SERVICE_MODES,
  type ServiceMode,
  type ServiceProgram,
  type StopReason,
  startWorker,
} from "../../worker/index.js";
import { formatDuration, parseDuration } from "../lib/duration.js";
import { logger, onStopSignal } from "../lib/long-running.js";
import { collect, parsePositive, parseWholeNumber } from "../lib/option-parsers.js";
import { printLines, printNotice } from "../lib/print.js";
import { parseSize } from "../lib/size.js";
import type { FuqOptions } from "./worker/fuq-worker.js";

interface Options extends FuqOptions {
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
  readonly reserveRequests?: number;
  readonly minMemory?: number;
  readonly lifetime?: number;
  readonly idleTimeout?: number;
  readonly cancelGrace?: number;
  readonly service: readonly string[];
  readonly serviceMode: ServiceMode;
}

export function worker(): Command {
  return new Command("worker")
    .description("Run a worker: it does the tasks of a broker and answers requests, until it is stopped.")
    .option("--join <@file>", "a file with the broker's join URL (default: $LABORO_BROKER, else access.json)")
    .addOption(new Option("--broker <@file>", "the same as --join").conflicts("join"))
    .option("--data <dir>", "where access.json is (default: LABORO_DATA, or ~/.local/share/laboro)")
    .option("--no-wait", "end with code 3 if no broker answers at the first try")
    .option(
      "--dir <dir>",
      "where this worker keeps its identity and undelivered results (default: workers/NAME in the data directory)",
    )
    .option("--name <name>", "what people call it (default: this host)")
    .option("--slots <n>", "how many tasks at once (default: one a processor)", parsePositive, availableParallelism())
    .option("--pool <name>", "take work of this pool only")
    .option("--tag <tag>", "a tag that tasks may ask for; may be repeated", collect, [])
    .option("--resource <name=amount>", "what else it has, as gpu=2; may be repeated", collect, [])
    .option("--reserve-requests <n>", "slots that only requests may use", parseWholeNumber)
    .option("--min-memory <size>", "start no task while less memory is available, as 2G", parseSize)
    .option("--lifetime <duration>", "stop gracefully after this time, as 1h30m or 01:30:00", parseDuration)
    .option("--idle-timeout <duration>", "stop gracefully after being idle for so long", parseDuration)
    .option("--cancel-grace <duration>", "between SIGTERM and SIGKILL (default: 5s)", parseDuration)
    .option("--service <name=command>", "offer a program as a service; may be repeated", collect, [])
    .addOption(
      new Option("--service-mode <mode>", "start it for each request, or keep it and speak in lines or by length")
        .choices(SERVICE_MODES)
        .default("once"),
    )
    .option(
      "--fuq <url>",
      "work for a foreman of fuq: https://PASSWORD@HOST:PORT#CA-FINGERPRINT or @FILE; the password may be in LABORO_FUQ_TOKEN",
    )
    .option("--fuq-poll", "ask that foreman for each task over HTTP, instead of by its WebSocket")
    .option("--fuq-ca <file>", "the CA that has signed that foreman's certificate")
    .option("--fuq-cert-name <name>", "the name in that foreman's certificate, where it is not the host's")
    .option("--fuq-raw <host:port>", "work for a foreman of fuq v2 on a raw stream")
    .option("--fuq1 <host:port>", "work for a server of fuq v1")
    .addHelpText("after", EXAMPLES)
    .action(run);
}

const EXAMPLES = `
Examples:
  laboro worker --slots 8 --tag big --resource gpu=2
  laboro worker --join @broker.url --lifetime 55m --idle-timeout 5m
  laboro worker --service upper='tr a-z A-Z'`;

async function run(options: Options): Promise<void> {
  const name = options.name ?? hostname();
  if (!/^[\w.:-]+$/.test(name)) throw badOption("--name", "letters, digits and . : - _", name);
  const dir = options.dir ?? join(dataDirectory(options), "workers", name);
  if (options.dir === undefined) refuseForeignDirectory(dataDirectory(options));
  if (options.fuq !== undefined || options.fuqRaw !== undefined || options.fuq1 !== undefined) {
    rejectNonFuqOptions(options);
    openPrivateDirectory(resolve(dir));
    const { runFuqWorker } = await import("./worker/fuq-worker.js");
    runFuqWorker({ ...options, name, dir });
    return;
  }
  const resources = resourcesOf(options.resource);
  const programs = programsOf(options.service, options.serviceMode);
  const found = await awaitBroker(options);
  openPrivateDirectory(resolve(dir));
  const exitWith = (why: string, code: number): void => {
    printLines(`worker ${name} has stopped: ${why}`);
    process.exit(code);
  };
  const { pool, reserveRequests, minMemory, lifetime, idleTimeout, cancelGrace } = options;
  let everJoined = false;
  /** Reported that no broker answers, since one last did. */
  let reportedUnreachable = false;
  const started = startWorker({
    broker: found.urls,
    token: found.token,
    ...(found.caFingerprint === undefined ? {} : { caFingerprint: found.caFingerprint }),
    ...{ dir, name, resources, programs },
    slots: options.slots,
    tags: options.tag,
    log: logger(),
    ...(pool === undefined ? {} : { pool }),
    ...(reserveRequests === undefined ? {} : { reserveRequests }),
    ...(minMemory === undefined ? {} : { minMemory }),
    ...(lifetime === undefined ? {} : { lifetimeMs: lifetime }),
    ...(idleTimeout === undefined ? {} : { idleTimeoutMs: idleTimeout }),
    ...(cancelGrace === undefined ? {} : { cancelGraceMs: cancelGrace }),
    onJoined: () => {
      everJoined = true;
      reportedUnreachable = false;
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
      if (!reportedUnreachable) printNotice(`${error.message}; it is tried again until it answers`);
      reportedUnreachable = true;
      // A broker that was started again may be at another port.
      const moved = refreshBroker(options);
      if (moved !== undefined) started.setBrokers(moved.urls);
    },
    onStopped: (why) => exitWith(reasonText(why, options), 0),
  });
  // Ctrl-C lets tasks end. SIGTERM (the machine shuts down) and SIGHUP (the terminal is closed) stop and return them.
  onStopSignal((signal) => {
    const how = signal === "SIGINT" ? { graceMs: Number.POSITIVE_INFINITY } : { finish: false };
    void started.stop(how).then(() => exitWith(`${signal} came`, 0));
  });
}

/** Options that a foreman of fuq does not support. */
const NON_FUQ_OPTIONS = ["join", "broker", "pool", "reserveRequests", "minMemory", "lifetime", "idleTimeout"] as const;

function rejectNonFuqOptions(options: Options): void {
  const lists = (["resource", "service"] as const).filter((name) => options[name].length > 0);
  const [name] = [...NON_FUQ_OPTIONS.filter((one) => options[one] !== undefined), ...lists];
  if (name === undefined) return;
  const written = name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
  throw badInput(`--${written} does not go with a foreman of fuq`);
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

/** LABORO_BROKER comes before --data, which also says where this worker's directory is. */
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

function resourcesOf(given: readonly string[]): Record<string, number> {
  const resources: Record<string, number> = {};
  for (const text of given) {
    const [, name, amount] = /^([\w-]+)=(\d+(?:\.\d+)?)$/.exec(text) ?? [];
    if (name === undefined || amount === undefined || name === "slots")
      throw badOption("--resource", "NAME=AMOUNT", text);
    resources[name] = Number(amount);
  }
  return resources;
}

function programsOf(given: readonly string[], mode: ServiceMode): Record<string, ServiceProgram> {
  const programs: Record<string, ServiceProgram> = {};
  for (const text of given) {
    const [, name, command] = /^([^\s=]+)=(.*\S.*)$/s.exec(text) ?? [];
    if (name === undefined || command === undefined) throw badOption("--service", "NAME='COMMAND'", text);
    programs[name] = { command, mode };
  }
  return programs;
}

const badOption = (option: string, expected: string, got: string): LaboroError =>
  badInput(`${option}: expected ${expected}, got ${got}`);
