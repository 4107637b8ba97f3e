/** `laboro rr`: the three programs of the round-robin queue, each with its console. */
import { Argument, Command, InvalidArgumentError, Option } from "commander";
import { badInput } from "../../base/errors.js";
import { collect } from "../lib/option-parsers.js";

const PROGRAMS = ["server", "worker", "client"] as const;
type Program = (typeof PROGRAMS)[number];

const DEFAULT_URL = "tcp://127.0.0.1:6714";

interface Options {
  readonly debug: number;
  readonly script?: string;
  readonly connect: string;
  readonly keys?: string;
  readonly bind: string;
  readonly identity: readonly string[];
  readonly data?: string;
  readonly insecure?: boolean;
}

/** Options that only some of the programs take. */
const OPTION_PROGRAMS: Readonly<Record<string, readonly Program[]>> = {
  bind: ["server"],
  identity: ["server"],
  data: ["server"],
  insecure: ["server"],
  connect: ["worker", "client"],
  keys: ["worker", "client"],
};

export function rr(): Command {
  const command = new Command("rr")
    .description(
      "Run the server, a worker or a client of the round-robin queue, with a console. The server is a broker of its own. Each of them also works with the original programs.",
    )
    .addArgument(new Argument("<program>", "the program to run").choices(PROGRAMS))
    .requiredOption(
      "-d, --debug <level>",
      "0: errors, 1: events, 5: summaries, 10: every message; up to 20",
      parseLevel,
    )
    .option("--script <file>", "read commands from a file instead of standard input")
    .option("--connect <url>", "worker, client: URL of the server, exactly as in its --bind or --identity", DEFAULT_URL)
    .option("--keys <file>", "worker, client: file with CURVE keys, written by laboro keys new")
    .option("--bind <url>", "server: where to listen", DEFAULT_URL)
    .addOption(
      new Option("--identity <url>", "server: URL that peers connect to, if it differs from --bind; may be repeated")
        .argParser(collect)
        .default([]),
    )
    .option(
      "--data <dir>",
      "server: directory that keeps the registered workers for the next start (default: not kept)",
    )
    .option("--insecure", "server: accept other machines, although the protocol has no authentication")
    .addHelpText("after", HELP)
    .action((program: Program, options: Options) => perform(program, options, command));
  return command;
}

const HELP = `
Commands of the consoles:
  server  workers, quit
  worker  register, deregister, bulk (ten workers in all, ten slots each), endbulk, quit
  client  ping, pingt (tracked), data, bulkping N, bulkdata N, quit
A console also ends at the end of its input. The exit code is 1 if something failed.

Examples:
  laboro rr server -d 1
  laboro rr worker -d 1 --connect tcp://127.0.0.1:6714
  echo 'bulkping 100' | laboro rr client -d 0`;

async function perform(program: Program, options: Options, command: Command): Promise<void> {
  for (const [option, takers] of Object.entries(OPTION_PROGRAMS)) {
    if (takers.includes(program) || command.getOptionValueSource(option) !== "cli") continue;
    throw badInput(`--${option} is for ${takers.join(" and ")}, not for ${program}`);
  }
  const failures = await run(program, options);
  if (failures > 0) process.exitCode = 1;
}

async function run(program: Program, options: Options): Promise<number> {
  const { debug: level, connect: url, bind, identity, data, script, keys, insecure = false } = options;
  if (program === "server") {
    const settings = identity.length === 0 ? {} : { identities: identity };
    return (await import("./rr/programs.js")).runServerConsole({ bind, level, insecure, settings, data, script });
  }
  const { readPeerKeys } = await import("../../broker/access/curve-keys.js");
  const consoleOptions = { url, level, script, curve: keys === undefined ? undefined : readPeerKeys(keys) };
  return program === "worker"
    ? (await import("./rr/programs.js")).runWorkerConsole(consoleOptions)
    : (await import("./rr/programs.js")).runClientConsole(consoleOptions);
}

function parseLevel(text: string): number {
  const level = Number(text);
  if (/^\d+$/.test(text) && level <= 20) return level;
  throw new InvalidArgumentError("expected a number from 0 to 20");
}
