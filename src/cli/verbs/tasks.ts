/** `laboro tasks`: the tasks of a job, one line each. */
import { Command, InvalidArgumentError } from "commander";
import { badInput } from "../../base/errors.js";
import { ago, formatSize, pluralize, shortDuration } from "../../base/format.js";
import { rangesOf } from "../../model/ranges.js";
import { taskNumber } from "../../model/task-numbers.js";
import { addBrokerOptions, type BrokerChoice, withBroker } from "../lib/broker-connection.js";
import { type ListedTask, listTasks, TASK_STATES, type TaskState } from "../lib/list-tasks.js";
import { textLike, wholeNumber } from "../lib/option-parsers.js";
import { printJson, printLines } from "../lib/print.js";
import { entryLabel, type JobView, outcomeText } from "../lib/result-text.js";
import { formatRanges, indicesOf, parseSelector, selectJob, stateParser } from "../lib/select-jobs.js";
import { suggestion } from "../lib/suggest.js";
import { type Cell, type Column, table } from "../lib/terminal/table.js";
import { detectTerminal, stateColour } from "../lib/terminal/terminal.js";

interface Options extends BrokerChoice {
  readonly state?: readonly TaskState[];
  readonly worker?: string;
  readonly entry?: string;
  readonly sort: Order;
  readonly limit?: number;
  readonly ids?: boolean;
  readonly json?: boolean;
}

/** Sort keys. A task without the value comes last. */
const ORDERS = {
  number: (task: ListedTask) => task.index,
  started: (task: ListedTask) => task.started ?? Number.POSITIVE_INFINITY,
  duration: (task: ListedTask) => -(durationOf(task) ?? -1),
  cpu: (task: ListedTask) => -(task.cpuMs ?? -1),
  memory: (task: ListedTask) => -(task.peakMemory ?? -1),
  output: (task: ListedTask) => -(task.outputBytes ?? -1),
  attempts: (task: ListedTask) => -(task.attempt ?? -1),
} as const;

type Order = keyof typeof ORDERS;
const ORDER_NAMES = Object.keys(ORDERS) as Order[];
/** Listed by default. Waiting tasks have only a number to show. */
const BEGUN: readonly TaskState[] = ["running", "succeeded", "failed", "cancelled"];

export function tasks(): Command {
  const command = new Command("tasks")
    .description(
      "List the tasks of a job: number, entry, state, exit code or signal, attempts, worker, start, duration, CPU time, " +
        "peak memory, size of the output. Waiting tasks are only counted; --state waiting lists them.",
    )
    .argument("<selector>", "a job, or tasks of it: last, 3, 3.1-10")
    .option("--state <states>", `list only tasks in these states: ${TASK_STATES.join(", ")}`, stateParser(TASK_STATES))
    .option("--worker <name>", "list only tasks that this worker has run or is running", textLike("node1"))
    .option(
      "--entry <glob>",
      "list only tasks whose whole entry matches: * is any text, ? any character",
      textLike("'*.csv'"),
    )
    .option(
      "--sort <order>",
      `${ORDER_NAMES.join(", ")}: number and started in ascending order, the others the largest first`,
      parseOrder,
      "number",
    )
    .option("--limit <n>", "list at most N tasks", wholeNumber(10, 1))
    .option("--ids", "print only a selector of these tasks, for other verbs: 3.1-4,7")
    .option("--json", "print one JSON document")
    .addHelpText(
      "after",
      "\nExamples:\n  laboro tasks last --state failed\n  laboro tasks 3 --sort duration --limit 10\n" +
        "  laboro logs $(laboro tasks last --entry '*.csv' --state failed --ids)",
    )
    .action(run);
  return addBrokerOptions(command);
}

async function run(text: string, options: Options): Promise<void> {
  const { jobs: selector, tasks: numbers } = parseSelector(text);
  if (options.ids === true && options.json === true) throw badInput("--ids and --json exclude each other");
  await withBroker(options, async (client) => {
    const job = await selectJob(client, selector);
    const matching = await listTasks(client, job, {
      states: options.state ?? BEGUN,
      ...(numbers === undefined ? {} : { indices: indicesOf(job, numbers) }),
      ...(options.worker === undefined ? {} : { worker: options.worker }),
      ...(options.entry === undefined ? {} : { entry: options.entry }),
      // One more than are shown: then there are more.
      ...(options.limit === undefined || options.sort !== "number" ? {} : { limit: options.limit + 1 }),
    });
    const key = ORDERS[options.sort];
    const found = matching.sort((a, b) => key(a) - key(b)).slice(0, options.limit);
    if (options.json === true) printJson({ job: job.id, tasks: found });
    else if (options.ids === true) printLines(...idLines(job, found));
    else printLines(...taskLines(job, found, matching.length, options));
  });
}

/** Empty if no task matches: then the verb that gets it as its selector refuses to run. */
function idLines(job: JobView, found: readonly ListedTask[]): string[] {
  if (found.length === 0) return [];
  const runs = rangesOf(found.map(({ index }) => index).sort((a, b) => a - b));
  const numbers = runs.map(({ first, last }) => ({ first: taskNumber(job, first), last: taskNumber(job, last) }));
  return [`${job.id}.${formatRanges(numbers)}`];
}

const COLUMNS: readonly Column[] = [
  { title: "TASK", align: "right" },
  { title: "ENTRY", minWidth: 8, dropPriority: 1, keepEnd: true },
  { title: "STATE" },
  { title: "OUTCOME", minWidth: 12, dropPriority: 2 },
  { title: "ATTEMPTS", align: "right", dropPriority: 5 },
  { title: "WORKER", minWidth: 8, dropPriority: 3 },
  { title: "STARTED", align: "right", dropPriority: 7 },
  { title: "DURATION", align: "right", dropPriority: 4 },
  { title: "CPU", align: "right", dropPriority: 8 },
  { title: "MEMORY", align: "right", dropPriority: 9 },
  { title: "OUTPUT", align: "right", dropPriority: 6 },
];

function taskLines(job: JobView, found: readonly ListedTask[], matching: number, options: Options): string[] {
  const lines =
    found.length === 0
      ? []
      : table(
          COLUMNS,
          found.map((task) => rowOf(job, task)),
          detectTerminal(),
        );
  const { waiting } = job.counters;
  if (matching > found.length) lines.push(`and ${moreText(job, found.length, matching, options)}`);
  if (options.state === undefined && waiting > 0)
    lines.push(`${pluralize(waiting, "task")} ${waiting === 1 ? "waits" : "wait"}; --state waiting lists them`);
  return lines.length > 0 ? lines : [`no task of job ${job.id} matches`];
}

/** In order of the numbers, the tasks after the shown ones are not read. */
function moreText({ counters }: JobView, shown: number, matching: number, options: Options): string {
  const { sort, state = BEGUN, worker, entry } = options;
  if (sort !== "number") return pluralize(matching - shown, "more task");
  if (worker !== undefined || entry !== undefined) return "more tasks";
  return pluralize(state.reduce((sum, one) => sum + counters[one], 0) - shown, "more task");
}

function rowOf({ limits }: JobView, task: ListedTask): Cell[] {
  const { number, entry, state, attempt, worker, started, cpuMs, peakMemory, outputBytes } = task;
  const duration = durationOf(task);
  const outcome = outcomeText(task, limits.timeLimitMs);
  return [
    String(number),
    entry === undefined ? "" : entryLabel(entry),
    { text: state, colour: stateColour(state) },
    outcome === state ? "" : outcome,
    attempt === undefined || attempt < 2 ? "" : String(attempt),
    worker ?? "",
    started === undefined ? "" : ago(started),
    duration === undefined ? "" : shortDuration(duration),
    cpuMs === undefined ? "" : shortDuration(cpuMs),
    peakMemory === undefined ? "" : formatSize(peakMemory),
    outputBytes === undefined || outputBytes === 0 ? "" : formatSize(outputBytes),
  ];
}

function durationOf({ started, ended, state }: ListedTask): number | undefined {
  if (started === undefined) return undefined;
  return ended === undefined ? (state === "running" ? Date.now() - started : undefined) : ended - started;
}

function parseOrder(text: string): Order {
  const found = ORDER_NAMES.find((name) => name === text);
  if (found !== undefined) return found;
  throw new InvalidArgumentError(
    `no order ${JSON.stringify(text)}${suggestion(text, ORDER_NAMES)}; there are ${ORDER_NAMES.join(", ")}`,
  );
}
