/** The tasks of a job in any states, as one list. */
import type { Client } from "../../client/client.js";
import type { Ranges } from "../../model/ranges.js";
import type { Bytes } from "../../model/recipe.js";
import { type JobView, type OperationOutput, pages, type TaskView } from "./result-text.js";

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
  /** A glob for the whole entry, or for the number of a task without one. */
  readonly entry?: string;
  /** The first of each state are enough. */
  readonly limit?: number;
}

const PAGE = 1_000;

/** In order of their numbers. */
export async function listTasks(client: Client, job: JobView, filter: TaskFilter): Promise<ListedTask[]> {
  const {
    states,
    worker,
    entry,
    indices = [{ first: 0, last: job.count - 1 }],
    limit = Number.POSITIVE_INFINITY,
  } = filter;
  const found = new Map<number, ListedTask>();
  const add = async (read: ReadPage): Promise<void> => {
    let left = limit;
    for await (const task of tasksIn(read, indices, Math.min(PAGE, limit))) {
      if (worker !== undefined && task.worker !== worker) continue;
      found.set(task.index, task);
      if (--left === 0) return;
    }
  };
  const which = { job: job.id, entries: true, ...(entry === undefined ? {} : { entry }) };
  const wanted = (state: TaskState): boolean => states.includes(state) && (worker === undefined || state !== "waiting");
  // In the order of a task's states, so that a task that changes its state meanwhile is not missed.
  if (wanted("waiting"))
    await add(async (page) => {
      const { tasks, ...more } = await client.ask("waiting", { ...which, ...page });
      return { tasks: tasks.map(({ worker: _, ...task }) => ({ ...task, state: "waiting" })), ...more };
    });
  if (wanted("running"))
    await add(async (page) => {
      const { tasks, ...more } = await client.ask("running", { ...which, ...page });
      return { tasks: tasks.map(runningTask), ...more };
    });
  if (wanted("cancelled"))
    await add(async (page) => {
      const { tasks, ...more } = await client.ask("cancelled", { ...which, ...page });
      return { tasks: tasks.map(({ result, ...task }) => ({ ...result, ...task, state: "cancelled" })), ...more };
    });
  const state = (["succeeded", "failed"] as const).filter(wanted);
  if (state.length > 0)
    await add((page) => client.ask("tasks", { ...which, ...page, state, ...(worker === undefined ? {} : { worker }) }));
  return [...found.values()].sort((a, b) => a.index - b.index);
}

type ReadPage = (page: { readonly from: number; readonly limit: number }) => Promise<{
  readonly tasks: readonly ListedTask[];
  readonly next?: number;
}>;

async function* tasksIn(read: ReadPage, indices: Ranges, limit: number): AsyncGenerator<ListedTask> {
  for (const { first, last } of indices) {
    const most = Math.min(limit, last - first + 1);
    for await (const { tasks, next = last } of pages((from) => read({ from, limit: most }), first)) {
      for (const task of tasks) if (task.index <= last) yield task;
      if (next > last) break;
    }
  }
}

function runningTask({ workerId: _, startedAt, ...task }: OperationOutput<"running">["tasks"][number]): ListedTask {
  return { ...task, state: "running", ...(startedAt === undefined ? {} : { started: startedAt }) };
}
