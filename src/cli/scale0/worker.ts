/** `laboro scale0 worker`: programs as services of a Scale0 broker, in the foreground. */
import { mkdirSync, rmSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { Command, Option } from "commander";
import { now } from "../../broker/clock.js";
import { dataDirectory } from "../../client/find-broker.js";
import { LaboroError } from "../../model/errors.js";
import { CONFIG_TYPES, configTypeOf } from "../../protocols/scale0/config-formats.js";
import { joined } from "../../protocols/scale0/parts.js";
import { type Scale0Handler, startScale0Worker } from "../../protocols/scale0/worker.js";
import {
  openPrograms,
  type Programs,
  SERVICE_MODES,
  type ServiceMode,
  type ServiceProgram,
} from "../../worker/programs/index.js";
import { parseDuration } from "../duration.js";
import { collect, logger, onSignals, wholeNumber } from "../options.js";
import { say } from "../print.js";
import { CURVE_HELP, connectTimeout, curveOf, explained } from "./options.js";

interface Options {
  readonly broker?: string;
  readonly service: readonly string[];
  readonly serviceMode: ServiceMode;
  readonly slots: number;
  readonly name?: string;
  readonly data?: string;
  readonly dir?: string;
  readonly configType: string;
  readonly heartbeat?: number;
  readonly remember?: string;
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
    .option("--broker <url>", `the broker's worker port (default: what is remembered, else ${DEFAULT_BROKER})`)
    .option("--service <name=command>", "offer a program as a service; may be repeated", collect, [])
    .addOption(
      new Option("--service-mode <mode>", "start it for each request, or keep it and speak in lines or by length")
        .choices(SERVICE_MODES)
        .default("once"),
    )
    .option("--slots <n>", "requests at one time", wholeNumber, 1)
    .option("--name <name>", "its identity (default: this host and the process number)")
    .option("--data <dir>", "the data directory (default: $LABORO_DATA, ~/.local/share/laboro)")
    .option("--dir <dir>", "for the bodies of requests under way (default: scale0/NAME in the data directory)")
    .addOption(
      new Option("--config-type <type>", "the format in which it asks for its config")
        .choices(CONFIG_TYPES.map((type) => type.toLowerCase()))
        .default("json"),
    )
    .option("--heartbeat <duration>", "longer than the config says", parseDuration)
    .option("--remember <file>", "keep the last config there, and find another broker of the group by it")
    .option("--keep-trying", "go on where no broker answers at the start")
    .addOption(connectTimeout())
    .option("--curve <file>", CURVE_HELP)
    .addHelpText("after", EXAMPLES)
    .action(run);
}

const EXAMPLES = `
Examples:
  laboro scale0 worker --service upper='tr a-z A-Z'
  laboro scale0 worker --broker tcp://head:8081 --service resize='convert - -resize 50% -' --slots 4 --remember ~/.scale0.json`;

async function run(options: Options): Promise<void> {
  const { broker, slots, heartbeat, remember, keepTrying = false, connectTimeout: connectMs, curve } = options;
  if (slots < 1) throw bad("--slots: expected 1 or more");
  const programs = programsOf(options);
  const log = logger();
  const named = options.name ?? `${hostname()}-${process.pid}`;
  if (!/^[\w.:-]+$/.test(named)) throw bad("--name: expected letters, digits and . : - _");
  const dir = options.dir ?? join(dataDirectory(options), "scale0", named);
  mkdirSync(dir, { recursive: true, mode: 0o700 });
  const offered = openPrograms(programs, {
    count: slots,
    dir: join(dir, "requests"),
    env: process.env,
    graceMs: GRACE_MS,
    log,
    now,
  });
  const end = async (): Promise<void> => {
    await offered.close();
    if (options.dir === undefined) rmSync(dir, { recursive: true, force: true });
  };
  try {
    const started = await startScale0Worker({
      ...(broker === undefined ? {} : { broker }),
      usual: DEFAULT_BROKER,
      identity: named,
      services: handlersOf(offered),
      slots,
      configType: configTypeOf(options.configType) ?? "JSON",
      keepTrying,
      connectMs,
      ...(heartbeat === undefined ? {} : { heartbeatMs: heartbeat }),
      ...(remember === undefined ? {} : { remember }),
      ...curveOf(curve),
      log,
      onRegistered: (url) => say(`worker ${named} is registered with ${url}`),
    });
    onSignals(() => void started.stop(GRACE_MS));
    await started.ended;
    say(`worker ${named} has stopped`);
  } catch (cause) {
    throw explained(cause, "laboro serve --door scale0 opens one, and --keep-trying waits for it");
  } finally {
    await end();
  }
}

function programsOf({ service, serviceMode }: Options): Record<string, ServiceProgram> {
  if (service.length === 0) throw bad("nothing to offer: give --service NAME='COMMAND'");
  const programs: Record<string, ServiceProgram> = {};
  for (const text of service) {
    const [, name, command] = /^([^\s=,]+)=(.*\S.*)$/s.exec(text) ?? [];
    if (name === undefined || command === undefined) throw bad(`--service: expected NAME='COMMAND', got ${text}`);
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

const bad = (why: string): LaboroError => new LaboroError("LABORO_BAD_INPUT", why);
