/** `laboro logs`: the output of tasks. */
import { Command, Option } from "commander";
import { badInput, LaboroError } from "../../base/errors.js";
import type { Client } from "../../client/client.js";
import type { OutputStream } from "../../model/outcome.js";
import { contains, countOf, difference, type Ranges, sizeOf } from "../../model/ranges.js";
import { addBrokerOptions, type BrokerChoice, followWithRetry, withBroker } from "../lib/broker-connection.js";
import { parseWholeNumber } from "../lib/option-parsers.js";
import { selectJobs } from "../lib/select-jobs.js";
import { indicesOf, parseSelector } from "../lib/selectors.js";
import type { JobView } from "../lib/views.js";
import {
  endedTasks,
  type PrintOptions,
  printLive,
  printStored,
  runningTasks,
  type TaskAttempt,
  TaskPrinter,
} from "./logs/task-output.js";

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
        "to standard error. A line on standard error reports output that was cut by --output-cap.",
    )
    .argument("<selector>", "jobs: last, 3, 1-4,7, all; or tasks of one: 3.12, last.1-9")
    .option("-f, --follow", "print new output as it comes, until the tasks have ended")
    .addOption(new Option("--stream <stream>", "print only this stream").choices(["stdout", "stderr"]))
    .option("--attempt <n>", "print the output of this attempt (default: the last)", parseWholeNumber)
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
  if (options.follow === true && options.attempt !== undefined) {
    throw badInput("--attempt cannot be used with --follow, which shows each attempt as it comes");
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
    if (options.follow === true)
      await Promise.all(jobs.map((job) => new JobFollower(client, job, wanted, print).run()));
    else for (const job of jobs) await printJob(client, job, wanted, print, options.attempt);
  });
}

/** Prints the output that exists now, of ended and running tasks, in order of index. */
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

/** The last attempt of each task, or the requested one of the tasks that have it. */
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
  // A waiting task is in neither list. The broker refuses an attempt that does not exist.
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

/** How many running tasks are followed live. The output of the others is printed when they end. */
const MAX_FOLLOWED = 64;

/** Follows the output of a job's tasks until all of them have ended. Each attempt of a task is printed once. */
class JobFollower {
  readonly #client: Client;
  readonly #job: JobView;
  readonly #wanted: Ranges;
  readonly #options: PrintOptions;
  /** INDEX:ATTEMPT of what was printed or is being followed. */
  readonly #seen = new Set<string>();
  readonly #live = new Set<Promise<void>>();
  /** Tasks that may still end. */
  #open: number;
  /** The first failure of a followed task. */
  #failure: unknown;

  constructor(client: Client, job: JobView, wanted: Ranges | undefined, options: PrintOptions) {
    this.#client = client;
    this.#job = job;
    const all = { first: 0, last: job.count - 1 };
    this.#wanted = wanted === undefined ? [all] : wanted;
    this.#options = options;
    // Tasks that were cancelled before they ran have no result.
    this.#open = 0;
    for (const range of this.#wanted) for (const part of difference(range, job.cancels)) this.#open += sizeOf(part);
  }

  async run(): Promise<void> {
    const { id, count } = this.#job;
    const has = difference({ first: 0, last: count - 1 }, this.#wanted);
    const isSelection = has.length > 0;
    for await (const { tasks, running = [] } of followWithRetry(this.#client, id, { has, live: true })) {
      await this.#printEnded(tasks);
      for (const task of running)
        if (contains(this.#wanted, task.index) && this.#live.size < MAX_FOLLOWED) this.#follow(task);
      if (this.#failure !== undefined) throw this.#failure;
      this.#open -= tasks.filter(({ index }) => !contains(this.#job.cancels, index)).length;
      // The other tasks of the job may run much longer.
      if (isSelection && this.#open <= 0) break;
    }
    await Promise.all(this.#live);
    if (this.#failure !== undefined) throw this.#failure;
  }

  async #printEnded(tasks: readonly TaskAttempt[]): Promise<void> {
    const unseen = tasks.filter((task) => this.#isNew(task));
    await printStored(this.#client, this.#job.id, toAsync(unseen), (task) => this.#printer(task));
  }

  #follow(task: TaskAttempt): void {
    if (!this.#isNew(task)) return;
    const following = printLive(this.#client, this.#job.id, task, this.#printer(task));
    this.#live.add(following);
    const remove = (): boolean => this.#live.delete(following);
    following.then(remove, (cause: unknown) => {
      this.#failure ??= cause;
      remove();
    });
  }

  #isNew({ index, attempt }: TaskAttempt): boolean {
    const name = `${index}:${attempt}`;
    return this.#seen.size !== this.#seen.add(name).size;
  }

  #printer({ number }: TaskAttempt): TaskPrinter {
    return new TaskPrinter(`${this.#job.id}.${number}`, this.#options);
  }
}

async function* toAsync<T>(items: Iterable<T>): AsyncGenerator<T> {
  yield* items;
}
