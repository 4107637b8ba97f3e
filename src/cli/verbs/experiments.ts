/** `laboro experiments`: a folder `runs/` of scripts in, `outputs/*.res` out, by runners of runexp and by this machine. For users of queueexp. */
import { existsSync, statSync } from "node:fs";
import { resolve } from "node:path";
import { type Command, InvalidArgumentError } from "commander";
import { isLoopback } from "../../base/addresses.js";
import { badInput } from "../../base/errors.js";
import type { Experiment } from "../../protocols/runexp/broker/experiments.js";
import { Aftermath } from "../../protocols/runexp/experiments/aftermath.js";
import { findExperiments } from "../../protocols/runexp/experiments/folder.js";
import { ProgressOutput, progressOptions } from "../../protocols/runexp/experiments/progress-output.js";
import {
  DEFAULT_GROUP,
  DEFAULT_RUNEXP_PORT,
  displayName,
  GROUP_PATTERN,
  toLatin1,
} from "../../protocols/runexp/messages.js";
import { readRunexpConfig } from "../../protocols/runexp/runner/config-file.js";
import { AbbreviatingCommand } from "../lib/abbreviating-command.js";
import { parseWholeNumber } from "../lib/option-parsers.js";
import { printNotice } from "../lib/print.js";
import { textFor } from "../lib/terminal/escape-filter.js";
import { runExperiments } from "./experiments/run.js";
import { runAtBroker } from "./experiments/run-at-broker.js";

interface Options {
  readonly runs: string;
  readonly outputs: string;
  readonly group: string;
  readonly port?: number;
  readonly listen: string;
  readonly insecure?: boolean;
  readonly sort?: boolean;
  readonly print?: boolean;
  readonly progress?: boolean;
  readonly shownames?: boolean;
  readonly quiet?: boolean;
  readonly aftermath?: boolean;
  readonly success?: boolean;
  readonly failure?: boolean;
  readonly verbose?: boolean;
  readonly ban?: boolean;
  readonly local?: number;
  readonly broker?: string | true;
}

export function experiments(): Command {
  return new AbbreviatingCommand("experiments")
    .synonym("--print-jobs", "--print")
    .synonym("--sort-jobs", "--sort")
    .description(
      "Run the scripts in DIR/runs at runners of runexp (laboro runner, or the original one) and write what they say to " +
        "DIR/outputs. What is done already is skipped; started again, it goes on where it was.",
    )
    .argument("[dir]", "where runs and outputs are", ".")
    .option("-r, --runs <path>", "the folder of scripts, .sh and .m, below DIR", "runs")
    .option("-o, --outputs <path>", "the folder of results, below DIR", "outputs")
    .option("-g, --group <name>", "the group that runners must name too", parseGroup, DEFAULT_GROUP)
    .option("-p, --port <n>", `listen there (default: port= in ~/.runexp, or ${DEFAULT_RUNEXP_PORT})`, parsePort)
    .option("--listen <address>", "listen on this address; other than loopback needs --insecure", "127.0.0.1")
    .option("--insecure", "let other machines in: the protocol has no authentication")
    .option("--sort", "in the order of the paths")
    .option("--random", "in random order: the usual")
    .option("--print", "print what is left to run, and end")
    .option("-t, --progress", "one line that says how far it is: the usual")
    .option("--shownames", "a line for each experiment that is handed out")
    .option("-q, --quiet", "no progress")
    .option("-a, --aftermath", "a line for each end")
    .option("-s, --success", "a line for each success")
    .option("-f, --failure", "a line for each failure: the usual, unless --shownames or -q is given")
    .option("-v, --verbose", "say more")
    .option("--ban", "runners that fail too often are put on hold or banned")
    .option(
      "--broker [@file]",
      "at the broker whose URL is in this file, or the usual one, and all its workers that run scripts; no listener is opened here",
    )
    .option("--local <n>", "run so many at once on this machine too", parseWholeNumber)
    .addHelpText(
      "after",
      "\nExamples:\n  laboro experiments --local 4\n  laboro experiments study --listen 0.0.0.0 --insecure --group mine\n  laboro experiments study --print --sort",
    )
    .action(run);
}

async function run(dir: string, options: Options): Promise<void> {
  const base = resolve(dir);
  const [runs, outputs] = [resolve(base, options.runs), resolve(base, options.outputs)];
  if (!existsSync(runs) || !statSync(runs).isDirectory()) {
    throw badInput(`there is no folder of scripts at ${runs}`);
  }
  if (options.insecure !== true && !isLoopback(options.listen)) {
    throw badInput(
      `the protocol has no authentication, and other machines can reach ${options.listen}: --insecure allows it`,
    );
  }
  const write = (text: string): void => void process.stdout.write(textFor(process.stdout, text));
  const screen = new ProgressOutput(progressOptions(options), write);
  const { experiments: all, notices } = findExperiments(toLatin1(runs));
  printNotice(...notices);
  if (all.length === 0) throw badInput("There are no jobs here.");
  const port = options.port ?? configuredPort(screen);
  const aftermath = new Aftermath(toLatin1(outputs));
  const remaining = inOrder(
    all.filter(({ name }) => !aftermath.isDone(name)),
    options.sort === true,
  );
  printCounts(screen, all.length, remaining.length);
  if (options.print === true) {
    for (const { path } of remaining) screen.line(`${runs}/${displayName(path)}`);
    return;
  }
  if (remaining.length === 0) return;
  if (options.broker !== undefined) {
    const choice = options.broker === true ? {} : { broker: options.broker };
    const { group } = options;
    process.exitCode = await runAtBroker({ all, remaining, aftermath, screen, runs, outputs, group }, choice);
    return;
  }
  process.exitCode = await runExperiments({
    ...{ all, remaining, aftermath, screen, runs, outputs, port },
    group: options.group,
    listen: options.listen,
    verbose: options.verbose === true,
    ban: options.ban === true,
    localThreads: options.local ?? 0,
  });
}

function printCounts(screen: ProgressOutput, all: number, left: number): void {
  const done = all - left;
  screen.line(`There are ${all} jobs here.`);
  if (left === 0) {
    screen.line("I have already run everything. Nothing else to do here.");
  } else if (done > 0) {
    screen.line(`I have already run ${done} job${done > 1 ? "s" : ""}. I will skip them.`);
    screen.line(`I now have ${left} job${left > 1 ? "s" : ""} to run.`);
  } else {
    screen.line("I did not do anything yet.");
  }
}

function inOrder(left: Experiment[], sorted: boolean): readonly Experiment[] {
  if (sorted) return left;
  for (let at = left.length - 1; at > 0; at--) {
    const other = Math.floor(Math.random() * (at + 1));
    const [a, b] = [left[at], left[other]];
    if (a !== undefined && b !== undefined) [left[at], left[other]] = [b, a];
  }
  return left;
}

function configuredPort(screen: ProgressOutput): number {
  const { port } = readRunexpConfig();
  if (port === undefined) return DEFAULT_RUNEXP_PORT;
  screen.line(`Using port ${port} as specified from config file`);
  return port;
}

function parsePort(text: string): number {
  const port = parseWholeNumber(text);
  if (port > 65_535) throw new InvalidArgumentError("expected a port");
  return port;
}

function parseGroup(text: string): string {
  if (!GROUP_PATTERN.test(text)) throw new InvalidArgumentError("expected a name without blanks");
  return text;
}
