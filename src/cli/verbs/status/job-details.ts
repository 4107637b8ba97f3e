/** One job in detail: its recipe, progress, failures and running tasks. */

import { ago, formatCount, formatSize, pluralize, shortDuration } from "../../../base/format.js";
import type { Client } from "../../../client/client.js";
import { DEFAULT_LIMITS } from "../../../model/job.js";
import { formatDuration } from "../../lib/duration.js";
import { countersText, failureLines } from "../../lib/result-text.js";
import { type Column, table } from "../../lib/terminal/table.js";
import { paint, stateColour, type Terminal } from "../../lib/terminal/terminal.js";
import { escapeControls, truncate } from "../../lib/terminal/text.js";
import type { JobView, OperationOutput } from "../../lib/views.js";

const MAX_FAILURES = 20;
const MAX_RUNNING = 20;
const BAR = 40;

type RunningTask = OperationOutput<"running">["tasks"][number];

export async function jobDetailLines(client: Client, job: JobView, terminal: Terminal): Promise<string[]> {
  const lines = [...headLines(job, terminal), "", ...progressLines(job, terminal)];
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
    slots === 1 ? "" : pluralize(slots, "slot"),
    ...Object.entries(others).map(([name, n]) => `${n} ${name}`),
  ];
  const facts: [string, string | undefined | false][] = [
    [recipe.kind, recipe.summary],
    ["dir", recipe.dir === undefined ? undefined : Buffer.from(recipe.dir).toString()],
    ["log", recipe.log],
    ["pool", job.pool !== "default" && job.pool],
    ["tags", job.tags.join(", ")],
    ["needs", needs.filter((need) => need !== "").join(", ")],
    ["priority", job.priority !== 0 && String(job.priority)],
    ["resumes", job.resumes !== undefined && `job ${job.resumes}`],
    ["after", job.after.map(({ job: other, any }) => `${any ? "any:" : ""}${other}`).join(", ")],
    ["limits", limitsText(limits)],
    ["reason", job.reason],
  ];
  return facts.flatMap(([name, value]) =>
    value === undefined || value === false || value === "" ? [] : [[name, value]],
  );
}

function limitsText(limits: JobView["limits"]): string {
  const { retries, maxFails, maxRunning, timeLimitMs } = limits;
  return [
    retries > 0 && pluralize(retries, "retry", "retries"),
    timeLimitMs !== undefined && `${formatDuration(timeLimitMs)} a task`,
    maxRunning !== undefined && `${formatCount(maxRunning)} at once`,
    maxFails !== undefined && `${pluralize(maxFails, "failure")} at most`,
    limits.outputCap === undefined && "all output is kept",
    limits.outputCap !== undefined &&
      limits.outputCap !== DEFAULT_LIMITS.outputCap &&
      `${formatSize(limits.outputCap)} of output a task`,
  ]
    .filter((text) => text !== false)
    .join(", ");
}

function progressLines(job: JobView, terminal: Terminal): string[] {
  const { succeeded, failed, cancelled } = job.counters;
  const done = succeeded + failed + cancelled;
  const text = `${formatCount(done)} of ${pluralize(job.count, "task")} done: ${countersText(job)}`;
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

/** The bar is full exactly when nothing is left, and a failure is never too small to be seen. */
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
];

const runningFor = (startedAt: number | undefined, now = Date.now()): string =>
  startedAt === undefined ? "running" : `running ${shortDuration(now - startedAt)}`;

function runningLines(job: JobView, tasks: readonly RunningTask[], terminal: Terminal): string[] {
  const rows = tasks
    .slice(0, MAX_RUNNING)
    .map(({ number, attempt, worker, startedAt }) => [
      `${job.id}.${number}`,
      worker,
      runningFor(startedAt),
      attempt > 1 ? String(attempt) : "",
    ]);
  const more = job.counters.running - rows.length;
  return [
    ...table(RUNNING, rows, terminal),
    ...(more > 0 ? [`and ${pluralize(more, "more task", "more tasks")} running`] : []),
  ];
}
