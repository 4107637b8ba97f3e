/** `laboro status`, and `laboro` alone: lists jobs, or shows one in detail. */
import { Command } from "commander";
import { badInput } from "../../base/errors.js";
import { ago, formatCount, formatSize, pluralize, shortDuration } from "../../base/format.js";
import type { Client } from "../../client/client.js";
import { DEFAULT_LIMITS, haltRuleOf, MAX_MS } from "../../model/job.js";
import { paceOf, paceTexts, type UsageOf, usageReader } from "../lib/batch/progress-bar.js";
import { addBrokerOptions, type BrokerChoice, waitForBroker, withBroker } from "../lib/broker-connection.js";
import { formatDuration, parseDuration } from "../lib/option-parsers.js";
import { printJson, printLines } from "../lib/print.js";
import { countersText, failureLines, type JobView, type OperationOutput } from "../lib/result-text.js";
import {
  ENDED_STATES,
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
import {
  detectTerminal,
  escapeControls,
  paint,
  stateColour,
  type Terminal,
  truncate,
} from "../lib/terminal/terminal.js";

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

async function run(text: string | undefined, options: Options): Promise<void> {
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
  const none = isFiltered(options)
    ? "no job is like that"
    : "there is no job yet; laboro run or laboro submit gives one";
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
    client.ask("jobs", { ...filter, state: [...ENDED_STATES], limit: MAX_ENDED_SCANNED }),
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
  const { workers, slots, jobs, tasks, refusing, requests } = broker;
  const disconnected = workers.disconnected === 0 ? "" : `, ${formatCount(workers.disconnected)} disconnected`;
  const parts = [
    workers.connected === 0
      ? `no worker is connected${disconnected}`
      : `${pluralize(workers.connected, "worker")}${disconnected} with ${pluralize(slots.total, "slot")}, ${formatCount(slots.free)} free`,
    `${pluralize(tasks.running, "task")} running, ${formatCount(tasks.waiting)} waiting`,
    jobs.delayed === 0 ? "" : `${pluralize(jobs.delayed, "job")} delayed`,
    requests.running + requests.waiting === 0
      ? ""
      : `${pluralize(requests.running + requests.waiting, "request")} under way`,
  ];
  const lines = [parts.filter((part) => part !== "").join("; ")];
  if (refusing !== undefined)
    lines.push(paint(terminal, "red", `the broker takes nothing new: ${refusing.message} (${refusing.code})`));
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

const MAX_FAILURES = 20;
const MAX_RUNNING = 20;
const BAR = 40;

type RunningTask = OperationOutput<"running">["tasks"][number];

async function jobDetailLines(client: Client, job: JobView, terminal: Terminal, usageOf: UsageOf): Promise<string[]> {
  const usage = done(job) > 0 ? await usageOf(job.id) : undefined;
  const [rate, left] = usage === undefined ? [] : paceTexts(job, usage);
  const pace = left === undefined ? "" : `, ${rate}, ${left} left`;
  const lines = [...headLines(job, terminal), "", ...progressLines(job, terminal, pace)];
  if (usage !== undefined && usage.tasks > 0) lines.push(usageText(usage));
  const failures = await failureLines(client, job, MAX_FAILURES);
  if (failures.length > 0) lines.push("", ...failures.map((line) => fitted(line, terminal)));
  if (job.counters.running > 0) {
    const { tasks } = await client.ask("running", { job: job.id, limit: MAX_RUNNING });
    if (tasks.length > 0) lines.push("", ...runningLines(job, tasks, terminal));
  }
  return lines;
}

const fitted = (line: string, terminal: Terminal): string =>
  terminal.width === undefined ? line : truncate(line, terminal.width, terminal);

function headLines(job: JobView, terminal: Terminal): string[] {
  const state = paint(terminal, stateColour(job.state), job.state);
  const when = job.ended === undefined ? `submitted ${ago(job.created)}` : `ended ${ago(job.ended)}`;
  const head = `job ${job.id}  ${escapeControls(job.name)}  ${state}, ${when}`;
  const facts = detailsOf(job).map(([name, value]) => fitted(`  ${name.padEnd(9)} ${escapeControls(value)}`, terminal));
  return [head, ...facts];
}

/** Options of the job that are not the default. */
function detailsOf({ recipe, limits, ...job }: JobView): [name: string, value: string][] {
  const { slots = 1, ...others } = job.needs;
  const needs = [
    slots === 1 ? "" : pluralize(Number(slots), "slot"),
    ...Object.entries(others).map(([name, n]) => `${n} ${name}`),
  ];
  const facts: [string, string | undefined | false][] = [
    [recipe.kind, recipe.summary],
    ["dir", recipe.dir === undefined ? undefined : Buffer.from(recipe.dir).toString()],
    ["log", recipe.log],
    ["output", recipe.output],
    ["stdout", recipe.stdout],
    ["stderr", recipe.stderr],
    ["pool", job.pool !== "default" && job.pool],
    ["tags", job.tags.join(", ")],
    ["needs", needs.filter((need) => need !== "").join(", ")],
    ["priority", job.priority !== 0 && String(job.priority)],
    ["resumes", job.resumes !== undefined && `job ${job.resumes}`],
    [
      "after",
      job.after.map(({ job: other, any, each }) => `${any ? "any:" : each === true ? "each:" : ""}${other}`).join(", "),
    ],
    ["paused", job.poolPaused === true && `its pool is; laboro resume --pool ${job.pool} continues it`],
    ["open", job.open === true && `it takes more tasks until laboro close ${job.id}`],
    ["starts", job.state === "delayed" && startText(job.notBefore)],
    ["key", keyText(job)],
    ["limits", limitsText(limits)],
    ["kept", keepText(job)],
    ["reason", job.reason],
  ];
  return facts.flatMap(([name, value]) =>
    value === undefined || value === false || value === "" ? [] : [[name, value]],
  );
}

/** What of a retry policy differs from the broker's defaults. */
function retryText(retry: JobView["limits"]["retry"] = {}): string {
  const { waitMs, factor, maxMs, jitter, on, never } = retry;
  const parts = [
    waitMs !== undefined && `first after ${formatDuration(waitMs)}`,
    factor !== undefined && `times ${factor}`,
    maxMs !== undefined && `at most ${formatDuration(maxMs)}`,
    jitter !== undefined && `jitter ${jitter}`,
    on !== undefined && `on ${on.join(", ")}`,
    never !== undefined && `never on ${never.join(", ")}`,
  ].filter((part) => part !== false);
  return parts.length === 0 ? "" : ` (${parts.join("; ")})`;
}

/** Local time here, with the zone. */
function startText(ms = Date.now()): string {
  const shifted = new Date(ms - new Date(ms).getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
  const zone = -new Date(ms).getTimezoneOffset();
  const two = (amount: number): string => String(Math.floor(amount)).padStart(2, "0");
  const offset = `${zone < 0 ? "-" : "+"}${two(Math.abs(zone) / 60)}:${two(Math.abs(zone) % 60)}`;
  return `${shifted}${offset}, in ${shortDuration(ms - Date.now())}`;
}

function keepText({ keepMs, keepFailedMs }: Pick<JobView, "keepMs" | "keepFailedMs">): string {
  return [
    keepMs !== undefined && (keepMs === MAX_MS ? "for ever" : `${formatDuration(keepMs)} after its end`),
    keepFailedMs !== undefined &&
      `${keepFailedMs === MAX_MS ? "for ever" : formatDuration(keepFailedMs)} if it does not succeed`,
  ]
    .filter((part) => part !== false)
    .join(", ");
}

function keyText({ key, keyForMs }: Pick<JobView, "key" | "keyForMs">): string {
  if (key === undefined) return "";
  return keyForMs === undefined ? key : `${key}, until ${formatDuration(keyForMs)} after its end`;
}

function limitsText(limits: JobView["limits"]): string {
  const { retries, retry, maxRunning, timeLimitMs, timeRequestMs, named = [] } = limits;
  const halt = haltRuleOf(limits);
  return [
    ...named.map((name) => `limit ${name}`),
    retries > 0 && `${pluralize(retries, "retry", "retries")}${retryText(retry)}`,
    timeLimitMs !== undefined && `${formatDuration(timeLimitMs)} a task`,
    timeRequestMs !== undefined && `workers that stay ${formatDuration(timeRequestMs)}`,
    maxRunning !== undefined && `${formatCount(maxRunning)} at once`,
    halt !== undefined && `halts ${halt.now === true ? "now" : "soon"} at ${halt.on}=${halt.count}`,
    limits.outputCap === undefined && "all output is kept",
    limits.outputCap !== undefined &&
      limits.outputCap !== DEFAULT_LIMITS.outputCap &&
      `${formatSize(limits.outputCap)} of output a task`,
  ]
    .filter((text) => text !== false)
    .join(", ");
}

const done = ({ counters }: JobView): number => counters.succeeded + counters.failed + counters.cancelled;

/** "used: 2h10m run time, 1h50m CPU, at most 1.2 GiB in a task" */
function usageText({ runMs, cpuMs, peakMemory }: OperationOutput<"usage">): string {
  const parts = [
    `${shortDuration(runMs)} run time`,
    cpuMs > 0 && `${shortDuration(cpuMs)} CPU`,
    peakMemory > 0 && `at most ${formatSize(peakMemory)} in a task`,
  ];
  return `used: ${parts.filter((part) => part !== false).join(", ")}`;
}

function progressLines(job: JobView, terminal: Terminal, rate: string): string[] {
  const text = `${formatCount(done(job))} of ${pluralize(job.count, "task")} done: ${countersText(job)}${rate}`;
  if (terminal.width === undefined) return [text];
  const width = Math.min(BAR, terminal.width - 2);
  const { good, bad } = barCells(job, width);
  const [full, empty] = terminal.unicode ? ["█", "░"] : ["#", "."];
  const bar =
    paint(terminal, "green", full.repeat(good)) +
    paint(terminal, "red", full.repeat(bad)) +
    empty.repeat(width - good - bad);
  return [bar, text];
}

/** The bar is full only when no task is left, and any failure takes at least one cell. */
export function barCells({ counters, count }: Pick<JobView, "counters" | "count">, width: number) {
  const { succeeded, failed, cancelled } = counters;
  const part = (tasks: number): number => (tasks === 0 ? 0 : Math.max(1, Math.floor((tasks / count) * width)));
  const filled = part(succeeded + failed + cancelled);
  const bad = part(failed + cancelled);
  return { good: Math.max(0, filled - bad), bad };
}

const RUNNING: readonly Column[] = [
  { title: "TASK" },
  { title: "WORKER", minWidth: 8 },
  { title: "STATE" },
  { title: "ATTEMPT", align: "right", dropPriority: 1 },
  { title: "PROGRESS", minWidth: 8, dropPriority: 2 },
];

const runningFor = (startedAt: number | undefined, now = Date.now()): string =>
  startedAt === undefined ? "running" : `running ${shortDuration(now - startedAt)}`;

function runningLines(job: JobView, tasks: readonly RunningTask[], terminal: Terminal): string[] {
  const rows = tasks
    .slice(0, MAX_RUNNING)
    .map(({ number, attempt, worker, startedAt, progress = "" }) => [
      `${job.id}.${number}`,
      worker,
      runningFor(startedAt),
      attempt > 1 ? String(attempt) : "",
      progress,
    ]);
  const more = job.counters.running - rows.length;
  return [
    ...table(RUNNING, rows, terminal),
    ...(more > 0 ? [`and ${pluralize(more, "more task", "more tasks")} running`] : []),
  ];
}
