/** Prints the output of tasks when they end, without mixing lines: in the order of their ends, or of their entries. */
import type { Client } from "../../../client/client.js";
import type { Bytes } from "../../../model/recipe.js";
import { LineWriter } from "../line-writer.js";
import type { TaskView } from "../views.js";

export interface OutputOptions {
  readonly keepOrder: boolean;
  /** The entry before each line. */
  readonly tag: boolean;
}

/** Outputs fetched at one time. */
const FETCH_CONCURRENCY = 16;

export class OutputPrinter {
  readonly #options: OutputOptions;
  readonly #labelOf: (index: number) => string;
  readonly #clear: () => void;
  readonly #outOfOrder = new Map<number, TaskView>();
  #next: number;

  /** `first`: the task with which the order begins. `clear` removes the progress bar. */
  constructor(options: OutputOptions, labelOf: (index: number) => string, clear: () => void, first = 0) {
    this.#options = options;
    this.#labelOf = labelOf;
    this.#clear = clear;
    this.#next = first;
  }

  /** For a task that is not printed: the order does not wait for it. */
  skip(index: number): void {
    if (index === this.#next) this.#next++;
  }

  async add(client: Client, job: number, tasks: readonly TaskView[]): Promise<void> {
    if (!this.#options.keepOrder) {
      await this.#print(client, job, tasks);
      return;
    }
    for (const task of tasks) this.#outOfOrder.set(task.index, task);
    for (let task = this.#outOfOrder.get(this.#next); task !== undefined; task = this.#outOfOrder.get(this.#next)) {
      await this.#print(client, job, [task]);
      this.#outOfOrder.delete(this.#next++);
    }
  }

  /** No more tasks end: prints those that still wait for an earlier one. */
  async finish(client: Client, job: number): Promise<void> {
    for (const task of [...this.#outOfOrder.values()].sort((a, b) => a.index - b.index)) {
      await this.#print(client, job, [task]);
      this.#outOfOrder.delete(task.index);
    }
  }

  async #print(client: Client, job: number, tasks: readonly TaskView[]): Promise<void> {
    const withOutput = tasks.filter(({ outputBytes }) => outputBytes > 0);
    for (let at = 0; at < withOutput.length; at += FETCH_CONCURRENCY) {
      const some = withOutput.slice(at, at + FETCH_CONCURRENCY);
      const pages = await Promise.all(some.map(({ index, attempt }) => client.ask("output", { job, index, attempt })));
      this.#clear();
      for (const [i, page] of pages.entries()) {
        const task = some[i];
        if (task !== undefined) await this.#printOne(client, job, task, page);
      }
    }
  }

  async #printOne(client: Client, job: number, task: TaskView, first: Awaited<ReturnType<typeof page>>): Promise<void> {
    const tag = this.#options.tag ? `${this.#labelOf(task.index)}\t` : "";
    const out = new LineWriter(process.stdout, tag);
    const err = new LineWriter(process.stderr, tag);
    for (let found = first; ; ) {
      for (const { stream, bytes } of found.pieces) (stream === "stdout" ? out : err).write(bytes);
      if (found.next === undefined) break;
      found = await page(client, job, task, found.next);
    }
    out.end(true);
    err.end(true);
  }
}

const page = (client: Client, job: number, { index, attempt }: TaskView, from: number) =>
  client.ask("output", { job, index, attempt, from });

/** An entry as it can stand before a line. */
export const entryLabel = (entry: Bytes): string =>
  (typeof entry === "string" ? entry : Buffer.from(entry).toString()).replace(/[\t\n\r]/g, " ");
