/**
 * Results of tasks and jobs as text.
 *
 * Results of operations, by the names that the verbs use, and page by page.
 */
import { constants } from "node:os";
import { formatCount, pluralize, shortDuration } from "../../base/format.js";
import type { OperationOutput } from "../../broker/operations/index.js";
import type { Client } from "../../client/client.js";
import type { Bytes } from "../../model/recipe.js";
import { formatDuration } from "./option-parsers.js";
import { escapeControls } from "./terminal/terminal.js";

export type { OperationOutput } from "../../broker/operations/index.js";
export type JobView = OperationOutput<"job">;
export type WorkerView = OperationOutput<"workers">["workers"][number];
export type TaskView = OperationOutput<"tasks">["tasks"][number];

/** Reads page after page, until the last one or until the caller stops. */
export async function* pages<Page extends { readonly next?: number | undefined }>(
  read: (from: number) => Promise<Page>,
  start = 0,
): AsyncGenerator<Page> {
  for (let from: number | undefined = start; from !== undefined; ) {
    const page: Page = await read(from);
    yield page;
    from = page.next;
  }
}

/** "exit code 2", "killed by signal 9 (SIGKILL)", "time limit of 5s": what ended it. */
export function outcomeText(
  {
    state,
    code,
    signal,
    timedOut,
    error,
  }: Pick<TaskView, "code" | "signal" | "timedOut" | "error"> & { state: string },
  timeLimitMs?: number,
): string {
  const parts: string[] = [];
  if (timedOut === true)
    parts.push(timeLimitMs === undefined ? "over its time limit" : `time limit of ${formatDuration(timeLimitMs)}`);
  if (error !== undefined) parts.push(escapeControls(error));
  // At the time limit, the exit code and signal are caused by laboro.
  else if (timedOut === true) return parts.join("");
  else if (signal !== undefined) parts.push(signalText(signal));
  else if (code !== undefined && !(code === 0 && state === "succeeded")) parts.push(`exit code ${code}`);
  return parts.join(", ") || state;
}

function signalText(name: string): string {
  const number = (constants.signals as Readonly<Record<string, number>>)[name];
  return number === undefined ? `killed by ${name}` : `killed by signal ${number} (${name})`;
}

/** Characters of an entry in a line. */
const MAX_ENTRY = 100;

/** "12 (data/x.csv)"; the number alone if the task has no entry or belongs to an array. */
export function taskLabel(number: number, entry: Bytes | undefined): string {
  if (entry === undefined) return String(number);
  const text = escapeControls(entryLabel(entry));
  return `${number} (${text.length > MAX_ENTRY ? `${text.slice(0, MAX_ENTRY - 1)}…` : text})`;
}

/** An entry as a tag of a line. */
export const entryLabel = (entry: Bytes): string =>
  (typeof entry === "string" ? entry : Buffer.from(entry).toString()).replace(/[\t\n\r]/g, " ");

export async function entryOf(client: Client, job: JobView, index: number): Promise<Bytes | undefined> {
  if (!job.hasEntries) return undefined;
  const { entries } = await client.ask("entries", { job: job.id, from: index, limit: 1 });
  return entries[0];
}

/** "3.12 (data/x.csv) failed: exit code 2, after 4.1s on node17" */
function taskResultLine({ id, limits }: JobView, result: TaskView, entry: Bytes | undefined): string {
  const { number, state, attempt, started, ended, worker } = result;
  const tries = attempt > 1 ? `, attempt ${attempt}` : "";
  const outcome = outcomeText(result, limits.timeLimitMs);
  return `${id}.${taskLabel(number, entry)} ${state}: ${outcome}, after ${shortDuration(ended - started)} on ${escapeControls(worker)}${tries}`;
}

/** A line for each of the first failed tasks of a job, and the number of others. */
export async function failureLines(client: Client, job: JobView, limit: number): Promise<string[]> {
  const { failed } = job.counters;
  if (failed === 0) return [];
  const page = await client.ask("tasks", { job: job.id, state: ["failed"], limit, entries: true });
  const lines = page.tasks.map((result) => taskResultLine(job, result, result.entry));
  const more = failed - lines.length;
  return more > 0 ? [...lines, `and ${moreTasks(more)} failed`] : lines;
}

const moreTasks = (count: number): string => pluralize(count, "more task", "more tasks");

/** "job 3 succeeded: 100 tasks in 4m10s" */
export function jobResultLine(job: JobView): string {
  const reason = job.reason === undefined ? "" : ` (${escapeControls(job.reason)})`;
  const took = job.ended === undefined ? "" : `, in ${shortDuration(job.ended - job.created)}`;
  return `job ${job.id} ${job.state}: ${countersText(job)}${took}${reason}`;
}

/** "11 succeeded, 1 failed, 4 running, 84 waiting", without zeros. */
export function countersText({ counters }: JobView): string {
  const parts = Object.entries(counters).filter(([, count]) => count > 0);
  return parts.map(([state, count]) => `${formatCount(count)} ${state}`).join(", ");
}
