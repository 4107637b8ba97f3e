/** `laboro submit`: submits a job and prints its number. */
import type { Command } from "commander";
import { badInput, LaboroError } from "../../base/errors.js";
import type { Client } from "../../client/client.js";
import { addBrokerOptions, type BrokerChoice, openRunningBroker, withBroker } from "../lib/broker-connection.js";
import { printJson, printLines, printNotice } from "../lib/print.js";
import { overridesOf, readJobFile } from "../lib/submission/job-file.js";
import {
  addSubmissionOptions,
  makeSubmission,
  NOTHING_TO_DO,
  parseAfter,
  type SubmissionOptions,
} from "../lib/submission/options.js";
import { ParallelCommand } from "../lib/submission/parallel-options.js";
import { addDelayAndKeyOptions } from "../lib/submission/time-options.js";

interface Options extends SubmissionOptions, BrokerChoice {
  readonly file?: string;
  readonly hold?: boolean;
  readonly json?: boolean;
}

export function submit(): Command {
  const command = new ParallelCommand("submit")
    .description("Submit a job to the broker and print its number. The job is on the broker's disk by then.")
    .argument("[words...]", "the command; after ::: the entries")
    .passThroughOptions();
  addDelayAndKeyOptions(addSubmissionOptions(command))
    .option("--file <file>", "a job file: named tasks and their order; other options apply to all of its tasks")
    .option("--hold", "start no task until laboro release")
    .option("--json", "print JSON");
  return addBrokerOptions(command)
    .addHelpText(
      "after",
      `
Examples:
  laboro submit --each-line params.txt --slots 2 -- ./simulate {}
  laboro submit --after 7 --name report ./report.sh
  laboro submit --in 10m ./remind.sh
  laboro submit --key nightly --if-exists refuse --retries 3 --retry-wait 30s ./nightly.sh
  laboro submit --file night.toml`,
    )
    .action(perform);
}

async function perform(words: readonly string[], options: Options): Promise<void> {
  if (options.file !== undefined && words.length > 0) {
    throw badInput("--file defines the commands; a command cannot be given with it");
  }
  const held = options.hold === true ? { held: true } : {};
  if (options.file !== undefined) {
    const { file, hold, json, broker, data, local, verbose, ...submission } = options;
    const tasks = readJobFile(options.file, overridesOf(submission));
    await withBroker(options, (client) => submitFile(client, tasks, held, options.json === true), openRunningBroker);
    return;
  }
  const submission = makeSubmission(words, { ...options, after: [] }, true);
  if (submission.entries?.length === 0) {
    process.stderr.write(NOTHING_TO_DO);
    if (options.json === true) printJson({ job: null });
    return;
  }
  await withBroker(
    options,
    async (client) => {
      const after = (await resolveLast(client, options.after)).map(parseAfter);
      const job = await client.submit({ ...submission, ...held, ...(after.length === 0 ? {} : { after }) });
      const { id, existed } = job;
      if (existed && options.json !== true) printNotice(`job ${id} has the key ${options.key}: nothing was submitted`);
      if (options.json === true) printJson({ job: id, ...(existed ? { existed } : {}) });
      else printLines(String(id));
    },
    openRunningBroker,
  );
}

/** `last` is the newest job. */
async function resolveLast(client: Client, after: readonly string[]): Promise<readonly string[]> {
  if (!after.some((one) => /^(any:)?last$/.test(one))) return after;
  const [newest] = (await client.jobs({ limit: 1 })).jobs;
  if (newest === undefined) throw new LaboroError("LABORO_NO_SUCH_JOB", "--after last: there is no job yet");
  return after.map((one) => one.replace(/last$/, String(newest.id)));
}

/** The jobs are held until all are stored, so that nothing starts if one is refused. */
async function submitFile(
  client: Client,
  tasks: ReturnType<typeof readJobFile>,
  held: object,
  json: boolean,
): Promise<void> {
  const jobs = new Map<string, number>();
  /** Not those that had their key before. */
  const made: number[] = [];
  try {
    for (const { name, submission, after } of tasks) {
      const waits = after.map((other) => ({ job: jobs.get(other.name) ?? 0, any: other.any }));
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
