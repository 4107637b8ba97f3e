/** `laboro rr`: the three programs of the round-robin queue, each with its console. */
import { readFileSync } from "node:fs";
import { Command, InvalidArgumentError } from "commander";
import { LaboroError } from "../model/errors.js";
import type { CurveClient } from "../protocols/zeromq/index.js";
import { collect } from "./options.js";

const URL = "tcp://127.0.0.1:6714";

interface Common {
  readonly debug: number;
  readonly script?: string;
}

interface PeerOptions extends Common {
  readonly connect: string;
  readonly keys?: string;
}

interface ServerOptions extends Common {
  readonly bind: string;
  readonly identity: readonly string[];
  readonly insecure?: boolean;
}

export function rr(): Command {
  const command = new Command("rr").description(
    "The round-robin queue's server, worker and client, each with a console. Each of them also works with the other two originals.",
  );
  common(command.command("server"))
    .description("A server: a broker of its own that keeps nothing, with the worker table. Commands: workers, quit.")
    .option("--bind <url>", "where to listen", URL)
    .option("--identity <url>", "what peers connect to, where that is not the address; may be repeated", collect, [])
    .option("--insecure", "listen where other machines can reach it, too")
    .action(server);
  peer(command.command("worker"))
    .description("A worker. Commands: register, deregister, bulk (ten workers in all), endbulk, quit.")
    .action(worker);
  peer(command.command("client"))
    .description("A client. Commands: ping, pingt (tracked), data, bulkping N, bulkdata N, quit.")
    .action(client);
  return command.addHelpText(
    "after",
    "\nExamples:\n  laboro rr server -d 1\n  laboro rr worker -d 1 --connect tcp://127.0.0.1:6714\n  echo 'bulkping 100' | laboro rr client -d 0",
  );
}

const common = (command: Command): Command =>
  command
    .requiredOption("-d, --debug <level>", "0 errors only, 1 what happens, 5 summaries, up to 20", parseLevel)
    .option("--script <file>", "read commands from a file instead of standard input");

const peer = (command: Command): Command =>
  common(command)
    .option("--connect <url>", "the server, in the very words by which it calls itself", URL)
    .option("--keys <file>", "CURVE keys, as laboro keys new writes them");

async function server({ bind, debug: level, insecure = false, identity, script }: ServerOptions): Promise<void> {
  const { serverConsole } = await import("./rr/server.js");
  const settings = identity.length === 0 ? {} : { identities: identity };
  ends(await serverConsole({ bind, level, insecure, settings, ...(script === undefined ? {} : { script }) }));
}

async function worker(options: PeerOptions): Promise<void> {
  ends(await (await import("./rr/worker.js")).workerConsole(placeOf(options)));
}

async function client(options: PeerOptions): Promise<void> {
  ends(await (await import("./rr/client.js")).clientConsole(placeOf(options)));
}

function placeOf({ connect: url, debug: level, script, keys }: PeerOptions) {
  return {
    url,
    level,
    ...(script === undefined ? {} : { script }),
    ...(keys === undefined ? {} : { curve: readKeys(keys) }),
  };
}

/** The consoles are tests, too: what failed in them fails. */
function ends(failures: number): void {
  if (failures > 0) process.exitCode = 1;
}

function parseLevel(text: string): number {
  const level = Number(text);
  if (/^\d+$/.test(text) && level <= 20) return level;
  throw new InvalidArgumentError("expected a number from 0 to 20");
}

function readKeys(file: string): CurveClient {
  const { publicKey, secretKey, serverKey } = JSON.parse(readFileSync(file, "utf8")) as Partial<CurveClient>;
  if (publicKey === undefined || secretKey === undefined || serverKey === undefined) {
    throw new LaboroError("LABORO_BAD_INPUT", `${file} has no publicKey, secretKey and serverKey`);
  }
  return { publicKey, secretKey, serverKey };
}
