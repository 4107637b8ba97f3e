/** `laboro logs`: the output of tasks. */
import { Command, Option } from "commander";
import { badInput, LaboroError } from "../../base/errors.js";
import type { Client } from "../../client/client.js";
import type { OutputStream } from "../../model/outcome.js";
import { countOf, type Ranges } from "../../model/ranges.js";
import { addBrokerOptions, type BrokerChoice, withBroker } from "../lib/broker-connection.js";
import { parseWholeNumber } from "../lib/option-parsers.js";
import { selectJobs } from "../lib/select-jobs.js";
import { indicesOf, parseSelector } from "../lib/selectors.js";
import type { JobView } from "../lib/views.js";
import { followJob } from "./logs/job-follower.js";
import { endedTasks, printStored, runningTasks, type TaskAttempt } from "./logs/task-output.js";
import { type PrintOptions, TaskPrinter } from "./logs/task-printer.js";

interface Options extends BrokerChoice {
  readonly follow?: boolean;
  readonly stream?: OutputStream;
  readonly attempt?: number;
  readonly tag?: boolean;
  readonly json?: boolean;
  readonly raw?: boolean;
}

export function logs(): Command {
  const command = new Command("logs")
    .description(
      "Print the output of tasks in their order: what they wrote to standard output there, the rest to standard error. " +
        "Where output beyond its cap was not kept, a line on standard error says so.",
    )
    .argument("<selector>", "jobs: last, 3, 1-4,7, all; or tasks of one: 3.12, last.1-9")
    .option("-f, --follow", "go on with what comes, as it comes, until the tasks have ended")
    .addOption(new Option("--stream <stream>", "only this one").choices(["stdout", "stderr"]))
    .option(
      "--attempt <n>",
      "of this attempt, where a task was tried more than once (default: the last)",
      parseWholeNumber,
    )
    .option("--json", "a line of JSON for each piece: task, stream, offset, bytes; for a gap: task, offset, missing")
    .option("--raw", "to a terminal, too, with all escape sequences: otherwise only colours and text styles pass")
    .option("--tag", "JOB.TASK and a tab before every line")
    .addHelpText(
      "after",
      "\nExamples:\n  laboro logs last\n  laboro logs -f last --tag\n  laboro logs 3.12 --stream stderr --attempt 1",
    )
    .action(run);
  return addBrokerOptions(command);
}

async function run(text: string, options: Options): Promise<void> {
  const { jobs: selector, tasks } = parseSelector(text);
  if (options.follow === true && options.attempt !== undefined) {
    throw badInput("--attempt is for what has been; --follow shows each attempt as it comes");
  }
  await withBroker(options, async (client) => {
    const jobs = (await selectJobs(client, selector)).reverse();
    const [only] = jobs;
    const wanted = tasks && only && indicesOf(only, tasks);
    const several =
      jobs.length > 1 || (wanted === undefined ? jobs.some(({ count }) => count > 1) : countOf(wanted) > 1);
    const { stream } = options;
    const print: PrintOptions = {
      tag: options.tag === true,
      multipleTasks: several,
      json: options.json === true,
      raw: options.raw === true,
      ...(stream && { stream }),
    };
    if (options.follow === true) await Promise.all(jobs.map((job) => followJob(client, job, wanted, print)));
    else for (const job of jobs) await printJob(client, job, wanted, print, options.attempt);
  });
}

/** What there is now, in order of index, whether the task has ended or still runs. */
async function printJob(
  client: Client,
  { id }: JobView,
  wanted: Ranges | undefined,
  print: PrintOptions,
  attempt: number | undefined,
): Promise<void> {
  const printerOf = ({ number }: TaskAttempt): TaskPrinter => new TaskPrinter(`${id}.${number}`, print);
  await printStored(client, id, attempts(client, id, wanted, attempt), printerOf);
}

/** The last attempt of each task, or the one asked for of those that have had it. */
async function* attempts(
  client: Client,
  job: number,
  wanted: Ranges | undefined,
  attempt: number | undefined,
): AsyncGenerator<TaskAttempt> {
  let found = attempt === undefined;
  for await (const task of tasksInOrder(client, job, wanted)) {
    if (attempt === undefined) yield task;
    else if (attempt <= task.attempt) {
      found = true;
      yield { ...task, attempt };
    }
  }
  if (found || attempt === undefined) return;
  const [only] = wanted ?? [];
  if (only === undefined || only.first < only.last)
    throw new LaboroError("LABORO_NO_SUCH_TASK", `no task of job ${job} has had attempt ${attempt}`);
  // One that waits is in neither list. The broker refuses an attempt that there was not.
  const { number } = await client.ask("task", { job, index: only.first });
  yield { index: only.first, number, attempt };
}

async function* tasksInOrder(client: Client, job: number, wanted: Ranges | undefined): AsyncGenerator<TaskAttempt> {
  const running: TaskAttempt[] = [];
  for await (const task of runningTasks(client, job, wanted)) running.push(task);
  for await (const task of endedTasks(client, job, wanted)) {
    for (let first = running[0]; first !== undefined && first.index <= task.index; first = running[0]) {
      running.shift();
      // A task that has ended since the running ones were read is in both lists.
      if (first.index < task.index) yield first;
    }
    yield task;
  }
  yield* running;
}
