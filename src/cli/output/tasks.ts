/** The tasks whose output there may be, in order, and their output page by page. */
import type { Client } from "../../client/client.js";
import { contains, type Ranges } from "../../model/ranges.js";
import type { OperationOutput } from "../answers.js";
import { askPatiently } from "../broker.js";
import type { TaskPrinter } from "./task-printer.js";

export interface TaskAttempt {
  readonly index: number;
  readonly attempt: number;
  /** How much it wrote; absent while it runs. */
  readonly outputEnd?: number;
}

/** Tasks that have ended, in order of index. */
export async function* endedTasks(client: Client, job: number, wanted?: Ranges): AsyncGenerator<TaskAttempt> {
  let from: number | undefined = wanted?.[0]?.first ?? 0;
  const end = wanted?.at(-1)?.last ?? Number.POSITIVE_INFINITY;
  while (from !== undefined && from <= end) {
    const page: OperationOutput<"tasks"> = await client.ask("tasks", { job, from });
    for (const task of page.tasks) if (task.index <= end && isWanted(task.index, wanted)) yield task;
    from = page.next;
  }
}

/** Tasks that are at workers and have been started, in order of index. */
export async function* runningTasks(client: Client, job: number, wanted?: Ranges): AsyncGenerator<TaskAttempt> {
  let from: number | undefined = 0;
  while (from !== undefined) {
    const page: OperationOutput<"running"> = await client.ask("running", { job, from });
    for (const { index, attempt, started } of page.tasks)
      if (started && isWanted(index, wanted)) yield { index, attempt };
    from = page.next;
  }
}

export const isWanted = (index: number, wanted: Ranges | undefined): boolean =>
  wanted === undefined || contains(wanted, index);

/** Prints what is stored of an attempt; with `waitMs`, until it has ended. */
export async function printOutput(
  client: Client,
  job: number,
  { index, attempt, outputEnd }: TaskAttempt,
  printer: TaskPrinter,
  waitMs = 0,
): Promise<void> {
  if (outputEnd === 0) return;
  for (let from = 0; ; ) {
    const input = { job, index, attempt, from, waitMs };
    const page = await askPatiently(client, "output", input);
    for (const piece of page.pieces) printer.print(piece);
    from = page.next ?? page.end;
    if (page.ended || (waitMs === 0 && page.next === undefined)) break;
  }
  printer.end(outputEnd);
}
