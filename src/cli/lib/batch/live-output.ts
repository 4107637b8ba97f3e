/**
 * Prints the output of tasks as it arrives, stdout and stderr separately. The broker stores output up to a cap and
 * relays the rest. Both are joined by their offsets.
 */

import type { Client } from "../../../client/client.js";
import type { TaskOutput } from "../../../protocols/laboro/messages.js";
import type { OperationOutput, TaskView } from "../views.js";
import type { PrintableTask, TaskWriter } from "./output-printer.js";

type Page = OperationOutput<"output">;

const WAIT_MS = 5_000;
const PAUSE_MS = 20;
/** How many tasks are printed live: each is a pending request, of which a connection may have 250. */
const MAX_LIVE = 64;

/** Repeats `act` with a new client after the broker has disconnected. */
type WithRetry = <T>(act: (client: Client) => Promise<T>) => Promise<T>;

interface LiveDependencies {
  readonly enabled: boolean;
  readonly job: number;
  readonly withRetry: WithRetry;
  readonly writerOf: (index: number) => TaskWriter;
  /** The output of these tasks was printed, except for `missingBytes`. */
  readonly onPrinted: (tasks: readonly TaskView[], missingBytes: number) => void;
}

export class LiveTasks {
  readonly #deps: LiveDependencies;
  readonly #live = new Map<number, { readonly output: LiveOutput; readonly printed: Promise<void> }>();
  /** Tasks whose output is printed when they end. */
  readonly #grouped = new Set<number>();
  /** The attempt that was printed live to its end. */
  readonly #printed = new Map<number, number>();

  constructor(deps: LiveDependencies) {
    this.#deps = deps;
  }

  /** Returns undefined if the task is not printed live. */
  take(output: TaskOutput): Promise<void> | undefined {
    if (output.attempt <= (this.#printed.get(output.index) ?? 0)) return Promise.resolve();
    return this.#find(output.index)?.take(output);
  }

  /** There is output of these tasks to be read from the broker. */
  outputStored(tasks: readonly { readonly index: number }[]): void {
    for (const { index } of tasks) this.#find(index)?.outputStored();
  }

  /** Returns when the tasks that are printed live are printed to their end. The result is the other tasks. */
  async finish(tasks: readonly PrintableTask[]): Promise<PrintableTask[]> {
    for (const task of tasks) this.#live.get(task.index)?.output.taskEnded(task);
    const others: PrintableTask[] = [];
    for (const task of tasks) {
      const { index, attempt } = task;
      this.#grouped.delete(index);
      const live = this.#live.get(index);
      if (live === undefined) {
        if (this.#printed.get(index) !== attempt) others.push(task);
        continue;
      }
      await live.printed;
      this.#live.delete(index);
      this.#printed.set(index, attempt);
      this.#deps.onPrinted([task], live.output.missingBytes);
    }
    return others;
  }

  /** No more tasks end: what others have written so far stays as it is. */
  async stop(): Promise<void> {
    for (const { output } of this.#live.values()) output.stop();
    await Promise.all([...this.#live.values()].map(({ printed }) => printed));
  }

  #find(index: number): LiveOutput | undefined {
    const { enabled, job, withRetry, writerOf } = this.#deps;
    const known = this.#live.get(index);
    if (known !== undefined || !enabled || this.#grouped.has(index)) return known?.output;
    if (this.#live.size >= MAX_LIVE) {
      this.#grouped.add(index);
      return undefined;
    }
    const output = new LiveOutput(writerOf(index), job, index);
    const printed = output.print(withRetry);
    // It is awaited later.
    printed.catch(() => {});
    this.#live.set(index, { output, printed });
    return output;
  }
}

class LiveOutput {
  readonly #writer: TaskWriter;
  readonly #job: number;
  readonly #index: number;
  readonly #relayed: { readonly output: TaskOutput; readonly taken: () => void }[] = [];
  #wake: () => void = () => {};
  #attempt: number | undefined;
  #position = 0;
  #missing = 0;
  #ended: PrintableTask | undefined;
  /** The broker has stored output of the task. */
  #stored = false;
  #stopped = false;
  #closed = false;

  constructor(writer: TaskWriter, job: number, index: number) {
    this.#writer = writer;
    this.#job = job;
    this.#index = index;
  }

  /** Bytes of the ended task that could not be printed. */
  get missingBytes(): number {
    const { outputBytes = 0 } = this.#ended ?? {};
    return this.#writer.stopped ? 0 : this.#missing + Math.max(0, outputBytes - this.#position);
  }

  /** Resolves when the output was printed, so that a slow reader slows the task down. */
  take(output: TaskOutput): Promise<void> {
    if (this.#closed) return Promise.resolve();
    return new Promise((resolve) => {
      this.#relayed.push({ output, taken: resolve });
      this.#wake();
    });
  }

  /** The task's result is known: all of its output was stored or relayed. */
  taskEnded(task: PrintableTask): void {
    this.#ended = task;
    this.#wake();
  }

  /** There is output to be read from the broker. */
  outputStored(): void {
    this.#stored = true;
    this.#wake();
  }

  stop(): void {
    this.#stopped = true;
    this.#wake();
  }

  /** Returns when the task has ended and its output is printed, or this or the writer was stopped. */
  async print(withRetry: WithRetry): Promise<void> {
    const done = new AbortController();
    const askFrom = (from: number): Promise<{ readonly page: Page }> =>
      withRetry(async (client) => {
        const { signal } = done;
        const task = { job: this.#job, index: this.#index };
        return { page: await client.ask("output", { ...task, from, waitMs: WAIT_MS }, { signal }) };
      });
    let asked: Promise<{ readonly page: Page }> | undefined;
    try {
      while (!this.#stopped && !this.#writer.stopped) {
        const woken = new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
        if (await this.#printRelayed()) continue;
        if (this.#ended !== undefined && (await this.#printSmall(this.#ended))) break;
        if (!this.#stored && this.#ended === undefined) {
          await woken;
          continue;
        }
        asked ??= askFrom(this.#position);
        // Only promises that settle soon: a promise that stays pending keeps the result of every race in memory, and so
        // all of the output.
        const found = await Promise.race([asked, woken]);
        if (typeof found !== "object") continue;
        asked = undefined;
        if (await this.#printPage(found.page)) break;
      }
    } finally {
      asked?.catch(() => {});
      done.abort();
      // Callers of `take` must not wait for output that is never printed.
      this.#closed = true;
      for (const { taken } of this.#relayed.splice(0)) taken();
    }
    await this.#writer.end?.();
  }

  /** Returns true if that was all that was left of the output. */
  async #printSmall({ attempt, output, outputBytes }: PrintableTask): Promise<boolean> {
    // A requested page may belong to the attempt before.
    if (output !== undefined || outputBytes === 0) this.#beginAttempt(attempt);
    if (attempt !== this.#attempt) return false;
    let offset = 0;
    for (const { stream, bytes } of output ?? []) {
      await this.#write(stream, offset, bytes);
      offset += bytes.length;
    }
    return this.#position >= outputBytes;
  }

  /** Returns true when the task has ended and this was the last of its output. */
  async #printPage(page: Page): Promise<boolean> {
    // Between the end of an attempt and its record, the broker does not say to which attempt the output belongs.
    if (page.attempt === undefined && page.pieces.length > 0) {
      await pause();
      return false;
    }
    const { attempt = this.#attempt ?? 0 } = page;
    if (this.#beginAttempt(attempt) || attempt !== this.#attempt) return false;
    for (const { stream, offset, bytes } of page.pieces) {
      while (offset > this.#position && (await this.#printRelayed())) {
        // The pieces of the page follow what was relayed.
      }
      if (offset > this.#position) {
        // Relayed output may still arrive.
        if (!page.ended && this.#ended === undefined) {
          await pause();
          return false;
        }
        this.#missing += offset - this.#position;
        this.#position = offset;
      }
      await this.#write(stream, offset, bytes);
    }
    return page.ended;
  }

  /** Prints the relayed chunk that is next. Returns false if there is none. */
  async #printRelayed(): Promise<boolean> {
    const [first] = this.#relayed;
    if (first === undefined) return false;
    const { attempt, stream, offset, bytes } = first.output;
    this.#beginAttempt(attempt);
    if (attempt === this.#attempt && offset > this.#position) return false;
    this.#relayed.shift();
    if (attempt === this.#attempt) await this.#write(stream, offset, bytes);
    first.taken();
    return true;
  }

  /** A later attempt starts its output at 0. Returns true if output of the previous attempt was printed. */
  #beginAttempt(attempt: number): boolean {
    if (this.#attempt !== undefined && attempt <= this.#attempt) return false;
    const restart = this.#position > 0;
    if (restart) void this.#writer.end?.();
    this.#attempt = attempt;
    this.#position = 0;
    return restart;
  }

  /** Prints the bytes after the current position. */
  async #write(stream: "stdout" | "stderr", offset: number, bytes: Uint8Array): Promise<void> {
    const end = offset + bytes.length;
    if (end <= this.#position) return;
    const rest = bytes.subarray(this.#position - offset);
    this.#position = end;
    await this.#writer.write(stream, rest);
  }
}

const pause = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
