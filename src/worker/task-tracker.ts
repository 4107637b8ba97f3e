/**
 * The states of a worker's tasks; worker-tasks.ts runs them. On one connection a task moves only forward:
 *   prefetched   received, not started
 *   running      started, or ended with output to send
 *   finished     ended, its DONE not yet acknowledged
 * JOIN announces the tasks of all three states; WELCOME may drop any of them. DONEs are numbered. After a reconnect the
 * results without an ACK are running again until their output is sent. So a result is delivered however often the link
 * breaks, and never before its output.
 */
import { type JobId, taskKey } from "../model/ids.js";
import { contains, difference, intersection, normalize, type Range, type Ranges, rangesOf } from "../model/ranges.js";
import type { Bytes } from "../model/recipe.js";
import type { AttemptRange, DoneTask, HeldTasks, TaskRef } from "../protocols/laboro/messages.js";

/** Bytes of values in one DONE. */
const MAX_BATCH_BYTES = 8 * 1024 * 1024;

export interface PrefetchedTask extends TaskRef {
  readonly entry?: Bytes;
}

interface DoneBatch {
  readonly seq: number;
  readonly tasks: readonly DoneTask[];
}

interface PrefetchedRange {
  readonly job: JobId;
  readonly attempt: number;
  first: number;
  readonly last: number;
  readonly entries?: readonly Bytes[];
  /** The index that entries[0] belongs to. */
  readonly base: number;
  readonly acceptedBy: string | undefined;
}

export class TaskTracker {
  #prefetched: PrefetchedRange[] = [];
  #prefetchedCount = 0;
  readonly #running = new Map<string, TaskRef>();
  #finished: DoneTask[] = [];
  #unacknowledged: DoneBatch[] = [];
  #seq = 0;

  get prefetchedCount(): number {
    return this.#prefetchedCount;
  }

  get runningCount(): number {
    return this.#running.size;
  }

  /** Every received task is acknowledged. */
  get idle(): boolean {
    return this.#prefetchedCount === 0 && this.#running.size === 0 && this.undelivered === 0;
  }

  /** Ended since the last batch. */
  get finishedCount(): number {
    return this.#finished.length;
  }

  get undelivered(): number {
    return this.#unacknowledged.reduce((sum, batch) => sum + batch.tasks.length, this.#finished.length);
  }

  /** The jobs of prefetched and running tasks. */
  jobs(): Set<JobId> {
    const jobs = new Set(this.#prefetched.map((range) => range.job));
    for (const { job } of this.#running.values()) jobs.add(job);
    return jobs;
  }

  receive(range: AttemptRange, entries?: readonly Bytes[], acceptedBy?: string): void {
    const { job, first, last, attempt } = range;
    const shown = entries === undefined ? {} : { entries };
    this.#prefetched.push({ job, first, last, attempt, base: first, acceptedBy, ...shown });
    this.#prefetchedCount += last - first + 1;
  }

  /** The oldest prefetched task that may start; it is running from now on. Jobs that do not fit are skipped. */
  startNext(fits: (job: JobId) => boolean): PrefetchedTask | undefined {
    const skipped = new Set<JobId>();
    for (let at = 0; at < this.#prefetched.length; at++) {
      const range = this.#prefetched[at];
      if (range === undefined || skipped.has(range.job)) continue;
      if (!fits(range.job)) {
        skipped.add(range.job);
        continue;
      }
      const index = range.first++;
      if (range.first > range.last) this.#prefetched.splice(at, 1);
      this.#prefetchedCount--;
      const task = { job: range.job, index, attempt: range.attempt, acceptedBy: range.acceptedBy };
      this.#running.set(taskKey(task.job, index), task);
      const entry = range.entries?.[index - range.base];
      return entry === undefined ? task : { ...task, entry };
    }
    return undefined;
  }

  /** Removes the prefetched tasks of these jobs, as whole ranges. */
  takeRanges(ofJob: (job: JobId) => boolean): AttemptRange[] {
    const taken: AttemptRange[] = [];
    this.#prefetched = this.#prefetched.filter((range) => {
      if (!ofJob(range.job)) return true;
      taken.push({ job: range.job, first: range.first, last: range.last, attempt: range.attempt });
      this.#prefetchedCount -= range.last - range.first + 1;
      return false;
    });
    return taken;
  }

  /** A task that ended earlier, in this or the previous process of the worker. Its output is not delivered yet. */
  resume({ job, index, attempt, acceptedBy }: TaskRef): void {
    this.#running.set(taskKey(job, index), { job, index, attempt, acceptedBy });
  }

  /** False if the task was dropped meanwhile: its result is not needed. */
  finish(task: DoneTask): boolean {
    const key = taskKey(task.job, task.index);
    if (this.#running.get(key)?.attempt !== task.attempt) return false;
    this.#running.delete(key);
    this.#finished.push(task);
    return true;
  }

  /** The results since the last batch, as the next DONE; with large values, some of them. */
  nextBatch(): DoneBatch | undefined {
    if (this.#finished.length === 0) return undefined;
    const tasks: DoneTask[] = [];
    for (let bytes = 0; tasks.length < this.#finished.length; ) {
      const next = this.#finished[tasks.length];
      bytes += next?.value?.length ?? 0;
      if (next === undefined || bytes > MAX_BATCH_BYTES) break;
      tasks.push(next);
    }
    const batch = { seq: ++this.#seq, tasks };
    this.#finished = this.#finished.slice(tasks.length);
    this.#unacknowledged.push(batch);
    return batch;
  }

  /** Returns the batches that this ACK covers. */
  acknowledge(seq: number): readonly DoneBatch[] {
    const count = this.#unacknowledged.findIndex((batch) => batch.seq > seq);
    return this.#unacknowledged.splice(0, count < 0 ? this.#unacknowledged.length : count);
  }

  /** A new connection: returns the results that are not acknowledged. Their tasks are running again, until `finish`. */
  reopen(): readonly DoneTask[] {
    const tasks = [...this.#allFinished()];
    this.#unacknowledged = [];
    this.#finished = [];
    for (const task of tasks) this.resume(task);
    return tasks;
  }

  held(): HeldTasks[] {
    const held: HeldTasks[] = [];
    for (const { job, first, last, attempt, acceptedBy } of this.#prefetched)
      held.push({ job, first, last, attempt, state: "prefetched", acceptedBy });
    for (const { job, index, attempt, acceptedBy } of this.#running.values()) {
      held.push({ job, first: index, last: index, attempt, state: "running", acceptedBy });
    }
    const finished = new Map<string, Pick<TaskRef, "job" | "attempt" | "acceptedBy"> & { indices: number[] }>();
    for (const { job, index, attempt, acceptedBy } of this.#allFinished()) {
      const key = `${job} ${attempt} ${acceptedBy}`;
      const group = finished.get(key);
      if (group === undefined) finished.set(key, { job, attempt, indices: [index], acceptedBy });
      else group.indices.push(index);
    }
    for (const { indices, ...tasks } of finished.values()) {
      for (const range of rangesOf(indices.sort((a, b) => a - b))) held.push({ ...tasks, ...range, state: "finished" });
    }
    return held;
  }

  *#allFinished(): Iterable<DoneTask> {
    for (const batch of this.#unacknowledged) yield* batch.tasks;
    yield* this.#finished;
  }

  /** Removes tasks that the broker dropped, in any state. Returns the running ones, which must be stopped. */
  drop(tasks: readonly AttemptRange[]): TaskRef[] {
    const dropped = rangesByAttempt(tasks);
    const isDropped = ({ job, index, attempt }: TaskRef): boolean =>
      contains(dropped.get(attemptOf({ job, attempt })) ?? [], index);
    this.removePrefetched(tasks);
    const running = [...this.#running.values()].filter(isDropped);
    for (const { job, index } of running) this.#running.delete(taskKey(job, index));
    this.#finished = this.#finished.filter((task) => !isDropped(task));
    this.#unacknowledged = this.#unacknowledged
      .map((batch) => ({ seq: batch.seq, tasks: batch.tasks.filter((task) => !isDropped(task)) }))
      .filter((batch) => batch.tasks.length > 0);
    return running;
  }

  /** Removes and returns the prefetched ones of these tasks: retracted, or cancelled before their start. */
  removePrefetched(tasks: readonly AttemptRange[]): AttemptRange[] {
    const wanted = rangesByAttempt(tasks);
    const taken: AttemptRange[] = [];
    this.#prefetched = this.#prefetched.flatMap((range) => {
      const ranges = wanted.get(attemptOf(range));
      if (ranges === undefined) return [range];
      const { job, attempt } = range;
      for (const { first, last } of intersection(range, ranges)) {
        taken.push({ job, attempt, first, last });
        this.#prefetchedCount -= last - first + 1;
      }
      return difference(range, ranges).map((rest) => ({ ...range, ...rest }));
    });
    return taken;
  }

  /** Removes all prefetched tasks, to be returned before an orderly stop. */
  removeAllPrefetched(): AttemptRange[] {
    return this.takeRanges(() => true);
  }

  /** Running, or finished and not acknowledged. */
  has(task: TaskRef): boolean {
    if (this.isRunning(task)) return true;
    for (const { job, index, attempt } of this.#allFinished()) {
      if (job === task.job && index === task.index && attempt === task.attempt) return true;
    }
    return false;
  }

  isRunning(task: TaskRef): boolean {
    return this.#running.get(taskKey(task.job, task.index))?.attempt === task.attempt;
  }
}

const attemptOf = ({ job, attempt }: Pick<AttemptRange, "job" | "attempt">): string => `${job} ${attempt}`;

function rangesByAttempt(tasks: readonly AttemptRange[]): Map<string, Ranges> {
  const found = new Map<string, Range[]>();
  for (const { job, attempt, first, last } of tasks) {
    const key = attemptOf({ job, attempt });
    const ranges = found.get(key);
    if (ranges === undefined) found.set(key, [{ first, last }]);
    else ranges.push({ first, last });
  }
  return new Map([...found].map(([key, ranges]) => [key, normalize(ranges)]));
}
