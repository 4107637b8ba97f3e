/**
 * Numbers for jobs that are being submitted to a store that brokers share. Those wanted in one turn of the event loop come with one query,
 * and so do those wanted while that one is under way.
 */
import type { JobId } from "../model/ids.js";
import type { Group } from "../model/store-group.js";

export class JobNumbers {
  readonly #group: Group;
  #waiting: ((number: JobId | undefined) => void)[] = [];
  #asking = false;

  constructor(group: Group) {
    this.#group = group;
  }

  /** Undefined where the store does not answer: then it numbers the job when it stores it. */
  next(): Promise<JobId | undefined> {
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
      if (this.#asking) return;
      this.#asking = true;
      queueMicrotask(() => void this.#ask());
    });
  }

  async #ask(): Promise<void> {
    while (this.#waiting.length > 0) {
      const waiting = this.#waiting;
      this.#waiting = [];
      const numbers = await this.#group.jobNumbers(waiting.length).catch(() => []);
      for (const [i, resolve] of waiting.entries()) resolve(numbers[i]);
    }
    this.#asking = false;
  }
}
