/** The tasks of a job that may have output, in order, and their output page by page. */
import type { Client } from "../../../client/client.js";
import type { SmallOutput } from "../../../model/outcome.js";
import { contains, type Ranges } from "../../../model/ranges.js";
import type { OutputPiece } from "../../../model/store.js";
import { askWithRetry } from "../../lib/broker-connection.js";
import type { OperationOutput } from "../../lib/views.js";
import { prefetch } from "./prefetch.js";
import type { TaskPrinter } from "./task-printer.js";

const PAGE = 1_000;

export interface TaskAttempt {
  readonly index: number;
  readonly number: number;
  readonly attempt: number;
  /** How much it wrote; absent while it runs. */
  readonly outputBytes?: number;
  /** All of it, where it is small. */
  readonly output?: readonly SmallOutput[] | undefined;
}

/** Tasks that have ended, in order of index. */
export async function* endedTasks(client: Client, job: number, wanted?: Ranges): AsyncGenerator<TaskAttempt> {
  let from: number | undefined = wanted?.[0]?.first ?? 0;
  const end = wanted?.at(-1)?.last ?? Number.POSITIVE_INFINITY;
  while (from !== undefined && from <= end) {
    const page: OperationOutput<"tasks"> = await client.ask("tasks", {
      job,
      from,
      limit: Math.min(PAGE, end - from + 1),
    });
    for (const task of page.tasks) if (task.index <= end && isWanted(task.index, wanted)) yield task;
    from = page.next;
  }
}

/** Tasks that run, in order of index. */
export async function* runningTasks(client: Client, job: number, wanted?: Ranges): AsyncGenerator<TaskAttempt> {
  let from: number | undefined = 0;
  while (from !== undefined) {
    const page: OperationOutput<"running"> = await client.ask("running", { job, from });
    for (const { index, number, attempt } of page.tasks) if (isWanted(index, wanted)) yield { index, number, attempt };
    from = page.next;
  }
}

export const isWanted = (index: number, wanted: Ranges | undefined): boolean =>
  wanted === undefined || contains(wanted, index);

type Page = OperationOutput<"output">;
type Pieces = Pick<Page, "pieces" | "next">;

/** Tasks whose first page is requested ahead. */
const PREFETCH = 16;

/** Prints what is stored of these attempts, one after the other. */
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

/** Prints what comes of an attempt until it has ended. */
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
