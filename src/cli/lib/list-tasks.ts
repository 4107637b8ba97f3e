/** The tasks of a job, with or without a result, as one list. */
import type { Client } from "../../client/client.js";
import { contains, difference, normalize, type Range, type Ranges, rangesOf } from "../../model/ranges.js";
import type { Bytes } from "../../model/recipe.js";
import { taskNumber } from "../../model/task-numbers.js";
import { type JobView, pages, type TaskView } from "./result-text.js";

export const TASK_STATES = ["waiting", "running", "succeeded", "failed", "cancelled"] as const;
export type TaskState = (typeof TASK_STATES)[number];

/** A task as `laboro tasks --json` prints it. */
export interface ListedTask extends Partial<Omit<TaskView, "state" | "index" | "number">> {
  readonly index: number;
  readonly number: number;
  readonly state: TaskState;
  readonly entry?: Bytes;
}

interface TaskFilter {
  readonly states: readonly TaskState[];
  /** Only tasks with these indices. */
  readonly indices?: Ranges;
  readonly worker?: string;
  readonly matchesEntry?: (entry: Bytes | undefined) => boolean;
}

const END_STATES = ["succeeded", "failed", "cancelled"] as const;
const PAGE = 1_000;

/** In order of their numbers. */
export async function listTasks(client: Client, job: JobView, filter: TaskFilter): Promise<ListedTask[]> {
  const wanted = (state: TaskState): boolean => filter.states.includes(state);
  const withoutResult = filter.worker === undefined && (wanted("waiting") || wanted("cancelled"));
  const running = wanted("running") || withoutResult ? await runningTasks(client, job) : [];
  const states = END_STATES.filter(wanted);
  const ended = states.length > 0 || withoutResult ? await endedTasks(client, job, filter, withoutResult) : [];
  const found = [...running, ...ended];
  if (withoutResult) found.push(...(await tasksWithoutResult(client, job, found, filter)));
  const matches = (task: ListedTask): boolean =>
    wanted(task.state) &&
    (filter.indices === undefined || contains(filter.indices, task.index)) &&
    (filter.worker === undefined || task.worker === filter.worker) &&
    (filter.matchesEntry === undefined || filter.matchesEntry(task.entry));
  return found.filter(matches).sort((a, b) => a.index - b.index);
}

async function runningTasks(client: Client, job: JobView): Promise<ListedTask[]> {
  const found: ListedTask[] = [];
  const read = (from: number) => client.ask("running", { job: job.id, from, limit: PAGE, entries: true });
  for await (const page of pages(read))
    for (const { workerId: _, startedAt, ...task } of page.tasks)
      found.push({ ...task, state: "running", ...(startedAt === undefined ? {} : { started: startedAt }) });
  return found;
}

/** With `all`, tasks of any state and worker, to find out which tasks have no result. */
async function endedTasks(client: Client, job: JobView, filter: TaskFilter, all: boolean): Promise<ListedTask[]> {
  const { worker, states, indices } = filter;
  const narrowed = { state: END_STATES.filter((state) => states.includes(state)), ...(worker && { worker }) };
  const found: ListedTask[] = [];
  for (const { first, last } of indices ?? [{ first: 0, last: job.count - 1 }]) {
    const read = (from: number) =>
      client.ask("tasks", {
        ...{ job: job.id, from, limit: Math.min(PAGE, last - from + 1), entries: true },
        ...(all ? {} : narrowed),
      });
    for await (const { tasks, next = last } of pages(read, first)) {
      for (const task of tasks) if (task.index <= last) found.push(task);
      if (next > last) break;
    }
  }
  return found;
}

/** Tasks that wait, and tasks that were cancelled before they ran. */
async function tasksWithoutResult(
  client: Client,
  job: JobView,
  others: readonly ListedTask[],
  { indices = [{ first: 0, last: job.count - 1 }], states }: TaskFilter,
): Promise<ListedTask[]> {
  const known = rangesOf(others.map(({ index }) => index).sort((a, b) => a - b));
  const found: ListedTask[] = [];
  for (const range of normalize(indices).flatMap((one) => difference(one, known))) {
    const entries = await entriesOf(client, job, range);
    for (let index = range.first; index <= range.last; index++) {
      const state = contains(job.cancels, index) ? "cancelled" : "waiting";
      const entry = entries[index - range.first];
      const number = taskNumber(job, index);
      if (states.includes(state)) found.push({ index, number, state, ...(entry === undefined ? {} : { entry }) });
    }
  }
  return found;
}

async function entriesOf(client: Client, job: JobView, { first, last }: Range): Promise<Bytes[]> {
  const found: Bytes[] = [];
  while (job.hasEntries && first + found.length <= last) {
    const from = first + found.length;
    const { entries } = await client.ask("entries", { job: job.id, from, limit: Math.min(PAGE, last - from + 1) });
    if (entries.length === 0) break;
    found.push(...entries);
  }
  return found;
}
