/**
 * The tasks that a worker has, as its foreman sees them.
 *
 *   unsent      assigned to this worker, its JOB is not sent yet
 *   sent        its JOB waits for the reply
 *   running     the worker has it
 *   missing     the worker should have it and does not list it: its UPDATE may still come
 *   foreign     the worker lists it, and it is not to have it
 *
 * What is sent, running or foreign takes a slot at the worker; what is missing does not.
 */
import type { AttemptRange } from "../../../dispatch/index.js";
import { type Attempt, JobId, type TaskIndex } from "../../../model/ids.js";
import { ALL_TASKS, type Task, type TaskPair } from "../messages.js";

export type AssignedTaskState = "unsent" | "sent" | "running" | "missing" | "foreign";

export interface AssignedTask extends TaskPair {
  /** Its place in the job; `task` is its number. -1 if it is foreign. */
  readonly index: TaskIndex;
  /** Changed by `AssignedTaskMap.setState` only. */
  readonly state: AssignedTaskState;
  /** The fence; a foreign task has none. */
  readonly attempt: Attempt;
  /** When it was started, by the broker's clock. */
  since: number;
  /** Its time limit is over. */
  timedOut: boolean;
  /** What JOB carries. */
  readonly description?: Task;
  /** Its time limit. */
  limitTimer?: NodeJS.Timeout;
  /** Runs while its UPDATE is waited for. */
  settleTimer?: NodeJS.Timeout;
}

export const rangeOf = (held: AssignedTask): AttemptRange => ({
  job: JobId(held.jobId),
  first: held.index,
  last: held.index,
  attempt: held.attempt,
});

const keyOf = ({ jobId, task }: TaskPair): string => `${jobId}.${task}`;

export const isInRanges = (held: AssignedTask, tasks: readonly AttemptRange[]): boolean =>
  tasks.some(({ job, first, last, attempt }) => {
    const { index } = held;
    return job === held.jobId && attempt === held.attempt && first <= index && index <= last;
  });

function clearTimers({ limitTimer, settleTimer }: AssignedTask): void {
  clearTimeout(limitTimer);
  clearTimeout(settleTimer);
}

export class AssignedTaskMap {
  readonly #tasks = new Map<string, AssignedTask>();
  readonly #counts: Record<AssignedTaskState, number> = { unsent: 0, sent: 0, running: 0, missing: 0, foreign: 0 };

  get(pair: TaskPair): AssignedTask | undefined {
    return this.#tasks.get(keyOf(pair));
  }

  has(held: AssignedTask): boolean {
    return this.#tasks.get(keyOf(held)) === held;
  }

  add(held: AssignedTask): AssignedTask {
    const before = this.get(held);
    if (before !== undefined) this.remove(before);
    this.#tasks.set(keyOf(held), held);
    this.#counts[held.state]++;
    return held;
  }

  setState(held: AssignedTask, state: AssignedTaskState): void {
    if (!this.has(held)) return;
    this.#counts[held.state]--;
    this.#counts[state]++;
    (held as { state: AssignedTaskState }).state = state;
  }

  remove(held: AssignedTask): void {
    clearTimers(held);
    if (!this.has(held)) return;
    this.#tasks.delete(keyOf(held));
    this.#counts[held.state]--;
  }

  clear(): void {
    for (const held of this.all()) this.remove(held);
  }

  all(): readonly AssignedTask[] {
    return [...this.#tasks.values()];
  }

  count(state: AssignedTaskState): number {
    return this.#counts[state];
  }

  /** Those that the broker has claimed for this worker. */
  get claimedCount(): number {
    return this.#tasks.size - this.#counts.foreign;
  }

  /** Those that take a slot at the worker. */
  get usedSlots(): number {
    const { sent, running, foreign } = this.#counts;
    return sent + running + foreign;
  }

  /** These tasks for a CANCEL. Where all of several tasks of a job are to end, one pair stands for them. */
  cancelPairs(gone: readonly AssignedTask[]): readonly TaskPair[] {
    const left = new Map<number, number>();
    for (const { jobId, state } of this.#tasks.values()) {
      if (state !== "unsent") left.set(jobId, (left.get(jobId) ?? 0) + 1);
    }
    for (const { jobId } of gone) left.set(jobId, (left.get(jobId) ?? 0) - 1);
    const ended = new Set<number>();
    const whole = new Set<number>();
    for (const { jobId } of gone) {
      if (ended.has(jobId) && left.get(jobId) === 0) whole.add(jobId);
      ended.add(jobId);
    }
    const pairs = gone.filter(({ jobId }) => !whole.has(jobId)).map(({ jobId, task }) => ({ jobId, task }));
    return [...pairs, ...Array.from(whole, (jobId) => ({ jobId, task: ALL_TASKS }))];
  }
}
