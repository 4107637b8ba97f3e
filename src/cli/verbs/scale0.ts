/** `laboro scale0`: the worker and the client of Scale0. */
import { rmSync } from "node:fs";
import { hostname } from "node:os";
import { join, resolve } from "node:path";
import { buffer } from "node:stream/consumers";
import { Command, Option } from "commander";
import { now } from "../../base/clock.js";
import { badInput, LaboroError } from "../../base/errors.js";
import { openPrivateDirectory } from "../../base/files/private-directory.js";
import { readPeerKeys } from "../../broker/access/curve-keys.js";
import { dataDirectory } from "../../client/find-broker.js";
import { joined } from "../../protocols/scale0/frames.js";
import { Scale0Client } from "../../protocols/scale0/worker/client.js";
import { CONNECT_TIMEOUT_MS } from "../../protocols/scale0/worker/link.js";
import { type Scale0Handler, startScale0Worker } from "../../protocols/scale0/worker/worker.js";
import type { CurveClient } from "../../protocols/zeromq/index.js";
import { openPrograms, type Programs } from "../../worker/programs/index.js";
import { logger, onStopSignal } from "../lib/long-running.js";
import { collect, parseDuration, wholeNumber } from "../lib/option-parsers.js";
import { openOutput, printLines } from "../lib/print.js";
import { programsOf, type ServiceOptions, serviceModeOption, serviceOption } from "../lib/service-options.js";

export function scale0(): Command {
  return new Command("scale0")
    .description("Run a Scale0 worker that offers programs as services, or send a request to a Scale0 broker.")
    .usage("worker|request [options]")
    .addCommand(worker())
    .addCommand(request())
    .addHelpText("after", EXAMPLES);
}

const EXAMPLES = `
Examples:
  laboro scale0 worker --service upper='tr a-z A-Z'
  laboro scale0 request upper hello`;

/** `laboro scale0 worker`: programs as services of a Scale0 broker, in the foreground. */
interface WorkerOptions extends ServiceOptions {
  readonly broker?: string;
  readonly slots: number;
  readonly name?: string;
  readonly data?: string;
  readonly dir?: string;
  readonly heartbeat?: number;
  readonly configCache?: string;
  readonly keepTrying?: boolean;
  readonly connectTimeout: number;
  readonly curve?: string;
}

const DEFAULT_BROKER = "tcp://127.0.0.1:8081";
const GRACE_MS = 5_000;

export function worker(): Command {
  return new Command("worker")
    .description(
      "Run a worker of a Scale0 broker: each service is a program that reads the request and writes the reply. " +
        "If no broker answers at the start, it exits with 3.",
    )
    .option("--broker <url>", `the broker's worker port (default: the one in --config-cache, else ${DEFAULT_BROKER})`)
    .addOption(serviceOption())
    .addOption(serviceModeOption())
    .option("--slots <n>", "how many requests run at once", wholeNumber(4), 1)
    .option("--name <name>", "identity of the worker (default: HOST-PID)")
    .option("--data <dir>", "the data directory (default: $LABORO_DATA, ~/.local/share/laboro)")
    .option("--dir <dir>", "directory for the bodies of running requests (default: scale0/NAME in the data directory)")
    .option("--heartbeat <duration>", "time between heartbeats, if longer than in the config", parseDuration)
    .option("--config-cache <file>", "file that keeps the last config, to find another broker of the group")
    .option("--keep-trying", "keep trying if no broker answers at the start")
    .addOption(connectTimeout())
    .option("--curve <file>", CURVE_HELP)
    .addHelpText("after", WORKER_EXAMPLES)
    .action(runWorker);
}

const WORKER_EXAMPLES = `
Examples:
  laboro scale0 worker --service upper='tr a-z A-Z'
  laboro scale0 worker --broker tcp://head:8081 --service resize='convert - -resize 50% -' --slots 4 --config-cache ~/.scale0.json`;

async function runWorker(options: WorkerOptions): Promise<void> {
  const {
    broker,
    slots,
    heartbeat,
    configCache,
    keepTrying = false,
    connectTimeout: connectTimeoutMs,
    curve,
  } = options;
  if (slots < 1) throw badInput("--slots: expected 1 or more");
  if (options.service.length === 0) throw badInput("nothing to offer: give --service NAME='COMMAND'");
  // A Scale0 message may list services as text with commas.
  const programs = programsOf(options, /^([^\s=,]+)=(.*\S.*)$/s);
  const log = logger();
  const identity = options.name ?? `${hostname()}-${process.pid}`;
  if (!/^[\w.:-]+$/.test(identity)) throw badInput("--name: expected letters, digits and . : - _");
  const dir = options.dir ?? join(dataDirectory(options), "scale0", identity);
  openPrivateDirectory(resolve(dir));
  const offered = openPrograms(programs, {
    count: slots,
    dir: join(dir, "requests"),
    env: process.env,
    graceMs: GRACE_MS,
    log,
    now,
  });
  const end = async (): Promise<void> => {
    await offered.close(GRACE_MS);
    if (options.dir === undefined) rmSync(dir, { recursive: true, force: true });
  };
  try {
    const started = startScale0Worker({
      broker,
      defaultBroker: DEFAULT_BROKER,
      identity,
      services: handlersOf(offered),
      slots,
      keepTrying,
      connectTimeoutMs,
      heartbeatMs: heartbeat,
      configCache,
      ...curveOf(curve),
      log,
      onRegistered: (url) => printLines(`worker ${identity} is registered with ${url}`),
    });
    onStopSignal(() => void started.stop(GRACE_MS));
    await started.ended;
    printLines(`worker ${identity} has stopped`);
  } catch (cause) {
    throw withRemedy(cause, "laboro serve --protocol scale0 opens one, and --keep-trying waits for it");
  } finally {
    await end();
  }
}

/** A program reads one message, so several frames are joined. */
function handlersOf({ handlers }: Programs): Record<string, Scale0Handler> {
  return Object.fromEntries(
    Object.entries(handlers).map(([name, handler]): [string, Scale0Handler] => [
      name,
      async (body, { signal }) => (await handler(joined(body), { signal })) ?? "",
    ]),
  );
}

/** `laboro scale0 request`: ask a service of a Scale0 broker. */
interface RequestOptions {
  readonly broker: string;
  readonly other: readonly string[];
  readonly timeout: number;
  readonly retry?: boolean;
  readonly connectTimeout: number;
  readonly curve?: string;
}

export function request(): Command {
  return new Command("request")
    .description(
      "Call a service of a Scale0 broker and print its reply, byte for byte. If it is refused, print the error and exit with 1.",
    )
    .argument("<service>", "name of the service")
    .argument("[body]", "body of the request; - reads it from standard input (default: empty)")
    .option("--broker <url>", "the broker's client port", "tcp://127.0.0.1:8080")
    .option(
      "--other <url>",
      "client port of another broker, used if the first does not answer; may be repeated",
      collect,
      [],
    )
    .addOption(
      new Option("--timeout <duration>", "how long to wait for the reply")
        .argParser(parseDuration)
        .default(30_000, "30s"),
    )
    .option("--retry", "if the worker is lost, send the request to another one; for requests that may run twice")
    .addOption(connectTimeout())
    .option("--curve <file>", CURVE_HELP)
    .addHelpText(
      "after",
      "\nExamples:\n  laboro scale0 request upper hello\n  laboro scale0 request resize - --broker tcp://head:8080 < in.png > out.png",
    )
    .action(runRequest);
}

async function runRequest(service: string, body: string | undefined, options: RequestOptions): Promise<void> {
  const { broker, other, timeout: timeoutMs, connectTimeout: connectTimeoutMs, retry = false, curve } = options;
  const bytes = body === "-" ? await buffer(process.stdin) : Buffer.from(body ?? "");
  const client = new Scale0Client({ broker, others: other, connectTimeoutMs, ...curveOf(curve) });
  try {
    const answer = await client.request(service, bytes, { timeoutMs, retry }).catch((cause: unknown) => {
      if (!(cause instanceof LaboroError) || cause.code !== "LABORO_SERVICE_FAILED") throw cause;
      throw new LaboroError(cause.code, `service ${service}: ${cause.message}`, { cause });
    });
    const write = openOutput(process.stdout);
    for (const frame of answer) write(frame);
  } catch (cause) {
    throw withRemedy(cause, "laboro serve --protocol scale0 opens one");
  } finally {
    await client.close();
  }
}

const CURVE_HELP = "file with CURVE keys, written by laboro keys new NAME; for a broker that requires them";

const connectTimeout = (): Option =>
  new Option("--connect-timeout <duration>", "how long a broker may take to answer a CONNECT")
    .argParser(parseDuration)
    .default(CONNECT_TIMEOUT_MS, `${CONNECT_TIMEOUT_MS / 1000}s`);

const curveOf = (file: string | undefined): { readonly curve?: CurveClient } =>
  file === undefined ? {} : { curve: readPeerKeys(file) };

/** Adds a remedy to the error of an unreachable broker: it differs from that of laboro's own brokers. */
function withRemedy(cause: unknown, remedy: string): unknown {
  if (!(cause instanceof LaboroError) || cause.code !== "LABORO_BROKER_UNREACHABLE") return cause;
  const text = cause.message.includes("CURVE")
    ? "laboro keys list, at the broker, shows the keys that it knows"
    : remedy;
  return new LaboroError(cause.code, `${cause.message}; ${text}`, { cause });
}
