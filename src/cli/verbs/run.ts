/** `laboro run`: submit, show progress and output, wait. Without a broker it starts one of its own. */
import { rmSync } from "node:fs";
import { availableParallelism } from "node:os";
import { resolve } from "node:path";
import type { Command } from "commander";
import { badInput, LaboroError } from "../../base/errors.js";
import { innerDataDir, localData } from "../../base/files/local-data.js";
import { pluralize } from "../../base/format.js";
import type { Client } from "../../client/client.js";
import { ACCESS_FILE, dataDirectory, findBroker } from "../../client/find-broker.js";
import { type Job, NO_OUTPUT_CAP } from "../../model/job.js";
import { DEFAULT_POOL } from "../../model/recipe.js";
import type { BrokerAccess } from "../../protocols/laboro/broker-address.js";
import { ThreadCalls } from "../../store/sqlite/thread-calls.js";
import { ResultFiles, unfinishedJobs } from "../lib/batch/batch-files.js";
import { batchKey, commandLine, type StartedBatch, startOrResume } from "../lib/batch/resume.js";
import { type ConnectBroker, runBatch } from "../lib/batch/run-batch.js";
import {
  addBrokerOptions,
  type BrokerChoice,
  connectToBroker,
  isConfigured,
  isUnreachable,
  localDataInstead,
  localDataOf,
  noticeOtherData,
  resolveBroker,
} from "../lib/broker-connection.js";
import { EXIT } from "../lib/failures.js";
import { onInterrupt } from "../lib/interrupt.js";
import type { LocalBroker } from "../lib/local-broker.js";
import { collect, type PerCores, parseDuration, parsePerCores, parseSize, textLike } from "../lib/option-parsers.js";
import { printLines, printNotice } from "../lib/print.js";
import type { RunMachines } from "../lib/ssh/run-machines.js";
import { addAfterOption, dependenciesOf } from "../lib/submission/after.js";
import { groupOptions } from "../lib/submission/option-groups.js";
import { ParallelCommand } from "../lib/submission/option-hints.js";
import {
  addSubmissionOptions,
  makeSubmission,
  NOTHING_TO_DO,
  type SubmissionOptions,
} from "../lib/submission/options.js";
import { addFileOptions, type FileOptions, withFiles } from "../lib/submission/output-files.js";
import { addParallelOptions } from "../lib/submission/parallel-options.js";

interface Options extends SubmissionOptions, FileOptions, BrokerChoice {
  readonly after: readonly string[];
  readonly tagOutput?: boolean;
  readonly keepOrder?: boolean;
  readonly lineBuffer?: boolean;
  readonly ungroup?: boolean;
  readonly dryRun?: boolean;
  readonly jobs?: PerCores;
  readonly results?: string;
  readonly delay?: number;
  readonly load?: PerCores;
  readonly memfree?: number;
  readonly fresh?: boolean;
  readonly joblog?: string;
  readonly ssh: readonly string[];
  readonly stay?: boolean;
  readonly archive?: string;
}

const CONNECT_MS = 10_000;

export function run(): Command {
  const command = new ParallelCommand("run")
    .description("Run a command, once or for each entry. Show the output, wait, and exit 0 if all tasks succeeded.")
    .argument("[words...]", "the command; after ::: the entries")
    .passThroughOptions();
  addAfterOption(addFileOptions(addParallelOptions(addSubmissionOptions(command))))
    .option(
      "-j, --jobs <n>",
      "how many tasks run at once: 8, 50% of the cores, +1, -1, 0 for up to 250 (default: the cores of this machine, or the slots of the broker's workers)",
      parsePerCores,
    )
    .option("--results <dir>", "save stdout and stderr of each task in files below this folder, and print none")
    .option("--delay <duration>", "the time between the starts of two tasks: 0.5, 2m", parseDuration)
    .option("--load <n>", "start no task while this many processes run on this machine: 8, 100%", parsePerCores)
    .option("--memfree <size>", "start no task while less memory than this is available: 2G", parseSize)
    .option(
      "-S, --ssh <hosts>",
      "run on these machines: host1,user@host2:2222/8 or @FILE; : is this one; may be repeated",
      collect,
      [],
    )
    .option("--stay", "with --ssh: leave the workers running for the next run")
    .option("--archive <file>", "with --ssh: an archive of laboro, for machines that have no Node")
    .option("-k, --keep-order", "print output in the order of the entries")
    .option("--tag-output", "put the entry before each line of output")
    .option("--lb, --line-buffer", "print the lines of running tasks as they come; lines are not mixed")
    .option("-u, --ungroup", "the same as --line-buffer")
    .option("--joblog <file>", "write one line per task: times, exit code, command", textLike("run.log"))
    .option("--dry-run", "print the commands and run nothing")
    .option("--fresh", "start from the beginning, even if this batch is unfinished");
  return addBrokerOptions(groupOptions(command))
    .addHelpText(
      "after",
      `
Examples:
  laboro run 'echo hello {}' ::: ada grace edsger
  laboro run --jobs 4 --retries 2 -- convert {} {.}.png ::: *.jpg
  laboro run --each-line urls.txt --keep-order -- fetch {}
  laboro run --ssh node1,node2/8 -- ./simulate {} ::: *.cfg
  laboro run --send {} --send model.bin --return {.}.out -- ./fit {} ::: *.csv

  seq 10 | laboro run 'echo {}'
  laboro run < commands.txt

Placeholders: {} the entry, {.} without its extension, {/} without its folders,
{//} its folder, {/.} without folders and extension, {#} the number of the task,
{%} the slot. {1} {2.} are one column of the entry, or one of several lists, as in
::: a b ::: 1 2.

If a placeholder needs an entry and there is no list, each line of standard input
is an entry. If there is no command, each entry is a command line.

After an interruption, the same command resumes where it stopped.

If no broker is configured, run starts one. Its data is in ./.laboro: ended jobs
are kept for 30 days, and up to 1 GiB of them, and up to 1 GiB of sent files.`,
    )
    .action(perform);
}

async function perform(words: readonly string[], options: Options): Promise<void> {
  let names: readonly string[] | undefined;
  const onHeader = (header: readonly string[]): void => {
    names = header;
  };
  const more = { spread: jobsOf(options, availableParallelism()), onHeader };
  const submission = withFiles(makeSubmission(words, { ...options, ...more }, true), options);
  if (submission.entries?.length === 0) {
    process.stderr.write(NOTHING_TO_DO);
    return;
  }
  if (options.dryRun === true) {
    const count = submission.entries?.length ?? submission.count ?? 1;
    for (let index = 0; index < count; index++) printLines(commandLine(submission, index));
    return;
  }
  const lineBuffer = options.lineBuffer === true || options.ungroup === true;
  if (lineBuffer && options.keepOrder === true)
    throw badInput("--keep-order and --line-buffer exclude each other; with --tag-output each line says whose it is");
  const settings = {
    lineBuffer,
    live: (submission.entries?.length ?? submission.count ?? 1) === 1 && options.tagOutput !== true,
    keepOrder: options.keepOrder === true,
    halt: options.halt,
    results: options.results === undefined ? undefined : new ResultFiles(resultsFolder(options.results), names),
    tag: options.tagOutput === true,
    ...(options.joblog === undefined ? {} : { joblog: options.joblog }),
  };
  if (options.ssh.length === 0 && (options.stay === true || options.archive !== undefined))
    throw badInput(
      `${options.stay === true ? "--stay" : `--archive ${options.archive}`} goes with --ssh only, such as --ssh node1,node2`,
    );
  const machines = options.ssh.length === 0 ? undefined : await machinesOf(options);
  const interrupt = onInterrupt({ watchOutput: true });
  let broker: RunBroker | undefined;
  try {
    broker = await chooseBroker({ ...options, machines }, batchKey(submission));
    const isAlone = broker.isLocal && machines === undefined;
    if (!isAlone && (options.load ?? options.memfree) !== undefined)
      throw badInput("--load and --memfree are for this machine; other workers have --max-load and --min-memory");
    const { connect: connectBroker, isLocal, access, dir, foundOpen } = broker;
    const connect = async (ownJob?: number): Promise<Client> => {
      const client = await connectBroker(ownJob);
      const key = isLocal ? resolve(dir) : access().urls.join(" ");
      await machines?.use(access(), key, interrupt.once);
      return client;
    };
    // A limit of this batch alone, for as long as it runs.
    const delay: { client?: Client; limit?: string } = {};
    const delayBy = async (client: Client): Promise<readonly string[]> => {
      if (options.delay === undefined || options.delay <= 0) return [];
      const name = `delay-${batchKey(submission).slice(0, 16)}`;
      await client.ask("limitSet", { name, rate: { starts: 1, intervalMs: Math.ceil(options.delay) } });
      Object.assign(delay, { client, limit: name });
      return [name];
    };
    const start = async (client: Client): Promise<StartedBatch> => {
      const unfinished = unfinishedJobs(dir, batchKey(submission));
      // --jobs cannot set the slots of a broker's workers, but it can limit the running tasks of this batch.
      const isLimited = !isAlone && options.jobs !== undefined && options.maxRunning === undefined;
      const atOnce = isLimited ? jobsOf(options, (await client.ask("status", {})).slots.total) : undefined;
      const limits = [...(submission.limits ?? []), ...(await delayBy(client))];
      const asked = {
        ...submission,
        ...(atOnce === undefined ? {} : { maxRunning: atOnce }),
        ...(limits.length === 0 ? {} : { limits }),
        ...(await dependenciesOf(client, options.after)),
        // Files get all output, and the terminal none.
        ...(options.results === undefined ? { relay: true } : { outputCap: submission.outputCap ?? NO_OUTPUT_CAP }),
      };
      const batch = await startOrResume(client, asked, options.fresh === true, unfinished);
      await noticeHeld(client, foundOpen);
      return batch;
    };
    process.exitCode = await runBatch(connect, start, { ...settings, dir }, interrupt);
    if (delay.limit !== undefined) await delay.client?.ask("limitRemove", { name: delay.limit }).catch(() => {});
  } finally {
    interrupt.dispose();
    await machines?.close(!interrupt.twice.aborted);
    await broker?.close(!interrupt.twice.aborted, process.exitCode === EXIT.ok);
    interrupt.endAfterHangup();
  }
}

/** Loaded here: most runs need no other machine. */
async function machinesOf(options: Options): Promise<RunMachines> {
  const { parseHosts } = await import("../lib/ssh/connection.js");
  const { RunMachines: Machines } = await import("../lib/ssh/run-machines.js");
  return new Machines(parseHosts(options.ssh, "--ssh"), options);
}

/** GNU parallel has more forms of the name. */
function resultsFolder(name: string): string {
  if (!/\.(csv|tsv|json)$/.test(name) && !/\{[^{}]*\}/.test(name)) return name;
  throw badInput(
    `--results ${name}: expected a folder, such as --results out; for a file per entry: --output 'out/{}', ` +
      "for a table: laboro tasks last --json",
  );
}

/** -j 0 is as many as possible; each has a process of its own. */
const MOST_JOBS = 250;

function jobsOf({ jobs }: Options, cores: number): number {
  const wanted = jobs === undefined ? cores : Math.round(jobs(cores));
  return jobs?.(0) === 0 && jobs(1) === 0 ? MOST_JOBS : Math.max(1, wanted);
}

/** Prints which jobs of earlier runs stay held. */
async function noticeHeld(client: Client, jobs: readonly Job[]): Promise<void> {
  for (const { id, name } of jobs)
    if ((await client.ask("job", { job: id })).state === "held")
      printNotice(`job ${id} (${name}) is unfinished and stays held; its own command line resumes it`);
}

interface RunOptions extends Options {
  readonly machines: RunMachines | undefined;
}

interface RunBroker {
  /** The worker belongs to this run. */
  readonly isLocal: boolean;
  /** Directory of the records of printed output (batch-files.ts). */
  readonly dir: string;
  readonly connect: ConnectBroker;
  /** The broker, once it is connected. */
  readonly access: () => BrokerAccess;
  /** Jobs that earlier runs left open; they are held. */
  readonly foundOpen: readonly Job[];
  /** `finish`: let tasks of other runs finish. `done`: nothing is left to resume. */
  close(finish: boolean, done: boolean): Promise<void>;
}

/**
 * The configured broker; a local one if none is configured, with --local, and inside a task of a local run. If the
 * configured broker does not answer, the tasks do not run on this machine instead: it may be the login node of a
 * cluster.
 */
async function chooseBroker(options: RunOptions, key: string): Promise<RunBroker> {
  const isLocal = options.local === true;
  const isNamed = options.broker !== undefined || options.data !== undefined;
  if (isLocal && isNamed) return localBroker(options, { dir: localDataOf(options) });
  if (isLocal || (!isNamed && (process.env.LABORO_RUN !== undefined || !isConfigured(options)))) {
    return directoryBroker(options, key);
  }
  try {
    const client = await connectToBroker(options, CONNECT_MS);
    const { urls, source } = resolveBroker(options);
    noticeOtherData(options, `the broker at ${urls.join(", ")} (${source})`);
    const dir = dataDirectory({ data: options.data });
    const access = (): BrokerAccess => resolveBroker(options);
    return {
      isLocal: false,
      dir,
      access,
      connect: async () => client,
      foundOpen: [],
      close: async () => client.close(),
    };
  } catch (cause) {
    const dir = localDataInstead(options, cause);
    if (dir !== undefined) return localBroker(options, { dir });
    if (!isUnreachable(cause)) throw cause;
    const remedy = "to run this on this machine instead: laboro run --local";
    const { source } = resolveBroker(options);
    const always = source.endsWith(ACCESS_FILE) ? `; if that broker is gone for good, remove ${source}` : "";
    throw new LaboroError(cause.code, `${cause.message}; ${remedy}${always}`, { cause });
  }
}

/** The local broker of this directory. A run inside a task of another run has its own data. */
function directoryBroker(options: RunOptions, key: string): RunBroker {
  const { dir, elsewhere } = localData(".");
  const inner = innerDataDir(dir, key);
  if (inner !== undefined) return localBroker(options, { dir: inner, temporary: true });
  if (elsewhere !== undefined && elsewhere.kind !== "network")
    printNotice(`${elsewhere.reason}; the data of this run is in ${dir}`);
  return localBroker(options, { dir });
}

interface LocalRunData {
  readonly dir: string;
  /** The data is removed once nothing is left to resume. */
  readonly temporary?: true;
}

function localBroker(options: RunOptions, data: LocalRunData): RunBroker {
  const [tag] = options.tag;
  if (tag !== undefined)
    throw badInput(
      `--tag ${tag} is for workers with that tag, and without a broker there are none; ` +
        "to put the entry before each line of output: --tag-output",
    );
  if (options.pool !== undefined && options.pool !== DEFAULT_POOL)
    throw badInput(`--pool ${options.pool} is for workers of that pool, and without a broker there are none`);
  const { machines } = options;
  const here = machines === undefined ? { slots: jobsOf(options, availableParallelism()) } : machines.hosts.local;
  const slots = here === undefined ? 0 : here.slots || availableParallelism();
  if (machines === undefined && (options.slots ?? 1) > slots)
    throw badInput(
      `--slots ${options.slots}: the worker of this run has ${pluralize(slots, "slot")}; ` +
        `--jobs ${options.slots} gives it as many`,
    );
  const foundOpen: Job[] = [];
  let local: LocalBroker | undefined;
  ThreadCalls.startEarly();
  return {
    isLocal: true,
    dir: data.dir,
    access: () => findBroker({ data: data.dir, env: {} }),
    foundOpen,
    connect: async (ownJob) => {
      await local?.close(false);
      // Loaded here: a run with another broker needs none of it, and the thread of the store loads at the same time.
      const { openLocalBroker } = await import("../lib/local-broker.js");
      const mustHold = (job: Job): boolean => {
        // After the broker of another run has ended, open jobs belong to runs that are still active.
        if (ownJob === undefined) foundOpen.push(job);
        return job.id !== ownJob;
      };
      local = await openLocalBroker(data.dir, slots, mustHold, machines === undefined, {
        ...(options.memfree === undefined ? {} : { minMemory: options.memfree }),
        ...(options.load === undefined ? {} : { maxLoad: Math.max(0.01, options.load(availableParallelism())) }),
      });
      return local.client;
    },
    close: async (finish, done) => {
      await local?.close(finish);
      if (data.temporary === true && done && local?.started !== undefined)
        rmSync(data.dir, { recursive: true, force: true });
    },
  };
}
