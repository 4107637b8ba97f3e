/**
 * One attempt of a task, printed from its begin to its end. Stored output is read from the broker page by page. Output
 * beyond the cap is relayed: it comes from `take`, or from the spool. All pieces are joined by their offsets.
 *
 * Relayed output of tasks that are printed later, in a temporary file for each task. A file is a list of records:
 * stream (1 byte), offset (8), length (4), bytes. Only the latest attempt of a task is kept.
 */
import { appendFileSync, closeSync, openSync, readSync, rmSync } from "node:fs";
import { join } from "node:path";
import { makeTemporaryFolder } from "../../../base/files/temporary.js";
import type { Client } from "../../../client/client.js";
import type { OutputStream, SmallOutput } from "../../../model/outcome.js";
import type { TaskOutput } from "../../../protocols/laboro/messages.js";
import type { OperationOutput } from "../result-text.js";
import type { TaskWriter } from "./output-writer.js";

const HEADER = 13;

type RelayedPiece = Pick<TaskOutput, "stream" | "offset" | "bytes">;

interface SpooledTask {
  readonly attempt: number;
  readonly path: string;
  end: number;
}

export class RelaySpool {
  readonly #tasks = new Map<number, SpooledTask>();
  readonly #removeAll = (): void => {
    if (this.#dir !== undefined) rmSync(this.#dir, { recursive: true, force: true });
  };
  #dir: string | undefined;
  /** Why output could not be spooled, if that happened. */
  failure: string | undefined;

  /** Drops output of an earlier attempt and output that was sent twice. */
  async take({ index, attempt, stream, offset, bytes }: TaskOutput): Promise<void> {
    const end = offset + bytes.length;
    let task: SpooledTask | undefined;
    try {
      task = this.#task(index, attempt);
    } catch (cause) {
      this.#failed(cause);
    }
    if (task === undefined || end <= task.end) return;
    const rest = offset < task.end ? bytes.subarray(task.end - offset) : bytes;
    const record = Buffer.allocUnsafe(HEADER + rest.length);
    record.writeUInt8(stream === "stdout" ? 0 : 1, 0);
    record.writeDoubleLE(end - rest.length, 1);
    record.writeUInt32LE(rest.length, 9);
    record.set(rest, HEADER);
    try {
      appendFileSync(task.path, record, { mode: 0o600 });
      task.end = end;
    } catch (cause) {
      this.#failed(cause);
      // The last record may be incomplete, so nothing may follow it.
      task.end = Number.POSITIVE_INFINITY;
    }
  }

  /** The spooled output of this attempt, in order. */
  reader(index: number, attempt: number): SpoolReader | undefined {
    const task = this.#tasks.get(index);
    return task?.attempt === attempt && task.end > 0 ? new SpoolReader(task.path) : undefined;
  }

  remove(index: number): void {
    const task = this.#tasks.get(index);
    if (task === undefined) return;
    this.#tasks.delete(index);
    rmSync(task.path, { force: true });
  }

  close(): void {
    process.off("exit", this.#removeAll);
    this.#removeAll();
  }

  #failed(cause: unknown): void {
    this.failure ??= cause instanceof Error ? cause.message : String(cause);
  }

  #task(index: number, attempt: number): SpooledTask | undefined {
    const known = this.#tasks.get(index);
    if (known !== undefined && known.attempt > attempt) return undefined;
    if (known?.attempt === attempt) return known;
    this.remove(index);
    const task = { attempt, path: join(this.#directory(), `${index}.${attempt}`), end: 0 };
    this.#tasks.set(index, task);
    return task;
  }

  #directory(): string {
    if (this.#dir === undefined) {
      this.#dir = makeTemporaryFolder("laboro-output-");
      process.once("exit", this.#removeAll);
    }
    return this.#dir;
  }
}

class SpoolReader {
  readonly #fd: number;
  #position = 0;
  #next: RelayedPiece | undefined;

  constructor(path: string) {
    this.#fd = openSync(path, "r");
    this.#next = this.#read();
  }

  /** The piece at this offset; undefined if there is none. */
  pieceAt(offset: number): RelayedPiece | undefined {
    while (this.#next !== undefined && this.#next.offset < offset) this.#next = this.#read();
    if (this.#next?.offset !== offset) return undefined;
    const found = this.#next;
    this.#next = this.#read();
    return found;
  }

  close(): void {
    closeSync(this.#fd);
  }

  #read(): RelayedPiece | undefined {
    const header = Buffer.allocUnsafe(HEADER);
    if (readSync(this.#fd, header, 0, HEADER, this.#position) < HEADER) return undefined;
    const bytes = Buffer.allocUnsafe(header.readUInt32LE(9));
    // Only the last record can be cut off, by a full disk.
    if (readSync(this.#fd, bytes, 0, bytes.length, this.#position + HEADER) < bytes.length) return undefined;
    this.#position += HEADER + bytes.length;
    return { stream: header.readUInt8(0) === 0 ? "stdout" : "stderr", offset: header.readDoubleLE(1), bytes };
  }
}

export interface TaskAttempt {
  readonly index: number;
  readonly attempt: number;
  /** How much it has written; absent if that is not known yet. */
  readonly outputBytes?: number;
  /** Its complete output, if it is small. */
  readonly output?: readonly SmallOutput[] | undefined;
}

/** Repeats `act`, with a new client where necessary, after the broker has disconnected. */
type WithRetry = <T>(act: (client: Client) => Promise<T>) => Promise<T>;

export interface OutputSource {
  readonly job: number;
  readonly withRetry: WithRetry;
  /** Output that the job relays; absent if it is not taken. */
  readonly relayed?: RelaySpool;
  /** Print only this stream. */
  readonly stream?: OutputStream | undefined;
  /** Called at the place of output that could not be printed. */
  readonly onGap?: (index: number, offset: number, bytes: number) => void;
}

type Page = OperationOutput<"output">;

/** The broker answers when there is more output, or after this time. */
const WAIT_MS = 5_000;
const PAUSE_MS = 20;

export class AttemptOutput {
  readonly #source: OutputSource;
  readonly #writer: TaskWriter;
  readonly #live: boolean;
  readonly #done = new AbortController();
  readonly #relayed: { readonly output: TaskOutput; readonly taken: () => void }[] = [];
  #task: TaskAttempt;
  #spooled: SpoolReader | undefined;
  #asked: Promise<Page> | undefined;
  #position = 0;
  #missing = 0;
  /** There is something to read from the broker. */
  #stored: boolean;
  #ended: boolean;
  #stopped = false;
  #wake: () => void = () => {};

  /** `live`: until it has ended. Otherwise, what exists now. */
  constructor(source: OutputSource, task: TaskAttempt, writer: TaskWriter, live: boolean) {
    this.#source = source;
    this.#task = task;
    this.#writer = writer;
    this.#live = live;
    this.#stored = !live;
    this.#ended = !live;
  }

  get attempt(): number {
    return this.#task.attempt;
  }

  /** Bytes of the ended attempt that could not be printed. */
  get missingBytes(): number {
    if (this.#writer.stopped) return 0;
    return this.#missing + Math.max(0, (this.#task.outputBytes ?? 0) - this.#position);
  }

  /** Relayed output. Resolves when it was printed, so that a slow reader slows the task down. */
  take(output: TaskOutput): Promise<void> {
    if (this.#done.signal.aborted || output.attempt !== this.attempt) return Promise.resolve();
    return new Promise((resolve) => {
      this.#relayed.push({ output, taken: resolve });
      this.#wake();
    });
  }

  outputStored(): void {
    this.#stored = true;
    this.#wake();
  }

  /** The result of this attempt is known: all of its output was stored or relayed. */
  taskEnded(task: TaskAttempt): void {
    this.#task = task;
    this.#ended = true;
    this.outputStored();
  }

  stop(): void {
    this.#stopped = true;
    this.#wake();
  }

  /** Requests the first page, so that `print` need not wait for it. */
  prefetch(): void {
    this.#asked ??= this.#ask();
  }

  /** Returns when all is printed, or this or the writer was stopped. */
  async print(): Promise<void> {
    const { relayed } = this.#source;
    try {
      this.#spooled = relayed?.reader(this.#task.index, this.attempt);
      await this.#printPieces();
    } finally {
      this.#done.abort();
      this.#spooled?.close();
      // Callers of `take` must not wait for output that is never printed.
      for (const { taken } of this.#relayed.splice(0)) taken();
    }
    await this.#writer.end?.();
  }

  async #printPieces(): Promise<void> {
    while (!this.#isStopped) {
      const woken = new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      if (await this.#printRelayed()) continue;
      if (this.#ended && this.#position >= (this.#task.outputBytes ?? Number.POSITIVE_INFINITY)) return;
      if (this.#ended && this.#task.output !== undefined) {
        await this.#printSmall(this.#task.output);
        break;
      }
      if (!this.#stored) {
        await woken;
        continue;
      }
      this.#asked ??= this.#ask();
      // Only promises that settle soon: a promise that stays pending keeps the result of every race in memory, and so
      // all of the output.
      const page = await Promise.race([this.#asked, woken]);
      if (typeof page !== "object") continue;
      this.#asked = undefined;
      if (await this.#printPage(page)) break;
    }
    // The rest of the relayed output, with the gaps between.
    while (!this.#isStopped && (await this.#printRelayed(true)));
    if (!this.#isStopped) await this.#skipTo(this.#task.outputBytes ?? 0);
  }

  get #isStopped(): boolean {
    return this.#stopped || this.#writer.stopped;
  }

  #ask(): Promise<Page> {
    const { job, withRetry } = this.#source;
    const { index, attempt } = this.#task;
    const input = { job, index, attempt, from: this.#position, waitMs: this.#live ? WAIT_MS : 0 };
    const page = withRetry((client) => client.ask("output", input, { signal: this.#done.signal }));
    // Awaited later, or never.
    page.catch(() => {});
    return page;
  }

  async #printSmall(output: readonly SmallOutput[]): Promise<void> {
    let offset = 0;
    for (const { stream, bytes } of output) {
      await this.#write(stream, offset, bytes);
      offset += bytes.length;
    }
  }

  /** Returns true when this was the last of the stored output. */
  async #printPage(page: Page): Promise<boolean> {
    for (const { stream, offset, bytes } of page.pieces) {
      while (offset > this.#position && (await this.#printRelayed())) {
        // The pieces of the page follow the relayed output.
      }
      if (offset > this.#position && this.#source.relayed !== undefined && !page.ended && !this.#ended) {
        // Relayed output may still arrive.
        await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
        return false;
      }
      await this.#write(stream, offset, bytes);
    }
    return page.ended || (!this.#live && page.next === undefined);
  }

  /** Prints the relayed piece that is next. Returns false if there is none. */
  async #printRelayed(withGap = false): Promise<boolean> {
    const spooled = this.#spooled?.pieceAt(this.#position);
    if (spooled !== undefined) {
      await this.#write(spooled.stream, spooled.offset, spooled.bytes);
      return true;
    }
    const [first] = this.#relayed;
    if (first === undefined || (first.output.offset > this.#position && !withGap)) return false;
    this.#relayed.shift();
    await this.#write(first.output.stream, first.output.offset, first.output.bytes);
    first.taken();
    return true;
  }

  /** Prints the bytes after the current position. */
  async #write(stream: OutputStream, offset: number, bytes: Uint8Array): Promise<void> {
    await this.#skipTo(offset);
    const from = this.#position;
    const end = offset + bytes.length;
    if (end <= from) return;
    this.#position = end;
    const only = this.#source.stream ?? stream;
    if (stream === only) await this.#writer.write(stream, bytes.subarray(from - offset), from);
  }

  async #skipTo(offset: number): Promise<void> {
    const from = this.#position;
    if (offset <= from) return;
    this.#position = offset;
    this.#missing += offset - from;
    await this.#writer.end?.();
    this.#source.onGap?.(this.#task.index, from, offset - from);
  }
}
