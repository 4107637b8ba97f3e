/**
 * A map of a job's tasks: the state of each task or, for many tasks, one state for each cell of several tasks. A run of
 * equal cells is one pair of numbers, so the answer is small for any job.
 */
import { GONE, STARTED } from "../../dispatch/state.js";
import type { JobId } from "../../model/ids.js";
import type { Job } from "../../model/job.js";
import { intersection, type Range } from "../../model/ranges.js";
import * as s from "../../model/schema.js";
import type { Core } from "../core.js";
import { operation } from "./operation.js";
import { job, requireJob } from "./shared-fields.js";
import { COUNTED_AT_ONCE } from "./tasks.js";

/**
 * In order of importance: a cell has one of the first three states if any of its tasks has it, otherwise the most
 * frequent one.
 */
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
