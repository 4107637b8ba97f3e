/** `laboro status JOB`: one job in detail. */
import { ago, formatCount, formatSize, pluralize, shortDuration } from "../../../base/format.js";
import type { Client } from "../../../client/client.js";
import { DEFAULT_LIMITS, haltRuleOf, MAX_MS } from "../../../model/job.js";
import { paceTexts, type UsageOf } from "../../lib/batch/progress-bar.js";
import { formatDuration } from "../../lib/option-parsers.js";
import { countersText, failureLines, type JobView, type OperationOutput } from "../../lib/result-text.js";
import { type Column, table } from "../../lib/terminal/table.js";
import { escapeControls, paint, stateColour, type Terminal, truncate } from "../../lib/terminal/terminal.js";

const MAX_FAILURES = 20;
const MAX_RUNNING = 20;
const BAR = 40;

type RunningTask = OperationOutput<"running">["tasks"][number];

export const done = ({ counters }: JobView): number => counters.succeeded + counters.failed + counters.cancelled;

export async function jobDetailLines(
  client: Client,
  job: JobView,
  terminal: Terminal,
  usageOf: UsageOf,
): Promise<string[]> {
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

const runningFor = (startedAt: number | undefined): string =>
  startedAt === undefined ? "running" : `running ${shortDuration(Date.now() - startedAt)}`;

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
