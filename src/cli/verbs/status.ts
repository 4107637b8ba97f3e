/** `laboro status`, and `laboro` alone: lists jobs, or shows one in detail. */
import { Command } from "commander";
import { badInput } from "../../base/errors.js";
import { ago, formatCount, pluralize, shortDuration } from "../../base/format.js";
import type { Client } from "../../client/client.js";
import { END_STATES } from "../../model/job.js";
import { paceOf, paceTexts, type UsageOf, usageReader } from "../lib/batch/progress-bar.js";
import { addBrokerOptions, type BrokerChoice, waitForBroker, withBroker } from "../lib/broker-connection.js";
import { parseDuration } from "../lib/option-parsers.js";
import { printJson, printLines } from "../lib/print.js";
import type { JobView, OperationOutput } from "../lib/result-text.js";
import {
  isSingleJob,
  JOB_STATES,
  type JobFilter,
  type JobSelector,
  listJobs,
  parseJobSelector,
  selectJobs,
  stateParser,
} from "../lib/select-jobs.js";
import { type Cell, type Column, type Screen, table, watchScreen } from "../lib/terminal/table.js";
import { detectTerminal, escapeControls, paint, stateColour, type Terminal } from "../lib/terminal/terminal.js";
import { done, jobDetailLines } from "./status/job.js";

interface Options extends BrokerChoice {
  readonly all?: boolean;
  readonly state?: JobFilter["state"];
  readonly name?: string;
  readonly pool?: string;
  readonly wait?: number;
  readonly watch?: boolean;
  readonly json?: boolean;
}

/** Ended jobs that are shown beside the open ones. */
const RECENT = 5;
/** Further jobs are not counted. */
const MAX_ENDED_SCANNED = 200;

export function status(): Command {
  const command = new Command("status")
    .description(
      "List the open jobs and the last ones that ended, with their progress. With a selector, show one job in detail: " +
        "its progress, which tasks failed and why, and where tasks run.",
    )
    .argument("[selector]", "jobs: last, 3, 1-4,7, all")
    .option("--all", "list every job, not only the last ones")
    .option("--state <states>", `list only jobs in these states: ${JOB_STATES.join(", ")}`, stateParser(JOB_STATES))
    .option("--name <name>", "list only jobs with this name; * stands for any text")
    .option("--pool <name>", "list only jobs of this pool")
    .option("--wait <duration>", "wait up to this long for the broker to answer: 10s", parseDuration)
    .option("--watch", "redraw every second until Ctrl-C, or until the job has ended; with rate and remaining time")
    .option("--json", "print one JSON document")
    .addHelpText(
      "after",
      "\nExamples:\n  laboro status\n  laboro status last\n  laboro status --all --state failed --name 'train*'\n  laboro status last --watch\n  laboro status --wait 10s",
    )
    .action(run);
  return addBrokerOptions(command);
}

export async function run(text: string | undefined, options: Options): Promise<void> {
  const selector = text === undefined ? undefined : parseJobSelector(text);
  if (options.wait !== undefined && options.local !== true) await waitForBroker(options, options.wait);
  if (options.watch === true && options.json === true) throw badInput("--watch and --json exclude each other");
  await withBroker(options, async (client) => {
    if (options.json === true) printJson(await asJson(client, selector, options));
    else if (options.watch === true) await watchScreen(screenOf(client, selector, options));
    else printLines(...(await screenOf(client, selector, options)()).lines);
  });
}

async function asJson(client: Client, selector: JobSelector | undefined, options: Options): Promise<unknown> {
  if (selector === undefined) {
    const [broker, { jobs, hidden }] = await Promise.all([client.ask("status", {}), jobsToShow(client, options)]);
    return { broker, jobs, hidden };
  }
  const jobs = await selectJobs(client, selector, filterOf(options));
  const [job] = jobs;
  if (job === undefined || !isSingleJob(selector)) return { jobs };
  const usage = await client.ask("usage", { job: job.id });
  const pace = paceOf(job, usage);
  if (pace === undefined) return { ...job, usage };
  const { ran, left, ms } = pace;
  return { ...job, usage, perSecond: (1000 * ran) / ms, leftMs: Math.round((left * ms) / ran) };
}

function screenOf(client: Client, selector: JobSelector | undefined, options: Options): () => Promise<Screen> {
  const usageOf = usageReader((job) => client.ask("usage", { job }));
  // A plain list asks nothing of each job.
  const usageOfRows = options.watch === true ? usageOf : undefined;
  return async () => {
    if (selector === undefined) return { lines: await listLines(client, options, usageOfRows), complete: false };
    const jobs = await selectJobs(client, selector, filterOf(options));
    const complete = jobs.every(({ ended }) => ended !== undefined);
    const [job] = jobs;
    const terminal = detectTerminal();
    if (job === undefined || !isSingleJob(selector))
      return { lines: await jobTable(jobs, terminal, usageOfRows), complete };
    return { lines: await jobDetailLines(client, job, terminal, usageOf), complete };
  };
}

async function listLines(client: Client, options: Options, usageOf: UsageOf | undefined): Promise<string[]> {
  const [broker, { jobs, hidden, truncated }] = await Promise.all([
    client.ask("status", {}),
    jobsToShow(client, options),
  ]);
  const terminal = detectTerminal();
  const lines = [...brokerLines(broker, terminal), ""];
  const none = isFiltered(options) ? "no job matches" : "there is no job yet; laboro run or laboro submit gives one";
  lines.push(...(jobs.length === 0 ? [none] : await jobTable(jobs, terminal, usageOf)));
  if (hidden === 0) return lines;
  const count = truncated ? `more than ${pluralize(hidden, "other job")}` : pluralize(hidden, "other job");
  const verb = hidden === 1 && !truncated ? "is" : "are";
  return [...lines, "", `${count} ${verb} not shown; laboro status --all shows every one`];
}

interface JobListing {
  readonly jobs: readonly JobView[];
  readonly hidden: number;
  /** There are more hidden jobs than were counted. */
  readonly truncated: boolean;
}

/** Open jobs first, then ended ones, each newest first. */
async function jobsToShow(client: Client, options: Options): Promise<JobListing> {
  const filter = filterOf(options);
  if (options.all === true || options.state !== undefined) {
    const jobs = await listJobs(client, filter);
    return { jobs: jobs.sort((a, b) => endedRank(a) - endedRank(b)), hidden: 0, truncated: false };
  }
  const [open, ended] = await Promise.all([
    listJobs(client, { ...filter, state: ["open"] }),
    client.ask("jobs", { ...filter, state: [...END_STATES], limit: MAX_ENDED_SCANNED }),
  ]);
  // Sorted by their ends: a long job that has just ended comes first.
  const recent = [...ended.jobs].sort((a, b) => (b.ended ?? 0) - (a.ended ?? 0)).slice(0, RECENT);
  return { jobs: [...open, ...recent], hidden: ended.jobs.length - recent.length, truncated: ended.next !== undefined };
}

const endedRank = ({ ended }: JobView): number => (ended === undefined ? 0 : 1);

const isFiltered = ({ state, name, pool }: Options): boolean => (state ?? name ?? pool) !== undefined;

function filterOf({ state, name, pool }: Options): JobFilter {
  return { ...(state && { state }), ...(name && { name }), ...(pool && { pool }) };
}

function brokerLines(broker: OperationOutput<"status">, terminal: Terminal): string[] {
  const { workers, slots, jobs, tasks, refusing, halted, requests } = broker;
  const others = (["disconnected", "draining"] as const)
    .filter((state) => workers[state] > 0)
    .map((state) => `, ${formatCount(workers[state])} ${state}`)
    .join("");
  const parts = [
    workers.connected === 0
      ? `no worker is connected${others}`
      : `${pluralize(workers.connected, "worker")}${others} with ${pluralize(slots.total, "slot")}, ${formatCount(slots.free)} free`,
    `${pluralize(tasks.running, "task")} running, ${formatCount(tasks.waiting)} waiting`,
    jobs.delayed === 0 ? "" : `${pluralize(jobs.delayed, "job")} delayed`,
    requests.running + requests.waiting === 0
      ? ""
      : `${pluralize(requests.running + requests.waiting, "request")} under way`,
  ];
  const lines = [parts.filter((part) => part !== "").join("; ")];
  if (refusing !== undefined)
    lines.push(paint(terminal, "red", `the broker takes nothing new: ${refusing.message} (${refusing.code})`));
  else if (halted !== undefined) lines.push(paint(terminal, "yellow", `the broker assigns nothing: ${halted}`));
  for (const { pool, since, reason } of broker.pausedPools)
    lines.push(
      paint(
        terminal,
        "yellow",
        `pool ${escapeControls(pool)} was paused ${ago(since)}${reason === undefined ? "" : `: ${escapeControls(reason)}`}`,
      ),
    );
  lines.push(...broker.damage.map((report) => paint(terminal, "red", `${report} (LABORO_DATA_LOST)`)));
  return lines;
}

const COLUMNS: readonly Column[] = [
  { title: "JOB", align: "right" },
  { title: "NAME", minWidth: 6 },
  { title: "STATE" },
  { title: "DONE", align: "right" },
  { title: "FAILED", align: "right", dropPriority: 2 },
  { title: "RUNNING", align: "right", dropPriority: 3 },
  { title: "RATE", align: "right", dropPriority: 2 },
  { title: "LEFT", align: "right", dropPriority: 2 },
  { title: "POOL", minWidth: 6, dropPriority: 5 },
  { title: "AGE", align: "right", dropPriority: 1 },
  { title: "ELAPSED", align: "right", dropPriority: 4 },
];

async function jobTable(jobs: readonly JobView[], terminal: Terminal, usageOf?: UsageOf): Promise<string[]> {
  const pace = async (job: JobView): Promise<readonly string[]> =>
    usageOf === undefined || job.counters.running === 0 || done(job) === 0 ? [] : paceTexts(job, await usageOf(job.id));
  const rows = jobs.map(async (job) => rowOf(job, await pace(job)));
  return table(COLUMNS, await Promise.all(rows), terminal);
}

function rowOf(job: JobView, [rate = "", left = ""]: readonly string[]): Cell[] {
  const now = Date.now();
  const { succeeded, failed, cancelled, running } = job.counters;
  return [
    String(job.id),
    job.name,
    { text: job.state, colour: stateColour(job.state) },
    `${formatCount(succeeded + failed + cancelled)}/${formatCount(job.count)}`,
    { text: failed === 0 ? "" : formatCount(failed), colour: "red" },
    running === 0 ? "" : formatCount(running),
    ...[rate, left],
    job.pool === "default" ? "" : job.pool,
    shortDuration(now - job.created),
    job.ended === undefined ? "" : shortDuration(job.ended - job.created),
  ];
}
