/**
 * Prints the output of a single task as it arrives, stdout and stderr separately. The broker stores output up to a cap
 * and relays the rest. Both are joined by their offsets.
 */

import { LaboroError } from "../../../base/errors.js";
import type { Client } from "../../../client/client.js";
import type { TaskOutput } from "../../../protocols/laboro/messages.js";
import type { OutputWriter } from "../output-writer.js";
import type { OperationOutput, TaskView } from "../views.js";
import type { PrintableTask } from "./output-printer.js";

type Page = OperationOutput<"output">;

const WAIT_MS = 5_000;
const PAUSE_MS = 20;

export class LiveOutput {
  readonly #writer: OutputWriter;
  readonly #relayed: { readonly output: TaskOutput; readonly taken: () => void }[] = [];
  #wake: () => void = () => {};
  #attempt: number | undefined;
  #position = 0;
  #missing = 0;
  #ended: PrintableTask | undefined;
  /** The broker has stored output of the task. */
  #stored = false;
  #closed = false;

  constructor(writer: OutputWriter) {
    this.#writer = writer;
  }

  /** Bytes of the ended task that could not be printed. */
  get missingBytes(): number {
    const { outputBytes = 0 } = this.#ended ?? {};
    return this.#missing + Math.max(0, outputBytes - this.#position);
  }

  /** The task, once it has ended. */
  get ended(): TaskView | undefined {
    return this.#ended;
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

  /** Returns when the task has ended and its output is printed, or the writer was stopped. */
  async print(currentClient: () => Client, job: number, stop: AbortSignal): Promise<void> {
    stop.addEventListener("abort", () => this.#wake(), { once: true });
    let asked: Promise<{ readonly page: Page | undefined }> | undefined;
    while (!stop.aborted && !this.#writer.stopped) {
      const woken = new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      if (await this.#printRelayed()) continue;
      if (this.#ended !== undefined && (await this.#printSmall(this.#ended))) break;
      if (!this.#stored && this.#ended === undefined) {
        await woken;
        continue;
      }
      asked ??= nextPage(currentClient(), job, this.#position).then((page) => ({ page }));
      // Only promises that settle soon: a promise that stays pending keeps the result of every race in memory, and so
      // all of the output.
      const found = await Promise.race([asked, woken]);
      if (typeof found !== "object") continue;
      asked = undefined;
      if (await this.#printPage(found.page)) break;
    }
    // Callers of `take` must not wait for output that is never printed.
    this.#closed = true;
    for (const { taken } of this.#relayed.splice(0)) taken();
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
  async #printPage(page: Page | undefined): Promise<boolean> {
    // Between the end of an attempt and its record, the broker does not say to which attempt the output belongs.
    if (page === undefined || (page.attempt === undefined && page.pieces.length > 0)) {
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

/** Undefined while the broker is disconnected: the batch watcher reconnects. */
async function nextPage(client: Client, job: number, from: number): Promise<Page | undefined> {
  try {
    return await client.ask("output", { job, index: 0, from, waitMs: WAIT_MS });
  } catch (cause) {
    if (cause instanceof LaboroError && /^LABORO_BROKER_/.test(cause.code)) return undefined;
    throw cause;
  }
}
