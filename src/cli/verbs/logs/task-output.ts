/** The tasks of a job that may have output, in order, and their output page by page. */

import { formatSize } from "../../../base/format.js";
import type { Client } from "../../../client/client.js";
import type { OutputStream, SmallOutput } from "../../../model/outcome.js";
import { contains, type Ranges } from "../../../model/ranges.js";
import type { OutputPiece } from "../../../model/store.js";
import { askWithRetry } from "../../lib/broker-connection.js";
import { LineWriter, type Sink } from "../../lib/output-writer.js";
import { bytesToJson, printLines, printNotice } from "../../lib/print.js";
import { EscapeFilter } from "../../lib/terminal/escape-filter.js";
import { type OperationOutput, pages } from "../../lib/views.js";

const PAGE = 1_000;

export interface TaskAttempt {
  readonly index: number;
  readonly number: number;
  readonly attempt: number;
  /** Size of the output; absent while the task runs. */
  readonly outputBytes?: number;
  /** The complete output, if it is small. */
  readonly output?: readonly SmallOutput[] | undefined;
}

/** Tasks that have ended, in order of index. */
export async function* endedTasks(client: Client, job: number, wanted?: Ranges): AsyncGenerator<TaskAttempt> {
  const end = wanted?.at(-1)?.last ?? Number.POSITIVE_INFINITY;
  const read = (from: number) => client.ask("tasks", { job, from, limit: Math.min(PAGE, end - from + 1) });
  for await (const { tasks, next = end } of pages(read, wanted?.[0]?.first)) {
    for (const task of tasks) if (task.index <= end && isWanted(task.index, wanted)) yield task;
    if (next > end) return;
  }
}

/** Tasks that run, in order of index. */
export async function* runningTasks(client: Client, job: number, wanted?: Ranges): AsyncGenerator<TaskAttempt> {
  for await (const page of pages((from) => client.ask("running", { job, from })))
    for (const { index, number, attempt } of page.tasks) if (isWanted(index, wanted)) yield { index, number, attempt };
}

const isWanted = (index: number, wanted: Ranges | undefined): boolean =>
  wanted === undefined || contains(wanted, index);

type Page = OperationOutput<"output">;
type Pieces = Pick<Page, "pieces" | "next">;

/** For how many tasks the first page is requested ahead. */
const PREFETCH = 16;

/** Prints the stored output of these attempts, one after the other. */
export async function printStored(
  client: Client,
  job: number,
  tasks: AsyncIterable<TaskAttempt>,
  printerOf: (task: TaskAttempt) => TaskPrinter,
): Promise<void> {
  const first = async ({ index, attempt, outputBytes, output }: TaskAttempt): Promise<Pieces | undefined> => {
    if (outputBytes === 0) return undefined;
    return output === undefined
      ? askWithRetry(client, "output", { job, index, attempt })
      : { pieces: withOffsets(output) };
  };
  for await (const [task, page] of prefetch(tasks, PREFETCH, first)) {
    if (page === undefined) continue;
    const printer = printerOf(task);
    for (const piece of page.pieces) printer.print(piece);
    if (page.next !== undefined) await printFrom(client, job, task, printer, page.next, 0);
    printer.end(task.outputBytes);
  }
}

function withOffsets(output: readonly SmallOutput[]): OutputPiece[] {
  let offset = 0;
  return output.map(({ stream, bytes }) => {
    offset += bytes.length;
    return { stream, bytes, offset: offset - bytes.length };
  });
}

/** Prints the output of an attempt as it arrives, until the attempt has ended. */
export async function printLive(client: Client, job: number, task: TaskAttempt, printer: TaskPrinter): Promise<void> {
  await printFrom(client, job, task, printer, 0, LIVE_WAIT_MS);
  printer.end();
}

/** The broker answers when there is more output, or after this time. */
const LIVE_WAIT_MS = 10_000;

async function printFrom(
  client: Client,
  job: number,
  { index, attempt }: TaskAttempt,
  printer: TaskPrinter,
  start: number,
  waitMs: number,
): Promise<void> {
  for (let from = start; ; ) {
    const page: Page = await askWithRetry(client, "output", { job, index, attempt, from, waitMs });
    for (const piece of page.pieces) printer.print(piece);
    from = page.next ?? page.endOffset;
    if (page.ended || (waitMs === 0 && page.next === undefined)) return;
  }
}

/** Starts the work for up to `limit` items ahead, and yields the results in order. */
async function* prefetch<Item, Result>(
  items: AsyncIterable<Item>,
  limit: number,
  start: (item: Item) => Promise<Result>,
): AsyncGenerator<readonly [Item, Result]> {
  const pending: { readonly item: Item; readonly result: Promise<Result> }[] = [];
  for await (const item of items) {
    const result = start(item);
    // It is awaited below; until then a rejection must not count as unhandled.
    result.catch(() => {});
    pending.push({ item, result });
    if (pending.length < limit) continue;
    const first = pending.shift();
    if (first !== undefined) yield [first.item, await first.result];
  }
  for (const { item, result } of pending) yield [item, await result];
}

export interface PrintOptions {
  /** Print only this stream. */
  readonly stream?: OutputStream;
  /** `JOB.TASK<tab>` before every line. */
  readonly tag: boolean;
  /** Output of several tasks is mixed, so it is written in whole lines. */
  readonly multipleTasks: boolean;
  /** Each piece as a line of JSON on standard output, gaps too. */
  readonly json?: boolean;
  /** Keep all escape sequences on a terminal. */
  readonly raw?: boolean;
}

export class TaskPrinter {
  readonly #name: string;
  readonly #options: PrintOptions;
  readonly #writers: Readonly<Record<OutputStream, LineWriter>> | undefined;
  readonly #filters: Readonly<Record<OutputStream, EscapeFilter | undefined>>;
  #position = 0;

  /** `name` is JOB.TASK. */
  constructor(name: string, options: PrintOptions) {
    this.#name = name;
    this.#options = options;
    const filterOf = (stream: OutputStream): EscapeFilter | undefined =>
      process[stream].isTTY && options.raw !== true ? new EscapeFilter() : undefined;
    this.#filters = { stdout: filterOf("stdout"), stderr: filterOf("stderr") };
    const tag = options.tag ? `${name}\t` : "";
    if (options.tag || options.multipleTasks) {
      this.#writers = { stdout: new LineWriter(process.stdout, tag), stderr: new LineWriter(process.stderr, tag) };
    }
  }

  /** Where the next piece should begin. */
  get position(): number {
    return this.#position;
  }

  print({ stream, offset, bytes }: OutputPiece): void {
    this.#gapTo(offset);
    this.#position = offset + bytes.length;
    if (this.#options.stream !== undefined && stream !== this.#options.stream) return;
    if (this.#options.json === true) {
      printJsonLine({ task: this.#name, stream, offset, bytes: bytesToJson(bytes) });
      return;
    }
    const filtered = this.#filters[stream]?.filter(bytes);
    this.#sink(stream).write(filtered === undefined ? bytes : Buffer.from(filtered));
  }

  #sink(stream: OutputStream): Sink {
    return this.#writers?.[stream] ?? process[stream];
  }

  /** `outputBytes`: how much the task wrote, if it has ended. */
  end(outputBytes = this.#position): void {
    this.#gapTo(outputBytes);
    this.#endPieces(this.#options.multipleTasks);
  }

  #endPieces(othersFollow: boolean): void {
    for (const stream of ["stdout", "stderr"] as const) {
      const rest = this.#filters[stream]?.end() ?? "";
      if (rest !== "") this.#sink(stream).write(Buffer.from(rest));
      this.#writers?.[stream].end(othersFollow);
    }
  }

  /** Offsets count both streams. A gap is output of either stream that was not stored. */
  #gapTo(offset: number): void {
    if (offset <= this.#position) return;
    if (this.#options.json === true) {
      printJsonLine({ task: this.#name, offset: this.#position, missing: offset - this.#position });
      this.#position = offset;
      return;
    }
    this.#endPieces(true);
    printNotice(
      `[${this.#name}: ${formatSize(offset - this.#position)} of output were not kept here, see --output-cap]`,
    );
    this.#position = offset;
  }
}

const printJsonLine = (line: object): void => printLines(JSON.stringify(line));
