/**
 * Prints the output of tasks when they end, in the order of their ends or of their entries. Output is printed byte for
 * byte; with a tag, line by line. Stored output comes from the broker, relayed output from the spool.
 */

import { formatSize } from "../../../base/format.js";
import type { Client } from "../../../client/client.js";
import type { EndedTask, OutputStream } from "../../../model/outcome.js";
import type { Bytes } from "../../../model/recipe.js";
import type { OutputPiece } from "../../../model/store.js";
import { LineWriter, type OutputWriter } from "../output-writer.js";

import { printNotice } from "../print.js";
import type { OperationOutput, TaskView } from "../views.js";
import type { RelaySpool, SpoolReader } from "./relay-spool.js";

export interface OutputOptions {
  readonly keepOrder: boolean;
  /** The entry before each line. */
  readonly tag: boolean;
  /** Lines of running tasks are printed as they come, so each task's output is whole lines. */
  readonly lineBuffer?: boolean;
}

/** Where the output of one task goes. */
export interface TaskWriter {
  readonly stopped: boolean;
  write(stream: OutputStream, bytes: Uint8Array): Promise<void>;
  /** Ends an incomplete last line, if it would mix with output that follows. */
  end?(): Promise<void>;
}

interface PrinterDependencies {
  readonly writer: OutputWriter;
  readonly relayed: RelaySpool;
  readonly labelOf: (index: number) => string;
  /** Removes the progress bar. */
  readonly clear: () => void;
  /** The output of these tasks was printed, except for `missingBytes`. */
  readonly onPrinted: (tasks: readonly TaskView[], missingBytes: number) => void;
}

/** A task that has ended, with its output where that is small. */
export type PrintableTask = TaskView & Pick<EndedTask, "output">;

/** A task whose output was fetched and is being printed. */
interface BegunTask {
  readonly print: TaskWriter;
  /** Printed up to this offset. */
  at: number;
  missingBytes: number;
  isPrinted: boolean;
}

/** Outputs fetched at one time. */
const FETCH_CONCURRENCY = 16;
/** A longer line is written in pieces, which may mix with the lines of other tasks. */
const LONGEST_LINE = 1024 * 1024;
/** Bytes of small outputs that are kept in memory until their turn. */
const KEPT_BYTES = 64 * 1024 * 1024;

export class OutputPrinter {
  readonly #options: OutputOptions;
  readonly #deps: PrinterDependencies;
  readonly #outOfOrder = new Map<number, PrintableTask>();
  #keptBytes = 0;
  /** If the broker disconnects, the same tasks are added again: how far the output of each was printed. */
  readonly #begun = new Map<number, BegunTask>();
  #next: number;

  /** `first`: the task with which the order begins. */
  constructor(options: OutputOptions, deps: PrinterDependencies, first = 0) {
    this.#options = options;
    this.#deps = deps;
    this.#next = first;
  }

  writerOf(index: number): TaskWriter {
    const { writer, clear, labelOf } = this.#deps;
    const { tag, lineBuffer } = this.#options;
    return tag || lineBuffer === true ? new LineOutput(writer, tag ? `${labelOf(index)}\t` : "", clear) : writer;
  }

  /** For a task that is not printed: the order does not wait for it. */
  skip(index: number): void {
    if (index === this.#next) this.#next++;
  }

  /** If it rejects because the broker disconnects, add the same tasks again. */
  async add(client: Client, job: number, tasks: readonly PrintableTask[]): Promise<void> {
    if (!this.#options.keepOrder) {
      await this.#print(client, job, tasks);
      return;
    }
    for (const task of tasks) if (task.index >= this.#next) this.#keep(task);
    for (let some = this.#nextInOrder(); some.length > 0; some = this.#nextInOrder()) {
      await this.#print(client, job, some);
      for (const task of some) this.#forget(task);
      this.#next += some.length;
    }
  }

  /** The tasks whose turn it is: all small ones, or one other. */
  #nextInOrder(): PrintableTask[] {
    const found: PrintableTask[] = [];
    for (let at = this.#next; ; at++) {
      const task = this.#outOfOrder.get(at);
      if (task === undefined || (!needsNoFetch(task) && found.length > 0)) return found;
      found.push(task);
      if (!needsNoFetch(task)) return found;
    }
  }

  #keep(task: PrintableTask): void {
    const { output, ...rest } = task;
    const keeps = output !== undefined && this.#keptBytes + task.outputBytes <= KEPT_BYTES;
    this.#forget(task);
    this.#outOfOrder.set(task.index, keeps ? task : rest);
    if (keeps) this.#keptBytes += task.outputBytes;
  }

  #forget({ index }: PrintableTask): void {
    const kept = this.#outOfOrder.get(index);
    if (kept?.output !== undefined) this.#keptBytes -= kept.outputBytes;
    this.#outOfOrder.delete(index);
  }

  /** No more tasks end: prints those that still wait for an earlier one. */
  async finish(client: Client, job: number): Promise<void> {
    for (const task of [...this.#outOfOrder.values()].sort((a, b) => a.index - b.index)) {
      await this.#print(client, job, [task]);
      this.#forget(task);
    }
  }

  async #print(client: Client, job: number, tasks: readonly PrintableTask[]): Promise<void> {
    for (const some of groupsToPrint(tasks.filter(({ outputBytes }) => outputBytes > 0))) {
      if (this.#deps.writer.stopped) return;
      if (some.every(needsNoFetch)) {
        await this.#printSmall(some);
        continue;
      }
      const pages = await Promise.all(some.map((task) => pageOf(client, job, task, 0)));
      this.#deps.clear();
      for (const [i, page] of pages.entries()) {
        const task = some[i];
        if (task !== undefined) await this.#printOne(client, job, task, page);
      }
      for (const { index } of some) this.#begun.delete(index);
    }
  }

  /** Pieces of one stream that follow each other are one write. */
  async #printSmall(tasks: readonly PrintableTask[]): Promise<void> {
    const { clear, writer, onPrinted } = this.#deps;
    clear();
    const isTerminal = process.stdout.isTTY || process.stderr.isTTY;
    let stream: OutputStream = "stdout";
    let parts: Uint8Array[] = [];
    const flush = async (): Promise<void> => {
      const [only] = parts;
      const bytes = parts.length === 1 && only !== undefined ? only : Buffer.concat(parts);
      parts = [];
      await writer.write(stream, bytes);
    };
    for (const task of tasks) {
      const lines = this.writerOf(task.index);
      for (const piece of task.output ?? []) {
        if (lines !== writer) {
          await lines.write(piece.stream, piece.bytes);
          continue;
        }
        if (piece.stream !== stream) await flush();
        stream = piece.stream;
        parts.push(piece.bytes);
      }
      await lines.end?.();
      if (!isTerminal) continue;
      await flush();
      writer.endLine();
    }
    await flush();
    onPrinted(tasks, 0);
  }

  async #printOne(client: Client, job: number, task: TaskView, first: Page): Promise<void> {
    const { relayed, writer, onPrinted } = this.#deps;
    const begun = this.#begun.get(task.index) ?? {
      print: this.writerOf(task.index),
      ...{ at: 0, missingBytes: 0, isPrinted: false },
    };
    if (begun.isPrinted) return;
    this.#begun.set(task.index, begun);
    const { print } = begun;
    const spooled = relayed.reader(task.index, task.attempt);
    try {
      for await (const { offset, stream, bytes } of storedPieces(client, job, task, first)) {
        begun.at = await printSpooled(spooled, print, begun.at);
        const { at } = begun;
        if (offset > at) begun.missingBytes += offset - at;
        if (offset + bytes.length > at) await print.write(stream, offset < at ? bytes.subarray(at - offset) : bytes);
        begun.at = Math.max(at, offset + bytes.length);
        if (begun.at >= task.outputBytes || writer.stopped) break;
      }
      begun.at = await printSpooled(spooled, print, begun.at);
    } finally {
      spooled?.close();
    }
    await print.end?.();
    writer.endLine();
    begun.isPrinted = true;
    relayed.remove(task.index);
    onPrinted([task], writer.stopped ? 0 : begun.missingBytes + Math.max(0, task.outputBytes - begun.at));
  }
}

const needsNoFetch = ({ output, outputBytes }: PrintableTask): boolean => output !== undefined || outputBytes === 0;

/** Groups neighbouring tasks: those that need no request to the broker, and a few of the others. */
export function* groupsToPrint(tasks: readonly PrintableTask[]): Generator<readonly PrintableTask[]> {
  for (let from = 0, to = 0; from < tasks.length; from = to) {
    const small = needsNoFetch(tasks[from] as PrintableTask);
    const most = small ? tasks.length : from + FETCH_CONCURRENCY;
    while (to < most && to < tasks.length && needsNoFetch(tasks[to] as PrintableTask) === small) to++;
    yield tasks.slice(from, to);
  }
}

type Page = OperationOutput<"output">;

const pageOf = (client: Client, job: number, { index, attempt }: TaskView, from: number): Promise<Page> =>
  client.ask("output", { job, index, attempt, from });

async function* storedPieces(client: Client, job: number, task: TaskView, first: Page): AsyncGenerator<OutputPiece> {
  for (let page = first; ; page = await pageOf(client, job, task, page.next)) {
    yield* page.pieces;
    if (page.next === undefined) return;
  }
}

/** Prints relayed output from this offset up to the first gap. Returns the offset of the gap. */
async function printSpooled(spooled: SpoolReader | undefined, print: TaskWriter, from: number): Promise<number> {
  let at = from;
  for (let piece = spooled?.pieceAt(at); piece !== undefined; piece = spooled?.pieceAt(at)) {
    await print.write(piece.stream, piece.bytes);
    at += piece.bytes.length;
  }
  return at;
}

/** Writes whole lines with a tag before each, and ends the last line. */
class LineOutput implements TaskWriter {
  readonly #writer: OutputWriter;
  readonly #lines: Readonly<Record<OutputStream, LineWriter>>;
  #written: Promise<void> = Promise.resolve();

  constructor(writer: OutputWriter, tag: string, clear: () => void) {
    this.#writer = writer;
    const lines = (stream: OutputStream): LineWriter => {
      const write = (bytes: Uint8Array): void => {
        clear();
        this.#written = writer.write(stream, bytes);
      };
      return new LineWriter({ write }, tag, LONGEST_LINE);
    };
    this.#lines = { stdout: lines("stdout"), stderr: lines("stderr") };
  }

  get stopped(): boolean {
    return this.#writer.stopped;
  }

  write(stream: OutputStream, bytes: Uint8Array): Promise<void> {
    this.#lines[stream].write(bytes);
    return this.#written;
  }

  end(): Promise<void> {
    for (const writer of Object.values(this.#lines)) writer.end(true);
    return this.#written;
  }
}

/** An entry as a tag of a line. */
export const entryLabel = (entry: Bytes): string =>
  (typeof entry === "string" ? entry : Buffer.from(entry).toString()).replace(/[\t\n\r]/g, " ");

/** How many tasks are listed by name. */
const MAX_LISTED = 10;

interface NoticeDependencies {
  /** "task 12 (data/x.csv)" */
  readonly nameOf: (index: number) => string;
  /** How much of a task's output is stored; all if absent. */
  readonly outputCap: number | undefined;
  /** Called before a line is written. */
  readonly clear: () => void;
}

/** Reports on standard error which tasks have output that was not stored or not shown. */
export class OutputNotices {
  readonly #deps: NoticeDependencies;
  #notKept = 0;
  #missing = 0;

  constructor(deps: NoticeDependencies) {
    this.#deps = deps;
  }

  /** Some output was not shown. */
  get incomplete(): boolean {
    return this.#missing > 0;
  }

  /** The output of this task was printed, except for `missingBytes`. `reason`: why they are missing, if known. */
  add({ index, outputBytes }: TaskView, missingBytes: number, reason?: string): void {
    const { nameOf, outputCap = Number.POSITIVE_INFINITY } = this.#deps;
    const total = formatSize(outputBytes);
    if (missingBytes > 0) {
      const why = reason === undefined ? "" : ` (${reason})`;
      if (++this.#missing <= MAX_LISTED)
        this.#print(`${nameOf(index)}: ${formatSize(missingBytes)} of its ${total} of output are lost${why}`);
    } else if (outputBytes > outputCap && ++this.#notKept <= MAX_LISTED) {
      this.#print(
        `${nameOf(index)}: only ${formatSize(outputCap)} of its ${total} of output are kept for laboro logs; --output-cap keeps more`,
      );
    }
  }

  /** Prints how many tasks were not listed. */
  summarize(): void {
    if (this.#missing > MAX_LISTED) this.#print(`output of ${this.#missing - MAX_LISTED} more tasks is lost`);
    if (this.#notKept > MAX_LISTED)
      this.#print(`output of ${this.#notKept - MAX_LISTED} more tasks is not kept whole; --output-cap keeps more`);
  }

  #print(line: string): void {
    this.#deps.clear();
    printNotice(line);
  }
}
