/** Tasks that a polling worker got in an answer, and whose end it has not reported. */
import type { Socket } from "node:net";
import { now } from "../../../../base/clock.js";
import type { AttemptRange } from "../../../../dispatch/index.js";
import type { JobId } from "../../../../model/ids.js";

export interface PolledTask {
  readonly job: JobId;
  readonly index: number;
  readonly attempt: number;
  readonly since: number;
  /** On which it was given; absent where that was before this broker was started. */
  readonly socket?: Socket;
}

export class PolledTasks {
  readonly #tasks = new Map<string, PolledTask>();

  get size(): number {
    return this.#tasks.size;
  }

  get(job: number, index: number): PolledTask | undefined {
    return this.#tasks.get(keyOf(job, index));
  }

  add(given: PolledTask): void {
    this.#tasks.set(keyOf(given.job, given.index), given);
  }

  remove(gone: readonly PolledTask[]): void {
    for (const { job, index } of gone) this.#tasks.delete(keyOf(job, index));
  }

  all(): PolledTask[] {
    return [...this.#tasks.values()];
  }

  /** Keeps, of the tasks claimed for this worker, those that were sent to it. With `unknown` it may have them all. */
  reconcile(claimed: readonly AttemptRange[], unknown: boolean): void {
    const before = new Map(this.#tasks);
    this.#tasks.clear();
    for (const { job, first, last, attempt } of claimed) {
      for (let index = first; index <= last; index++) {
        const given = before.get(keyOf(job, index));
        if (given?.attempt === attempt) this.add(given);
        else if (unknown) this.add({ job, index, attempt, since: now() });
      }
    }
  }

  /**
   * Which of those that were given until then are so many that did not arrive. An answer that does not arrive goes down with its
   * connection; so it is clear where there are not more of that kind, and otherwise it is not.
   */
  undelivered(count: number, until: number): readonly PolledTask[] {
    const old = this.all().filter(({ since }) => since <= until);
    if (count >= old.length) return old;
    const doubtful = old.filter(({ socket }) => socket === undefined || socket.destroyed);
    return count >= doubtful.length ? doubtful : [];
  }
}

const keyOf = (job: number, index: number): string => `${job}.${index}`;

export const rangeOf = ({ job, index, attempt }: PolledTask): AttemptRange => ({
  job,
  first: index,
  last: index,
  attempt,
});
