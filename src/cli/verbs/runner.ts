/** `laboro runner`: a runner of runexp, for a manager of laboro or an original one. */
import { hostname, totalmem } from "node:os";
import { join } from "node:path";
import type { Command } from "commander";
import { badInput } from "../../base/errors.js";
import { dataDirectory } from "../../client/find-broker.js";
import {
  DEFAULT_GROUP,
  DEFAULT_RUNEXP_PORT,
  fieldsOf,
  HOST_PATTERN,
  type RunexpMessage,
} from "../../protocols/runexp/messages.js";
import { shortDate } from "../../protocols/runexp/res-text.js";
import { readRunexpConfig } from "../../protocols/runexp/runner/config-file.js";
import { type RunnerEnd, type RunnerOptions, startRunner } from "../../protocols/runexp/runner/index.js";
import type { Address } from "../../protocols/runexp/runner/manager-connection.js";
import { EXIT } from "../lib/failures.js";
import { logger } from "../lib/long-running.js";
import { AbbreviatingCommand, parseDuration, parseSize, wholeNumber } from "../lib/option-parsers.js";

import { openOutput, printLines, printNotice } from "../lib/print.js";

interface Options {
  readonly connect?: string;
  readonly group: string;
  readonly host?: string;
  readonly mem?: number;
  readonly verbose?: boolean;
  readonly stay?: boolean;
  readonly reconnectTimeout?: number;
  readonly data?: string;
}

export function runner(): Command {
  return new AbbreviatingCommand("runner")
    .description(
      "Run experiments of a runexp manager: one of laboro (laboro experiments, laboro serve --protocol runexp) or an original one.",
    )
    .argument("<n>", "how many experiments run at once", wholeNumber(4, 1))
    .helpOption("--help", "display help for command")
    .option("-c, --connect <host[:port]>", "address of the manager (default: qmanager= and port= in ~/.runexp)")
    .option("-g, --group <name>", "group of the manager", DEFAULT_GROUP)
    .option("-h, --host <name>", "name of this runner (default: hostname= in ~/.runexp, or the host name)")
    .option(
      "-m, --mem <size>",
      "request no experiment while less memory than this is available, such as 10G",
      parseSize,
    )
    .option("-v, --verbose", "print every message")
    .option("--stay", "when the manager has no more experiments or is gone, wait for the next one")
    .option(
      "--reconnect-timeout <duration>",
      "how long to try to reconnect to the manager (default: 10m)",
      parseDuration,
    )
    .option(
      "--data <dir>",
      "directory for scripts and undelivered results (default: $LABORO_DATA, ~/.local/share/laboro)",
    )
    .addHelpText(
      "after",
      "\nExamples:\n  laboro runner 4 -c head:5433\n  laboro runner 8 -c 10.0.0.2 -g mine -m 10G --stay",
    )
    .action(perform);
}

async function perform(threads: number, options: Options): Promise<void> {
  const { manager, host } = resolveManagerAndHost(options);
  const { group, mem, reconnectTimeout, verbose } = options;
  if (mem !== undefined && mem > totalmem()) {
    throw badInput(`-m: this machine has ${gigabytes(totalmem())} in total, less than ${gigabytes(mem)}`);
  }
  const folder = `${host}@${manager.host}_${manager.port}`.replace(/[^\w.@-]/g, "_");
  const runnerOptions: RunnerOptions = {
    ...{ manager, host, group, threads },
    dir: join(dataDirectory(options), "runners", folder),
    log: logger(),
    ...(mem === undefined ? {} : { minMemory: mem }),
    ...(reconnectTimeout === undefined ? {} : { reconnectTimeoutMs: reconnectTimeout }),
    ...(options.stay === true ? { retryFirstConnect: true, reconnectTimeoutMs: Number.POSITIVE_INFINITY } : {}),
    on: {
      joined: () => printLines(`Joining the queue manager on the ${groupText(group)}`),
      running: (name) => printLines(`${shortDate(Date.now())} [${host}] Running ${name}`),
      onHold: (held) => printLines(`${shortDate(Date.now())} [${host}] ${held ? ON_HOLD : HOLD_LIFTED}`),
      memory: (enough, available) => printLines(`${shortDate(Date.now())} [${host}] ${memoryText(enough, available)}`),
      disconnected: (reason) => printNotice(`the manager disconnected: ${reason}; reconnecting`),
      stderr: openOutput(process.stderr),
      ...(verbose === true ? { message: printMessage } : {}),
    },
  };
  let signals = 0;
  let current = startRunner(runnerOptions);
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.on(signal, () => {
      signals++;
      if (signal === "SIGINT" && signals === 1)
        printNotice("stopping when running experiments have ended; Ctrl-C again stops at once");
      current.stop(signal !== "SIGINT" || signals > 1);
    });
  }
  let end = await current.ended;
  while (options.stay === true && end.status === "finished" && signals === 0) {
    current = startRunner(runnerOptions);
    end = await current.ended;
  }
  if (end.status === "finished" && end.refusedResults.length === 0) printLines("Done!");
  process.exit(reportEnd(end, manager, signals > 0));
}

/** The command line takes precedence over ~/.runexp. */
function resolveManagerAndHost({ connect = "", host }: Options): { manager: Address; host: string } {
  const config = readRunexpConfig();
  const [, named, digits] = /^(\[[^\]]*\]|[^:]*)(?::(\d*))?$/.exec(connect) ?? [];
  if (named === undefined) throw badInput(`-c: expected HOST or HOST:PORT, got ${connect}`);
  const address = named.replace(/^\[|\]$/g, "") || config.qmanager;
  if (address === undefined)
    throw badInput("expected the address of the manager: -c HOST:PORT, or qmanager= in ~/.runexp");
  if (named === "") printLines(`Using server address ${address} as specified from config file`);
  const port = digits ? Number(digits) : (config.port ?? DEFAULT_RUNEXP_PORT);
  if (port === 0 || port > 65_535) throw badInput(`-c: expected a port from 1 to 65535, got ${port}`);
  if (!digits && config.port !== undefined) printLines(`Using port ${port} as specified from config file`);
  if (host === undefined && config.hostname !== undefined)
    printLines(`Using hostname ${config.hostname} as specified from config file`);
  const name = host ?? config.hostname ?? hostname().split(".")[0] ?? "";
  if (!HOST_PATTERN.test(name)) throw badInput(`Can't handle this hostname: '${name}'`);
  return { manager: { host: address, port }, host: name };
}

/** A manager without a last experiment also sends ATENDI when it has no experiment now. */
const ON_HOLD = "Runner put on hold: for failing experiments, or until there is more to run";
const HOLD_LIFTED = "Manager lifted hold: new jobs coming!";

const gigabytes = (bytes: number): string => `${Math.floor(bytes / 2 ** 30)} GB`;

const memoryText = (enough: boolean, available: number): string =>
  enough
    ? `Available memory is sufficient again (${gigabytes(available)})`
    : `System is low on memory (${gigabytes(available)}): waiting...`;

const groupText = (group: string): string =>
  group === DEFAULT_GROUP ? "default working group" : `working group '${group}'`;

function printMessage(from: "runner" | "manager", message: RunexpMessage): void {
  const fields = Object.entries(fieldsOf(message)).map(([name, value]) => ` ${name}=${String(value)}`);
  printNotice(`${from}: ${message.type}${fields.join("")}`);
}

function reportEnd(end: RunnerEnd, { host, port }: Address, signalled: boolean): number {
  const { status, reason, spooledResults, refusedResults } = end;
  if (spooledResults > 0)
    printNotice(`${spooledResults} results were not delivered; the next runner for ${host}:${port} delivers them`);
  for (const file of refusedResults) printNotice(`the manager refused a result; it is kept in ${file}`);
  if (status === "finished") return refusedResults.length > 0 ? EXIT.failed : EXIT.ok;
  if (status === "stopped") return signalled ? EXIT.interrupted : EXIT.ok;
  if (status === "banned")
    printNotice("the manager has banned this runner, because too many of its experiments failed");
  if (status === "refused") printNotice(`the manager does not fit: ${reason}`);
  if (status === "unreachable") printNotice(`no manager at ${host}:${port}: ${reason}`);
  return status === "unreachable" ? EXIT.unreachable : EXIT.failed;
}
