/** `laboro logs`: the output of tasks. */
import { Command, Option } from "commander";
import { badInput, LaboroError } from "../../base/errors.js";
import { formatSize } from "../../base/format.js";
import type { Client } from "../../client/client.js";
import type { OutputStream } from "../../model/outcome.js";
import { contains, countOf, difference, type Ranges, sizeOf } from "../../model/ranges.js";
import { taskNumber } from "../../model/task-numbers.js";
import {
  addBrokerOptions,
  type BrokerChoice,
  followWithRetry,
  repeatWhileGone,
  withBroker,
} from "../lib/broker-connection.js";
import { wholeNumber } from "../lib/option-parsers.js";
import { bytesToJson, printNotice } from "../lib/print.js";
import { type JobView, pages } from "../lib/result-text.js";
import { indicesOf, parseSelector, selectJobs } from "../lib/select-jobs.js";
import type { TaskAttempt } from "../lib/task-output/attempt-output.js";
import { OutputPrinter } from "../lib/task-output/output-printer.js";
import { LineOutput, OutputWriter, type TaskWriter } from "../lib/task-output/output-writer.js";

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
      "Print the output of tasks, in the order of the tasks: their standard output to standard output, their standard error " +
        "to standard error, byte for byte; with --tag, and with --follow of several tasks, in whole lines. A line on standard " +
        "error reports output that was cut by --output-cap.",
    )
    .argument("<selector>", "jobs: last, 3, 1-4,7, all; or tasks of one: 3.12, last.1-9")
    .option("-f, --follow", "print new output as it comes, until the tasks have ended")
    .addOption(new Option("--stream <stream>", "print only this stream").choices(["stdout", "stderr"]))
    .option("--attempt <n>", "print the output of this attempt (default: the last)", wholeNumber(1, 1))
    .option(
      "--json",
      "print a line of JSON for each piece: task, stream, offset, bytes; for a gap: task, offset, missing",
    )
    .option("--raw", "do not remove escape sequences; by default a terminal gets colours and text styles only")
    .option("--tag", "put JOB.TASK and a tab before every line")
    .addHelpText(
      "after",
      "\nExamples:\n  laboro logs last\n  laboro logs -f last --tag\n  laboro logs 3.12 --stream stderr --attempt 1",
    )
    .action(run);
  return addBrokerOptions(command);
}

async function run(text: string, options: Options): Promise<void> {
  const { jobs: selector, tasks } = parseSelector(text);
  const { follow = false, raw = false, attempt } = options;
  if (follow && attempt !== undefined) {
    throw badInput("--attempt cannot be used with --follow, which shows each attempt as it comes");
  }
  await withBroker(options, async (client) => {
    const jobs = (await selectJobs(client, selector)).reverse();
    const [only] = jobs;
    const wanted = tasks && only && indicesOf(only, tasks);
    const several =
      jobs.length > 1 || (wanted === undefined ? jobs.some(({ count }) => count > 1) : countOf(wanted) > 1);
    const writer = new OutputWriter({ raw });
    const printerOf = (job: JobView): OutputPrinter => printerFor(client, job, writer, options, follow && several);
    if (follow) await Promise.all(jobs.map((job) => followJob(client, job, wanted, printerOf(job))));
    else for (const job of jobs) await printJob(client, job, wanted, printerOf(job), attempt);
    writer.endLine();
  });
}

/** `mixed`: output of several tasks is printed as it comes, so it is written in whole lines. */
function printerFor(
  client: Client,
  job: JobView,
  writer: OutputWriter,
  { tag = false, json = false, stream, follow = false }: Options,
  mixed: boolean,
): OutputPrinter {
  const nameOf = (index: number): string => `${job.id}.${taskNumber(job, index)}`;
  const printJson = (line: object): Promise<void> => writer.write("stdout", Buffer.from(`${JSON.stringify(line)}\n`));
  const jsonWriter = (index: number): TaskWriter => ({
    stopped: false,
    write: (from, bytes, offset) => printJson({ task: nameOf(index), stream: from, offset, bytes: bytesToJson(bytes) }),
  });
  const lines = (index: number): TaskWriter => new LineOutput(writer, tag ? `${nameOf(index)}\t` : "");
  return new OutputPrinter({
    ...{ job: job.id, writer, stream, live: follow },
    withRetry: (act) => repeatWhileGone(client, act),
    writerOf: json ? jsonWriter : tag || mixed ? lines : () => writer,
    onGap: (index, offset, missing) => {
      if (json) void printJson({ task: nameOf(index), offset, missing });
      else printNotice(`[${nameOf(index)}: ${formatSize(missing)} of output were not kept here, see --output-cap]`);
    },
  });
}

/** Tasks that are printed together. */
const PAGE = 1_000;

/** Prints the output that exists now, of ended and running tasks, in order of index. */
async function printJob(
  client: Client,
  { id }: JobView,
  wanted: Ranges | undefined,
  printer: OutputPrinter,
  attempt: number | undefined,
): Promise<void> {
  let page: TaskAttempt[] = [];
  for await (const task of attempts(client, id, wanted, attempt)) {
    if (page.push(task) < PAGE) continue;
    await printer.add(page);
    page = [];
  }
  await printer.add(page);
}

/** The last attempt of each task, or the requested one of the tasks that have it. */
async function* attempts(
  client: Client,
  job: number,
  wanted: Ranges | undefined,
  attempt: number | undefined,
): AsyncGenerator<TaskAttempt> {
  let found = attempt === undefined;
  for await (const task of tasksInOrder(client, job, wanted)) {
    if (attempt === undefined || attempt === task.attempt) yield task;
    else if (attempt < task.attempt) yield { index: task.index, attempt };
    found ||= attempt === undefined || attempt <= task.attempt;
  }
  if (found || attempt === undefined) return;
  const [only] = wanted ?? [];
  if (only === undefined || only.first < only.last)
    throw new LaboroError("LABORO_NO_SUCH_TASK", `no task of job ${job} has had attempt ${attempt}`);
  // A waiting task is in neither list. The broker refuses an attempt that does not exist.
  yield { index: only.first, attempt };
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

/** Tasks that have ended, in order of index. */
async function* endedTasks(client: Client, job: number, wanted?: Ranges): AsyncGenerator<TaskAttempt> {
  const end = wanted?.at(-1)?.last ?? Number.POSITIVE_INFINITY;
  const read = (from: number) => client.ask("tasks", { job, from, limit: Math.min(PAGE, end - from + 1) });
  for await (const { tasks, next = end } of pages(read, wanted?.[0]?.first)) {
    for (const task of tasks) if (task.index <= end && isWanted(task.index, wanted)) yield task;
    if (next > end) return;
  }
}

/** Tasks that run, in order of index. */
async function* runningTasks(client: Client, job: number, wanted?: Ranges): AsyncGenerator<TaskAttempt> {
  for await (const page of pages((from) => client.ask("running", { job, from })))
    for (const { index, attempt } of page.tasks) if (isWanted(index, wanted)) yield { index, attempt };
}

const isWanted = (index: number, wanted: Ranges | undefined): boolean =>
  wanted === undefined || contains(wanted, index);

/** Follows the output of a job's tasks until all of them have ended. */
async function followJob(
  client: Client,
  { id, count, cancels }: JobView,
  selected: Ranges | undefined,
  printer: OutputPrinter,
): Promise<void> {
  const all = { first: 0, last: count - 1 };
  const wanted = selected ?? [all];
  const has = difference(all, wanted);
  const isSelection = has.length > 0;
  // Tasks that may still end. Those that were cancelled before they ran have no result.
  let open = 0;
  for (const range of wanted) for (const part of difference(range, cancels)) open += sizeOf(part);
  for await (const { tasks, running = [] } of followWithRetry(client, id, { has, live: true })) {
    printer.outputStored(running.filter(({ index }) => contains(wanted, index)));
    await printer.add(tasks);
    open -= tasks.filter(({ index }) => !contains(cancels, index)).length;
    // The other tasks of the job may run much longer.
    if (isSelection && open <= 0) break;
  }
  await printer.livePrinted();
}
