/** `laboro scale0 worker`: programs as services of a Scale0 broker, in the foreground. */
import { rmSync } from "node:fs";
import { hostname } from "node:os";
import { join, resolve } from "node:path";
import { Command, Option } from "commander";
import { now } from "../../../base/clock.js";
import { badInput } from "../../../base/errors.js";
import { openPrivateDirectory } from "../../../base/files/private-directory.js";
import { dataDirectory } from "../../../client/find-broker.js";
import { joined } from "../../../protocols/scale0/frames.js";
import { type Scale0Handler, startScale0Worker } from "../../../protocols/scale0/worker/worker.js";
import {
  openPrograms,
  type Programs,
  SERVICE_MODES,
  type ServiceMode,
  type ServiceProgram,
} from "../../../worker/programs/index.js";
import { parseDuration } from "../../lib/duration.js";
import { logger, onStopSignal } from "../../lib/long-running.js";
import { collect, parseWholeNumber } from "../../lib/option-parsers.js";
import { printLines } from "../../lib/print.js";
import { CURVE_HELP, connectTimeout, curveOf, withRemedy } from "./options.js";

interface Options {
  readonly broker?: string;
  readonly service: readonly string[];
  readonly serviceMode: ServiceMode;
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
      "Run a worker of a Scale0 broker: each service is a program that reads the request and writes the answer. " +
        "Where no broker answers at the start it ends with exit code 3.",
    )
    .option("--broker <url>", `the broker's worker port (default: the one in --config-cache, else ${DEFAULT_BROKER})`)
    .option("--service <name=command>", "offer a program as a service; may be repeated", collect, [])
    .addOption(
      new Option("--service-mode <mode>", "start it for each request, or keep it and speak in lines or by length")
        .choices(SERVICE_MODES)
        .default("once"),
    )
    .option("--slots <n>", "requests at one time", parseWholeNumber, 1)
    .option("--name <name>", "its identity (default: this host and the process number)")
    .option("--data <dir>", "the data directory (default: $LABORO_DATA, ~/.local/share/laboro)")
    .option("--dir <dir>", "for the bodies of requests under way (default: scale0/NAME in the data directory)")
    .option("--heartbeat <duration>", "longer than the config says", parseDuration)
    .option("--config-cache <file>", "keep the last config there, and find another broker of the group by it")
    .option("--keep-trying", "go on where no broker answers at the start")
    .addOption(connectTimeout())
    .option("--curve <file>", CURVE_HELP)
    .addHelpText("after", EXAMPLES)
    .action(run);
}

const EXAMPLES = `
Examples:
  laboro scale0 worker --service upper='tr a-z A-Z'
  laboro scale0 worker --broker tcp://head:8081 --service resize='convert - -resize 50% -' --slots 4 --config-cache ~/.scale0.json`;

async function run(options: Options): Promise<void> {
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
  const programs = programsOf(options);
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

function programsOf({ service, serviceMode }: Options): Record<string, ServiceProgram> {
  if (service.length === 0) throw badInput("nothing to offer: give --service NAME='COMMAND'");
  const programs: Record<string, ServiceProgram> = {};
  for (const text of service) {
    const [, name, command] = /^([^\s=,]+)=(.*\S.*)$/s.exec(text) ?? [];
    if (name === undefined || command === undefined) throw badInput(`--service: expected NAME='COMMAND', got ${text}`);
    programs[name] = { command, mode: serviceMode };
  }
  return programs;
}

/** A program knows one message: several frames come as one. */
function handlersOf({ handlers }: Programs): Record<string, Scale0Handler> {
  return Object.fromEntries(
    Object.entries(handlers).map(([name, handler]): [string, Scale0Handler] => [
      name,
      async (body, { signal }) => (await handler(joined(body), { signal })) ?? "",
    ]),
  );
}
