/** `laboro worker`: a worker in the foreground. */
import { mkdirSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { Command } from "commander";
import { readAccess } from "../broker/access.js";
import { LaboroError } from "../model/errors.js";
import { startWorker } from "../worker/index.js";
import { collect, defaultDataDir, logger, onSignals, wholeNumber } from "./options.js";

interface Options {
  readonly data: string;
  readonly dir?: string;
  readonly name?: string;
  readonly slots: number;
  readonly pool?: string;
  readonly tag: readonly string[];
  readonly resource: readonly string[];
  readonly reserveRequests?: number;
}

export function worker(): Command {
  return new Command("worker")
    .description("Run a worker for the broker whose access.json is in the data directory.")
    .option("--data <dir>", "the broker's data directory", defaultDataDir())
    .option(
      "--dir <dir>",
      "where this worker keeps its identity and undelivered results (default: workers/NAME in the data directory)",
    )
    .option("--name <name>", "what people call it (default: this host)")
    .option("--slots <n>", "how many tasks at once", wholeNumber, 1)
    .option("--pool <name>", "take work of this pool only")
    .option("--tag <tag>", "a tag that tasks may ask for; may be repeated", collect, [])
    .option("--resource <name=amount>", "what else it has, as gpu=2; may be repeated", collect, [])
    .option("--reserve-requests <n>", "slots that only requests may use", wholeNumber)
    .addHelpText("after", "\nExample:\n  laboro worker --slots 8 --tag big --resource gpu=2")
    .action(run);
}

async function run(options: Options): Promise<void> {
  const name = options.name ?? hostname();
  if (!/^[\w.:-]+$/.test(name))
    throw new LaboroError("LABORO_BAD_INPUT", `--name: expected letters, digits and . : - _, got ${name}`);
  const dir = options.dir ?? join(options.data, "workers", name);
  const { url, token } = readAccess(options.data);
  mkdirSync(dir, { recursive: true, mode: 0o700 });
  const started = startWorker({
    broker: url,
    token,
    dir,
    name,
    slots: options.slots,
    tags: options.tag,
    resources: resourcesOf(options.resource),
    log: logger(),
    ...(options.pool === undefined ? {} : { pool: options.pool }),
    ...(options.reserveRequests === undefined ? {} : { reserveRequests: options.reserveRequests }),
    onRefused: (error) => {
      console.error(`laboro: ${error.message} (${error.code})`);
      process.exit(3);
    },
    onStopped: () => process.exit(0),
  });
  // Ctrl-C lets tasks end; SIGTERM, as a machine that goes down sends it, stops them and gives them back.
  onSignals((signal) => void started.stop({ finish: signal === "SIGINT" }).then(() => process.exit(0)));
}

function resourcesOf(given: readonly string[]): Record<string, number> {
  const resources: Record<string, number> = {};
  for (const text of given) {
    const [, name, amount] = /^([\w-]+)=(\d+(?:\.\d+)?)$/.exec(text) ?? [];
    if (name === undefined || amount === undefined || name === "slots") {
      throw new LaboroError("LABORO_BAD_INPUT", `--resource: expected NAME=AMOUNT, got ${text}`);
    }
    resources[name] = Number(amount);
  }
  return resources;
}
