/** `laboro run`: submit, show progress and output, wait. Without a broker it starts one of its own. */
import { availableParallelism } from "node:os";
import type { Command } from "commander";
import { badInput, LaboroError } from "../../base/errors.js";
import { localDataDir } from "../../base/files/local-data.js";
import type { Client } from "../../client/client.js";
import { commandLine } from "../lib/batch/command-line.js";
import { batchKey, startOrResume } from "../lib/batch/resume.js";
import { type ConnectBroker, runBatch } from "../lib/batch/run-batch.js";
import { addBrokerOptions, type BrokerChoice, connectToBroker, isBrokerConfigured } from "../lib/broker-connection.js";
import { onInterrupt } from "../lib/interrupt.js";
import { type LocalBroker, openLocalBroker } from "../lib/local-broker.js";
import { parseWholeNumber } from "../lib/option-parsers.js";
import { printNotice } from "../lib/print.js";
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
/** Short: it only finds out whether there is a broker that was not named. */
const PROBE_TIMEOUT_MS = 1_000;

export function run(): Command {
  const command = new ParallelCommand("run")
    .description("Run a command, or one for each entry; show the output, wait, exit 0 if all succeeded.")
    .argument("[words...]", "the command, and after ::: its entries")
    .passThroughOptions();
  addSubmissionOptions(command)
    .option(
      "-j, --jobs <n>",
      "tasks at once (default: the cores of this machine, or what the broker's workers have)",
      parseWholeNumber,
    )
    .option("-k, --keep-order", "show output in the order of the entries")
    .option("--tag-output", "put the entry before each line of output")
    .option("--joblog <file>", "write a line a task: times, exit code, command")
    .option("--dry-run", "print what would run")
    .option("--fresh", "submit a new job, although the same batch was started before");
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

{} entry, {.} without extension, {/} without folders, {//} its folder, {/.} both,
{#} number of the task, {%} slot; {1} {2.} of a column of the entry, or of several
lists: ::: a b ::: 1 2. Without a list the entries are the lines of standard input,
without a command each of them is a command line.
Interrupted, the same command resumes where it stopped.`,
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
    for (let index = 0; index < count; index++) process.stdout.write(`${commandLine(submission, index)}\n`);
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
    const start = (client: Client) =>
      startOrResume(client, { ...submission, ...jobs, relay: true }, options.fresh === true);
    process.exitCode = await runBatch(broker.connect, start, settings, interrupt);
  } finally {
    interrupt.dispose();
    await broker?.close(!interrupt.twice.aborted);
  }
}

interface RunBroker {
  /** The worker belongs to this run. */
  readonly isLocal: boolean;
  readonly connect: ConnectBroker;
  close(finish: boolean): Promise<void>;
}

/** The broker that was named or that runs for this user; else a local one. */
async function chooseBroker(options: Options, key: string): Promise<RunBroker> {
  const named = isBrokerConfigured(options);
  const first = await connectToBroker(options, named ? CONNECT_MS : PROBE_TIMEOUT_MS).catch((cause: unknown) => {
    if (named || !(cause instanceof LaboroError) || cause.code !== "LABORO_BROKER_UNREACHABLE") throw cause;
    return undefined;
  });
  return first === undefined ? localBroker(options, key) : remoteBroker(first);
}

function remoteBroker(first: Client): RunBroker {
  return { isLocal: false, connect: async () => first, close: async () => first.close() };
}

/** `key` is the identity of the batch: its job is resumed, others are held. */
function localBroker(options: Options, key: string): RunBroker {
  const [tag] = options.tag;
  if (tag !== undefined)
    throw badInput(
      `--tag ${tag} is for workers with that tag, and without a broker there are none; ` +
        "to put the entry before each line of output: --tag-output",
    );
  const dir = localDataDir(".");
  const slots = options.jobs ?? availableParallelism();
  let local: LocalBroker | undefined;
  return {
    isLocal: true,
    connect: async (ownJob) => {
      await local?.close(false);
      local = await openLocalBroker(dir, slots, (job) => {
        if (job.id === ownJob || job.key === key) return false;
        // After the end of another run's broker, the jobs that are open belong to runs that still go on.
        if (ownJob === undefined)
          printNotice(`job ${job.id} (${job.name}) is not finished and is held: its own command line goes on with it`);
        return true;
      });
      return local.client;
    },
    close: async (finish) => local?.close(finish),
  };
}
