/**
 * Operations on one task of a job: its state, command and attempts, and why it waits.
 *
 * A map of a job's tasks: the state of each task or, for many tasks, one state for each cell of several tasks. A run of
 * equal cells is one pair of numbers, so the answer is small for any job.
 */
import { GONE, STARTED } from "../../dispatch/state.js";
import type { JobId } from "../../model/ids.js";
import { END_STATES, type Job } from "../../model/job.js";
import type { TaskResult } from "../../model/outcome.js";
import { taskCommand } from "../../model/placeholders.js";
import { contains, intersection, type Range } from "../../model/ranges.js";
import * as s from "../../model/schema.js";
import { taskNumber } from "../../model/task-numbers.js";
import type { Core } from "../core.js";
import { locateTask } from "../group/group-view.js";
import { index, job, noSuchTask, number, operation, requireJob } from "./operation.js";
import { COUNTED_AT_ONCE, taskResult, withNumber } from "./tasks.js";

const MAX_COMMAND = 16_384;

export const task = operation({
  name: "task",
  role: "read",
  method: "GET",
  path: "/jobs/{job}/tasks/{index}",
  summary: "One task: where it is, how it ended, its earlier attempts",
  input: s.object({ job, index }),
  output: s.object({
    job: s.count("the number of the job"),
    index,
    number,
    state: s.choice("waiting", "running", ...END_STATES),
    attempt: s.count("the latest attempt; 0 if there was none"),
    worker: s.optional(s.text()),
    reason: s.described(s.text(), "one line for people"),
    result: s.optional(s.described(taskResult, "once it has ended")),
    earlierAttempts: s.described(s.list(taskResult, 100_000), "attempts that were not the last"),
    command: s.optional(s.described(s.text(MAX_COMMAND), "what it runs, as it could be typed in a shell")),
  }),
  perform: async (core, given) => {
    const found = await requireTask(core, given);
    const { job, index } = given;
    const result = await resultOf(core, given);
    const earlier = await core.store.earlierAttempts(job, index);
    const earlierAttempts = earlier.map((one) => withNumber(found, one));
    const command = await commandOf(core, found, index);
    const common = { job, index, number: taskNumber(found, index), earlierAttempts, ...command };
    if (result !== undefined) {
      const { state, attempt, worker } = result;
      return { ...common, state, attempt, worker, reason: whyEnded(result), result: withNumber(found, result) };
    }
    const { reason, claim } = await locateTask(core, found, index);
    if (claim !== undefined) {
      const { started, attempt, worker } = claim;
      return { ...common, state: started ? ("running" as const) : ("waiting" as const), attempt, worker, reason };
    }
    const attempt = earlierAttempts.at(-1)?.attempt ?? 0;
    if (!contains(found.cancels, index)) return { ...common, state: "waiting" as const, attempt, reason };
    return { ...common, state: "cancelled" as const, attempt, reason };
  },
});

export const explain = operation({
  name: "explain",
  role: "read",
  method: "GET",
  path: "/jobs/{job}/tasks/{index}/explain",
  summary: "Why a task is not running, in words",
  input: s.object({ job, index }),
  output: s.object({ reason: s.text() }),
  perform: async (core, given) => {
    const found = await requireTask(core, given);
    const result = await resultOf(core, given);
    return { reason: result === undefined ? (await locateTask(core, found, given.index)).reason : whyEnded(result) };
  },
});

/** Empty if a placeholder's value cannot be inserted safely. Such a task does not start. */
async function commandOf(core: Core, job: Job, index: number): Promise<{ command?: string }> {
  const { id, recipe, hasEntries } = job;
  const number = taskNumber(job, index);
  const array = recipe.kind !== "call" && recipe.array !== undefined ? String(number) : undefined;
  const [entry = array] = hasEntries ? await core.store.entries(id, { first: index, last: index }) : [];
  try {
    const text = taskCommand(recipe, { number, entry });
    return { command: text.length > MAX_COMMAND ? `${text.slice(0, MAX_COMMAND - 1)}…` : text };
  } catch {
    return {};
  }
}

interface Task {
  readonly job: JobId;
  readonly index: number;
}

export async function requireTask(core: Core, given: Task): Promise<Job> {
  const found = await requireJob(core, given.job);
  if (given.index >= found.count) throw noSuchTask(found);
  return found;
}

export async function resultOf(core: Core, { job, index }: Task): Promise<TaskResult | undefined> {
  const page = await core.store.results(job, { from: index, limit: 1 });
  return page.results.find((one) => one.index === index);
}

function whyEnded({ state, code, signal, timedOut, error, worker }: TaskResult): string {
  const how =
    error ??
    (timedOut === true ? "its time limit ended it" : signal !== undefined ? `${signal} ended it` : `exit code ${code}`);
  if (state === "succeeded") return `it has succeeded on ${worker}`;
  return state === "failed" ? `it has failed on ${worker}: ${how}` : `it was cancelled on ${worker}: ${how}`;
}

/** A cell has one of the first three states, in this order, if any of its tasks has it; else the most frequent. */
const CELL_STATES = ["failed", "running", "prefetched", "waiting", "cancelled", "succeeded"] as const;
const [FAILED, RUNNING, PREFETCHED, WAITING, CANCELLED, SUCCEEDED] = [0, 1, 2, 3, 4, 5];
const KINDS = CELL_STATES.length;

const MAX_CELLS = 20_000;
/** Tasks of one map. Of a larger job a part is shown. */
const MAX_TASKS = 2 ** 20;

const input = s.object({
  job,
  first: s.withDefault(s.count("from this task on"), 0),
  last: s.optional(s.count(`to this one; at most ${MAX_TASKS} tasks are shown`)),
  cells: s.withDefault(s.integer(1, MAX_CELLS, "at most this many cells"), 10_000),
});

export const taskMap = operation({
  name: "taskMap",
  role: "read",
  method: "GET",
  path: "/jobs/{job}/map",
  summary: "The states of a job's tasks, as runs of equal cells",
  input,
  output: s.object({
    count: s.count("how many tasks the job has"),
    first: s.count(),
    last: s.count("the last task that is shown"),
    tasksPerCell: s.count("tasks in a cell"),
    states: s.described(
      s.list(s.choice(...CELL_STATES), KINDS),
      "the names of the states; `runs` has their positions in this list",
    ),
    runs: s.described(
      s.list(s.count(), 2 * MAX_CELLS),
      "pairs: a position in `states`, and how many cells have that state",
    ),
  }),
  perform: async (core, given) => {
    const found = await requireJob(core, given.job);
    const { first, last } = windowOf(found, given.first, given.last);
    const tasksPerCell = Math.max(1, Math.ceil((last - first + 1) / given.cells));
    const cells = new Cells(first, last, tasksPerCell);
    await countEnds(core, given.job, cells);
    if (found.ended === undefined) countAssigned(core, given.job, cells);
    countCancelled(found, cells);
    return { count: found.count, first, last, tasksPerCell, states: CELL_STATES, runs: cells.runs() };
  },
});

function windowOf({ count }: Job, from: number, to: number | undefined): Range {
  const first = Math.min(from, Math.max(0, count - 1));
  const last = Math.min(count - 1, to ?? count - 1, first + MAX_TASKS - 1);
  return { first, last: Math.max(first, last) };
}

/** How many tasks of each cell are in which state. */
class Cells {
  readonly length: number;
  readonly #counts: Uint32Array;

  constructor(
    readonly first: number,
    readonly last: number,
    readonly tasksPerCell: number,
  ) {
    this.length = Math.ceil((last - first + 1) / tasksPerCell);
    this.#counts = new Uint32Array(this.length * KINDS);
  }

  add(cell: number, kind: number, count: number): void {
    const at = cell * KINDS + kind;
    this.#counts[at] = (this.#counts[at] ?? 0) + count;
  }

  /** The visible tasks of this range. */
  addRange(kind: number, from: number, to: number): void {
    const end = Math.min(to, this.last);
    for (let at = Math.max(from, this.first); at <= end; ) {
      const cell = Math.floor((at - this.first) / this.tasksPerCell);
      const next = Math.min(end + 1, this.first + (cell + 1) * this.tasksPerCell);
      this.add(cell, kind, next - at);
      at = next;
    }
  }

  count(cell: number, kind: number): number {
    return this.#counts[cell * KINDS + kind] ?? 0;
  }

  sizeOf(cell: number): number {
    return Math.min(this.tasksPerCell, this.last + 1 - this.first - cell * this.tasksPerCell);
  }

  /** How many of its tasks have no state yet. */
  unknown(cell: number): number {
    let known = 0;
    for (let kind = 0; kind < KINDS; kind++) known += this.count(cell, kind);
    return Math.max(0, this.sizeOf(cell) - known);
  }

  runs(): number[] {
    const runs: number[] = [];
    for (let cell = 0; cell < this.length; cell++) {
      const kind = this.#stateOf(cell);
      if (runs.length > 0 && runs[runs.length - 2] === kind) runs[runs.length - 1] = (runs.at(-1) ?? 0) + 1;
      else runs.push(kind, 1);
    }
    return runs;
  }

  #stateOf(cell: number): number {
    for (const kind of [FAILED, RUNNING, PREFETCHED]) if (this.count(cell, kind) > 0) return kind;
    const waiting = this.count(cell, WAITING) + this.unknown(cell);
    const [most] = [
      [WAITING, waiting] as const,
      [SUCCEEDED, this.count(cell, SUCCEEDED)] as const,
      [CANCELLED, this.count(cell, CANCELLED)] as const,
    ].sort(([, a], [, b]) => b - a);
    return most?.[0] ?? WAITING;
  }
}

async function countEnds(core: Core, id: JobId, cells: Cells): Promise<void> {
  const step = Math.max(1, Math.floor(COUNTED_AT_ONCE / cells.tasksPerCell)) * cells.tasksPerCell;
  for (let first = cells.first; first <= cells.last; first += step) {
    const last = Math.min(cells.last, first + step - 1);
    const before = (first - cells.first) / cells.tasksPerCell;
    for (const { cell, succeeded, failed, cancelled } of await core.store.endCounts(
      id,
      { first, last },
      cells.tasksPerCell,
    )) {
      cells.add(before + cell, SUCCEEDED, succeeded);
      cells.add(before + cell, FAILED, failed);
      cells.add(before + cell, CANCELLED, cancelled);
    }
  }
}

/** Assigned tasks. A result that arrives after the store was read is shown the next time. */
function countAssigned(core: Core, id: JobId, cells: Cells): void {
  for (const { first, last, tasks } of core.state.jobs.get(id)?.claims ?? []) {
    const end = Math.min(last, cells.last);
    for (let at = Math.max(first, cells.first); at <= end; at++) {
      const state = tasks[at - first];
      if (state !== GONE) cells.addRange(state === STARTED ? RUNNING : PREFETCHED, at, at);
    }
  }
}

/** Tasks that were cancelled before they were assigned have no result: those in `cancels` that have no other state. */
function countCancelled({ cancels }: Job, cells: Cells): void {
  for (const { first, last } of intersection(cells, cancels)) {
    const from = Math.floor((first - cells.first) / cells.tasksPerCell);
    const to = Math.floor((last - cells.first) / cells.tasksPerCell);
    for (let cell = from; cell <= to; cell++) {
      const start = cells.first + cell * cells.tasksPerCell;
      const inside = Math.min(last, start + cells.sizeOf(cell) - 1) - Math.max(first, start) + 1;
      cells.add(cell, CANCELLED, Math.min(cells.unknown(cell), inside));
    }
  }
}
