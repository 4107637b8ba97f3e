/** `laboro ssh`: start, list and stop workers on machines that are reached over ssh. */
import { Argument, Command, Option } from "commander";
import { badInput } from "../../base/errors.js";
import { dataDirectory, findBroker } from "../../client/find-broker.js";
import { EXIT } from "../lib/failures.js";
import { printLines, printNotice } from "../lib/print.js";
import { HOST_FORMAT, parseHosts } from "../lib/ssh/connection.js";
import { askKeeper, type KeptMachine, keep, sshEnvironment } from "../lib/ssh/keeper.js";
import { checkArchive, workerAccess } from "../lib/ssh/run-machines.js";
import type { HostStatus } from "../lib/ssh/workers.js";
import { type Column, printList } from "../lib/terminal/table.js";

interface Options {
  readonly join?: string;
  readonly broker?: string;
  readonly data?: string;
  readonly stay?: boolean;
  readonly archive?: string;
  readonly now?: boolean;
  readonly json?: boolean;
}

export function ssh(): Command {
  return new Command("ssh")
    .description(
      "Start, list or stop workers on other machines. They reach the broker through the ssh connection, so no port is " +
        "opened. A process in the background keeps the connections, and connects again after a cut.",
    )
    .addArgument(new Argument("<action>", "start, list or stop"))
    .argument("[hosts...]", `${HOST_FORMAT}; for stop also all`)
    .option("--join <@file>", "start: a file with the broker's join URL (default: $LABORO_BROKER, else access.json)")
    .addOption(new Option("--broker <@file>", "the same as --join").conflicts("join"))
    .option("--data <dir>", "the broker's data directory (default: $LABORO_DATA, ~/.local/share/laboro)")
    .option("--stay", "start: the workers survive their broker and this machine, and keep their results, for any time")
    .option("--archive <file>", "start: an archive of laboro, for machines that have no Node")
    .option("--now", "stop: return running tasks to the queue, and do not wait until they have ended")
    .option("--json", "print one JSON document")
    .addHelpText("after", EXAMPLES)
    .action(run);
}

const EXAMPLES = `
Without --stay, a worker ends when its broker or the connection has been gone for 10 minutes.

Examples:
  laboro ssh start node1 node2/8 ada@node3:2222 @hosts.txt
  laboro ssh list
  laboro ssh stop node2
  laboro ssh stop all --now`;

async function run(action: string, words: readonly string[], options: Options): Promise<void> {
  const data = dataDirectory(options);
  if (action === "start") await start(words, data, options);
  else if (action === "list") show((await askKeeper(data, { ask: "list" }, {})) ?? [], options);
  else if (action === "stop") await stop(words, data, options);
  else if (action === "keep") await keep(data);
  else throw badInput(`expected start, list or stop, got ${action}; laboro ssh start HOST… starts workers`);
}

async function start(words: readonly string[], data: string, options: Options): Promise<void> {
  const { hosts, local } = parseHosts(words);
  if (local !== undefined) throw badInput("host: the worker of this machine is started by laboro worker, not by :");
  if (hosts.length === 0) throw badInput(`name the machines: ${HOST_FORMAT}`);
  const { broker, join = broker, stay = false, archive } = options;
  const access = workerAccess(findBroker(join === undefined ? { data: options.data } : { broker: join }));
  const started = { access, key: access.urls.join(" "), stay, ...checkArchive(archive) };
  const unreported = new Set(hosts.map(({ label }) => label));
  const onStatus = ({ host, state, worker, reason = "" }: HostStatus): void => {
    const isEnd = state === "joined" || state === "failed";
    if (options.json === true || !isEnd || !unreported.delete(host)) return;
    if (state === "joined") printLines(`${host}: worker ${worker} has joined`);
    if (state === "failed") printNotice(`${host} is not used: ${reason}`);
  };
  const request = { ask: "start", hosts, env: sshEnvironment(), options: started } as const;
  const machines = (await askKeeper(data, request, { begin: true, onStatus })) ?? [];
  // They had joined before.
  machines.forEach(onStatus);
  if (options.json === true) show(machines, options);
  if (machines.some(({ state }) => state !== "joined")) process.exitCode = EXIT.failed;
}

async function stop(words: readonly string[], data: string, options: Options): Promise<void> {
  if (words.length === 0) throw badInput("name the machines, or all; laboro ssh list shows them");
  const hosts = words.includes("all") ? "all" : parseHosts(words).hosts.map(({ label }) => label);
  const stopped = await askKeeper(data, { ask: "stop", hosts, finish: options.now !== true }, {});
  if (stopped === undefined && hosts !== "all")
    throw badInput("no machine is connected; laboro ssh start HOST finds a worker that was left there");
  if (options.json === true) show(stopped ?? [], options);
  else printLines(...(stopped ?? []).map(({ host }) => `${host} is stopped`));
}

const COLUMNS: readonly Column[] = [
  { title: "HOST", minWidth: 8 },
  { title: "STATE" },
  { title: "WORKER", minWidth: 6 },
  { title: "BROKER", minWidth: 10, dropPriority: 1 },
  { title: "REASON", minWidth: 20 },
];

function show(machines: readonly KeptMachine[], options: Options): void {
  const rows = machines.map(({ host, state, worker, brokers, reason = "" }) => [
    ...[host, state, worker, brokers.join(" "), reason],
  ]);
  const none = "no machine is connected; laboro ssh start HOST… starts workers";
  printList({ document: { machines }, json: options.json, columns: COLUMNS, rows, none });
}
