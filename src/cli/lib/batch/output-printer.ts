/**
 * Prints the output of tasks when they end: in the order of their ends, or of their entries. Output is printed byte for byte; with a tag,
 * line by line. What is stored comes from the broker, what was relayed from the spool.
 */
import type { Client } from "../../../client/client.js";
import type { Bytes } from "../../../model/recipe.js";
import type { OutputPiece } from "../../../model/store.js";
import { LineWriter } from "../line-writer.js";
import type { OutputWriter } from "../output-writer.js";
import type { OperationOutput, TaskView } from "../views.js";
import type { RelaySpool, SpoolReader } from "./relay-spool.js";

export interface OutputOptions {
  readonly keepOrder: boolean;
  /** The entry before each line. */
  readonly tag: boolean;
}

export interface PrinterDependencies {
  readonly writer: OutputWriter;
  readonly relayed: RelaySpool;
  readonly labelOf: (index: number) => string;
  /** Removes the progress bar. */
  readonly clear: () => void;
  /** The output of a task was printed; so many bytes of it are missing. */
  readonly onPrinted: (task: TaskView, missingBytes: number) => void;
}

/** Outputs fetched at one time. */
const FETCH_CONCURRENCY = 16;

export class OutputPrinter {
  readonly #options: OutputOptions;
  readonly #deps: PrinterDependencies;
  readonly #outOfOrder = new Map<number, TaskView>();
  #next: number;

  /** `first`: the task with which the order begins. */
  constructor(options: OutputOptions, deps: PrinterDependencies, first = 0) {
    this.#options = options;
    this.#deps = deps;
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
    for (let at = 0; at < withOutput.length && !this.#deps.writer.stopped; at += FETCH_CONCURRENCY) {
      const some = withOutput.slice(at, at + FETCH_CONCURRENCY);
      const pages = await Promise.all(some.map((task) => pageOf(client, job, task, 0)));
      this.#deps.clear();
      for (const [i, page] of pages.entries()) {
        const task = some[i];
        if (task !== undefined) await this.#printOne(client, job, task, page);
      }
    }
  }

  async #printOne(client: Client, job: number, task: TaskView, first: Page): Promise<void> {
    const { relayed, writer, onPrinted } = this.#deps;
    const print = this.#options.tag ? new TaggedOutput(writer, `${this.#deps.labelOf(task.index)}\t`) : writer;
    const spooled = relayed.reader(task.index, task.attempt);
    let at = 0;
    let missing = 0;
    try {
      for await (const piece of storedPieces(client, job, task, first)) {
        at = await printSpooled(spooled, print, at);
        const { offset, stream, bytes } = piece;
        if (offset > at) missing += offset - at;
        if (offset + bytes.length > at) await print.write(stream, offset < at ? bytes.subarray(at - offset) : bytes);
        at = Math.max(at, offset + bytes.length);
        if (at >= task.outputBytes || writer.stopped) break;
      }
      at = await printSpooled(spooled, print, at);
    } finally {
      spooled?.close();
    }
    if (print instanceof TaggedOutput) await print.end();
    writer.endLine();
    relayed.remove(task.index);
    onPrinted(task, writer.stopped ? 0 : missing + Math.max(0, task.outputBytes - at));
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

/** Prints what was relayed from this offset on without a gap. Returns where it ends. */
async function printSpooled(
  spooled: SpoolReader | undefined,
  print: Pick<OutputWriter, "write">,
  from: number,
): Promise<number> {
  let at = from;
  for (let piece = spooled?.pieceAt(at); piece !== undefined; piece = spooled?.pieceAt(at)) {
    await print.write(piece.stream, piece.bytes);
    at += piece.bytes.length;
  }
  return at;
}

/** Lines with a tag before each; the last one is ended. */
class TaggedOutput {
  readonly #lines: Readonly<Record<"stdout" | "stderr", LineWriter>>;
  #written: Promise<void> = Promise.resolve();

  constructor(writer: OutputWriter, tag: string) {
    const lines = (stream: "stdout" | "stderr"): LineWriter =>
      new LineWriter({ write: (bytes) => (this.#written = writer.write(stream, bytes)) }, tag);
    this.#lines = { stdout: lines("stdout"), stderr: lines("stderr") };
  }

  write(stream: "stdout" | "stderr", bytes: Uint8Array): Promise<void> {
    this.#lines[stream].write(bytes);
    return this.#written;
  }

  end(): Promise<void> {
    for (const writer of Object.values(this.#lines)) writer.end(true);
    return this.#written;
  }
}

/** An entry as it can stand before a line. */
export const entryLabel = (entry: Bytes): string =>
  (typeof entry === "string" ? entry : Buffer.from(entry).toString()).replace(/[\t\n\r]/g, " ");
