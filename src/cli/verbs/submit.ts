/** `laboro submit`: submits a job and prints its number. */
import type { Command } from "commander";
import { badInput } from "../../base/errors.js";
import type { Client } from "../../client/client.js";
import { submitWithFiles } from "../../client/task-files.js";
import { addBrokerOptions, type BrokerChoice, openBrokerForJob, withBroker } from "../lib/broker-connection.js";
import { onInterrupt } from "../lib/interrupt.js";
import { textLike } from "../lib/option-parsers.js";
import { printJson, printLines, printNotice } from "../lib/print.js";
import { parseJobSelector, selectJob } from "../lib/select-jobs.js";
import { addAfterOption, dependenciesOf, dependencyKind } from "../lib/submission/after.js";
import { makeAppend } from "../lib/submission/entries.js";
import { overridesOf, readJobFile } from "../lib/submission/job-file.js";
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
import { addDelayAndKeyOptions } from "../lib/submission/time-options.js";

interface Options extends SubmissionOptions, FileOptions, BrokerChoice {
  readonly file?: string;
  readonly after: readonly string[];
  readonly hold?: boolean;
  readonly job?: string;
  readonly json?: boolean;
}

export function submit(): Command {
  const command = new ParallelCommand("submit")
    .description("Submit a job to the broker and print its number. The job is on the broker's disk by then.")
    .argument("[words...]", "the command; after ::: the entries")
    .passThroughOptions();
  addAfterOption(addDelayAndKeyOptions(addFileOptions(addParallelOptions(addSubmissionOptions(command)))))
    .option("--file <file>", "a job file: named tasks and their order; other options apply to all of its tasks")
    .option("--hold", "start no task until laboro release")
    .option("--open", "the job takes more tasks, by --job, until laboro close; its list of entries may be empty")
    .option(
      "--job <job>",
      "add tasks to this open job: entries or --array, no command",
      textLike("7 or last", "a job", /^(last|\d+)$/),
    )
    .option("--json", "print JSON");
  return addBrokerOptions(groupOptions(command))
    .addHelpText(
      "after",
      `
Examples:
  laboro submit --each-line params.txt --slots 2 -- ./simulate {}
  laboro submit --after 7 --name report ./report.sh
  laboro submit --in 10m ./remind.sh
  laboro submit --key nightly --if-exists refuse --retries 3 --retry-wait 30s ./nightly.sh
  laboro submit --file night.toml
  laboro submit --open ./simulate {} && laboro submit --job last ::: a b && laboro close last`,
    )
    .action(perform);
}

async function perform(words: readonly string[], options: Options): Promise<void> {
  if (options.file !== undefined && words.length > 0) {
    throw badInput("--file defines the commands; a command cannot be given with it");
  }
  if (options.job !== undefined) return appendTasks(words, options, options.job);
  const held = options.hold === true ? { held: true } : {};
  if (options.file !== undefined) {
    const { file, hold, json, broker, data, local, verbose, ...submission } = options;
    const tasks = readJobFile(options.file, overridesOf(submission));
    await withBroker(options, (client) => submitFile(client, tasks, held, options.json === true), openBrokerForJob);
    return;
  }
  const open = options.open === true ? { open: true } : {};
  const submission = withFiles(makeSubmission(words, options, true), options);
  if (submission.entries?.length === 0 && options.open !== true) {
    process.stderr.write(NOTHING_TO_DO);
    if (options.json === true) printJson({ job: null });
    return;
  }
  await withBroker(
    options,
    async (client) => {
      const whole = { ...submission, ...held, ...open, ...(await dependenciesOf(client, options.after)) };
      const sends = submission.recipe.kind !== "call" && submission.recipe.files?.sent !== undefined;
      // Instead of the listener that ends the process at once.
      if (sends) process.removeAllListeners("SIGINT");
      const interrupt = sends ? onInterrupt() : undefined;
      const { id, existed } = await submitWithFiles(client, whole, process.cwd(), { signal: interrupt?.once })
        .catch((cause: unknown) => {
          if (interrupt?.once.aborted !== true) throw cause;
          printNotice("interrupted while files were sent: the job is cancelled");
          process.exit(interrupt.exitCode);
        })
        .finally(() => interrupt?.dispose());
      if (existed && options.json !== true) printNotice(`job ${id} has the key ${options.key}: nothing was submitted`);
      if (options.json === true) printJson({ job: id, ...(existed ? { existed } : {}) });
      else printLines(String(id));
    },
    openBrokerForJob,
  );
}

/** What `--job` can be used with. */
const WITH_JOB = ["job", "json", "array", "eachLine", "null", "delimiter", "colsep", "fromJson"];
const BROKER = ["broker", "data", "local", "verbose"];

async function appendTasks(words: readonly string[], options: Options, text: string): Promise<void> {
  for (const [name, value] of Object.entries(options)) {
    if (WITH_JOB.includes(name) || BROKER.includes(name) || (Array.isArray(value) && value.length === 0)) continue;
    throw badInput(`--${name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)} cannot be used with --job`);
  }
  const selector = parseJobSelector(text);
  const tasks = makeAppend(words, options);
  if ("entries" in tasks && tasks.entries.length === 0) {
    process.stderr.write(NOTHING_TO_DO);
    if (options.json === true) printJson({ job: null });
    return;
  }
  await withBroker(
    options,
    async (client) => {
      const { id } = await selectJob(client, selector);
      const { first, count } = await client.append({ job: id, ...tasks });
      if (options.json === true) printJson({ job: id, first, count });
      else printLines(String(id));
    },
    openBrokerForJob,
  );
}

/** The jobs are held until all are stored, so that nothing starts if one is refused. */
async function submitFile(
  client: Client,
  tasks: ReturnType<typeof readJobFile>,
  held: object,
  json: boolean,
): Promise<void> {
  const jobs = new Map<string, number>();
  /** Without jobs that existed under their key before. */
  const made: number[] = [];
  try {
    for (const { name, submission, after } of tasks) {
      const waits = after.map((other) => ({ job: jobs.get(other.name) ?? 0, ...dependencyKind(other.kind) }));
      const { id, existed } = await client.submit({ ...submission, after: waits, held: true });
      jobs.set(name, id);
      if (!existed) made.push(id);
    }
  } catch (cause) {
    for (const id of made.reverse()) await client.job(id).cancel(undefined, "another task of its file was refused");
    throw cause;
  }
  if (!("held" in held)) for (const id of made) await client.job(id).release();
  if (json) printJson({ jobs: Object.fromEntries(jobs) });
  else for (const [name, id] of jobs) printLines(`${id}\t${name}`);
}
