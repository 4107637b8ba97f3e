/** `laboro experiments`: runs the scripts in `runs/` at runexp runners and here, and writes `outputs/*.res`. */
import { existsSync, statSync } from "node:fs";
import { resolve } from "node:path";
import { type Command, InvalidArgumentError } from "commander";
import { isLoopback } from "../../base/addresses.js";
import { badInput } from "../../base/errors.js";
import type { Experiment } from "../../protocols/runexp/broker/runner-tasks.js";
import { ProgressOutput, progressOptions } from "../../protocols/runexp/experiments/experiment-jobs.js";
import { Aftermath, findExperiments } from "../../protocols/runexp/experiments/folder.js";
import {
  DEFAULT_GROUP,
  DEFAULT_RUNEXP_PORT,
  displayName,
  GROUP_PATTERN,
  toLatin1,
} from "../../protocols/runexp/messages.js";
import { readRunexpConfig } from "../../protocols/runexp/runner/config-file.js";
import { AbbreviatingCommand, wholeNumber } from "../lib/option-parsers.js";
import { printNotice } from "../lib/print.js";
import { textFor } from "../lib/terminal/escape-filter.js";
import { runAtBroker, runExperiments } from "./experiments/run.js";

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
      "Run the scripts in DIR/runs at runners of runexp (laboro runner, or the original one) and write their output to " +
        "DIR/outputs. Scripts that have an output already are skipped, so an interrupted run can be started again.",
    )
    .argument("[dir]", "the directory with runs and outputs", ".")
    .option("-r, --runs <path>", "the folder of scripts, .sh and .m, below DIR", "runs")
    .option("-o, --outputs <path>", "the folder of results, below DIR", "outputs")
    .option(
      "-g, --group <name>",
      "the group of this manager; runners must name the same one",
      parseGroup,
      DEFAULT_GROUP,
    )
    .option(
      "-p, --port <n>",
      `the port to listen on (default: port= in ~/.runexp, or ${DEFAULT_RUNEXP_PORT})`,
      wholeNumber(5433, 0, 65_535),
    )
    .option("--listen <address>", "the address to listen on; other than loopback needs --insecure", "127.0.0.1")
    .option("--insecure", "accept other machines, although the protocol has no authentication")
    .option("--sort", "run the scripts in the order of their paths")
    .option("--random", "run the scripts in random order (default)")
    .option("--print", "print the scripts that are left to run, and exit")
    .option("-t, --progress", "show one line with the progress (default)")
    .option("--shownames", "print a line for each script that is assigned")
    .option("-q, --quiet", "show no progress")
    .option("-a, --aftermath", "print a line for each script that ends")
    .option("-s, --success", "print a line for each script that succeeds")
    .option("-f, --failure", "print a line for each script that fails (default, unless --shownames or -q is given)")
    .option("-v, --verbose", "print more details")
    .option("--ban", "suspend and ban runners that fail too often")
    .option(
      "--broker [@file]",
      "use the broker whose URL is in this file, or the configured one, and all its workers that run scripts; open no listener here",
    )
    .option("--local <n>", "also run scripts on this machine, up to N at once", wholeNumber(4))
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

function parseGroup(text: string): string {
  if (!GROUP_PATTERN.test(text)) throw new InvalidArgumentError("expected a name without blanks");
  return text;
}
