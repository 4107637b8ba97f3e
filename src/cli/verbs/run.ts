/** `laboro run`: submit, show progress and output, wait. Without a broker it starts one of its own. */
import { rmSync } from "node:fs";
import { availableParallelism } from "node:os";
import type { Command } from "commander";
import { badInput, LaboroError } from "../../base/errors.js";
import { innerDataDir, localData } from "../../base/files/local-data.js";
import type { Client } from "../../client/client.js";
import { ACCESS_FILE, dataDirectory } from "../../client/find-broker.js";
import type { Job } from "../../model/job.js";
import { ThreadCalls } from "../../store/sqlite/thread-calls.js";
import { batchKey, commandLine, type StartedBatch, startOrResume } from "../lib/batch/resume.js";
import { type ConnectBroker, runBatch } from "../lib/batch/run-batch.js";
import { unfinishedJobs } from "../lib/batch/shown-tasks.js";
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
import { parseWholeNumber } from "../lib/option-parsers.js";
import { printLines, printNotice } from "../lib/print.js";
import {
  addSubmissionOptions,
  makeSubmission,
  NOTHING_TO_DO,
  type SubmissionOptions,
} from "../lib/submission/options.js";
import { ParallelCommand } from "../lib/submission/parallel-options.js";

interface Options extends SubmissionOptions, BrokerChoice {
  readonly tagOutput?: boolean;
  readonly keepOrder?: boolean;
  readonly dryRun?: boolean;
  readonly jobs?: number;
  readonly fresh?: boolean;
  readonly joblog?: string;
}

const CONNECT_MS = 10_000;

export function run(): Command {
  const command = new ParallelCommand("run")
    .description("Run a command, once or for each entry. Show the output, wait, and exit 0 if all tasks succeeded.")
    .argument("[words...]", "the command; after ::: the entries")
    .passThroughOptions();
  addSubmissionOptions(command)
    .option(
      "-j, --jobs <n>",
      "how many tasks run at once (default: the cores of this machine, or the slots of the broker's workers)",
      parseWholeNumber,
    )
    .option("-k, --keep-order", "print output in the order of the entries")
    .option("--tag-output", "put the entry before each line of output")
    .option("--joblog <file>", "write one line per task: times, exit code, command")
    .option("--dry-run", "print the commands and run nothing")
    .option("--fresh", "start from the beginning, even if this batch is unfinished");
  return addBrokerOptions(command)
    .addHelpText(
      "after",
      `
Examples:
  laboro run 'echo hello {}' ::: ada grace edsger
  laboro run --jobs 4 --retries 2 -- convert {} {.}.png ::: *.jpg
  laboro run --each-line urls.txt --keep-order -- fetch {}

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
are kept for 30 days, and up to 1 GiB of them.`,
    )
    .action(perform);
}

async function perform(words: readonly string[], options: Options): Promise<void> {
  const submission = makeSubmission(words, options, true);
  if (submission.entries?.length === 0) {
    process.stderr.write(NOTHING_TO_DO);
    return;
  }
  if (options.dryRun === true) {
    const count = submission.entries?.length ?? submission.count ?? 1;
    for (let index = 0; index < count; index++) printLines(commandLine(submission, index));
    return;
  }
  if (options.jobs === 0) throw badInput("--jobs: expected at least 1");
  const settings = {
    live: (submission.entries?.length ?? submission.count ?? 1) === 1 && options.tagOutput !== true,
    keepOrder: options.keepOrder === true,
    tag: options.tagOutput === true,
    ...(options.joblog === undefined ? {} : { joblog: options.joblog }),
  };
  const interrupt = onInterrupt({ watchOutput: true });
  let broker: RunBroker | undefined;
  try {
    broker = await chooseBroker(options, batchKey(submission));
    // --jobs cannot set the slots of a broker's workers, but it can limit the running tasks of this batch.
    const jobs = broker.isLocal || options.jobs === undefined ? {} : { maxRunning: options.maxRunning ?? options.jobs };
    const { connect, dir, foundOpen } = broker;
    const asked = { ...submission, ...jobs, relay: true };
    const start = async (client: Client): Promise<StartedBatch> => {
      const unfinished = unfinishedJobs(dir, batchKey(submission));
      const batch = await startOrResume(client, asked, options.fresh === true, unfinished);
      await noticeHeld(client, foundOpen);
      return batch;
    };
    process.exitCode = await runBatch(connect, start, { ...settings, dir }, interrupt);
  } finally {
    interrupt.dispose();
    await broker?.close(!interrupt.twice.aborted, process.exitCode === EXIT.ok);
    interrupt.endAfterHangup();
  }
}

/** Prints which jobs of earlier runs stay held. */
async function noticeHeld(client: Client, jobs: readonly Job[]): Promise<void> {
  for (const { id, name } of jobs)
    if ((await client.ask("job", { job: id })).state === "held")
      printNotice(`job ${id} (${name}) is unfinished and stays held; its own command line resumes it`);
}

interface RunBroker {
  /** The worker belongs to this run. */
  readonly isLocal: boolean;
  /** Directory of the records of printed output (shown-tasks.ts). */
  readonly dir: string;
  readonly connect: ConnectBroker;
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
async function chooseBroker(options: Options, key: string): Promise<RunBroker> {
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
    return { isLocal: false, dir, connect: async () => client, foundOpen: [], close: async () => client.close() };
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
function directoryBroker(options: Options, key: string): RunBroker {
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

function localBroker(options: Options, data: LocalRunData): RunBroker {
  const [tag] = options.tag;
  if (tag !== undefined)
    throw badInput(
      `--tag ${tag} is for workers with that tag, and without a broker there are none; ` +
        "to put the entry before each line of output: --tag-output",
    );
  const slots = options.jobs ?? availableParallelism();
  const foundOpen: Job[] = [];
  let local: LocalBroker | undefined;
  ThreadCalls.startEarly();
  return {
    isLocal: true,
    dir: data.dir,
    foundOpen,
    connect: async (ownJob) => {
      await local?.close(false);
      // Loaded here: a run with another broker needs none of it, and the thread of the store loads at the same time.
      const { openLocalBroker } = await import("../lib/local-broker.js");
      local = await openLocalBroker(data.dir, slots, (job) => {
        // After the broker of another run has ended, open jobs belong to runs that are still active.
        if (ownJob === undefined) foundOpen.push(job);
        return job.id !== ownJob;
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
