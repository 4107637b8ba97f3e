/**
 * `--results DIR`: stdout, stderr and number of each task in files, in the layout of GNU parallel. A task's folder is
 * DIR/1/VALUE/2/VALUE, for the columns of its entry; with --header, the names take the place of the numbers.
 */
import { appendFileSync, existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { badInput } from "../../../base/errors.js";
import type { Client } from "../../../client/client.js";
import { COLUMN_SEPARATOR } from "../../../model/placeholders.js";
import { pages, type TaskView } from "../views.js";
import type { ReportedTask } from "./batch-follower.js";

/** A file name has at most 255 bytes. */
const MAX_NAME_BYTES = 240;

export class ResultFiles {
  readonly #dir: string;
  readonly #names: readonly string[];

  constructor(dir: string, names: readonly string[] = []) {
    this.#dir = dir;
    this.#names = names;
    try {
      mkdirSync(dir, { recursive: true });
    } catch (cause) {
      throw badInput(`cannot write --results ${dir}: ${cause instanceof Error ? cause.message : String(cause)}`);
    }
  }

  /** What a run before this one has saved is not read again. */
  async saveMissing(client: Client, job: number, tasks: readonly TaskView[], labelOf: LabelOf): Promise<void> {
    for (const task of tasks)
      if (!existsSync(join(this.#folderOf(task, labelOf), "seq"))) await this.save(client, job, [task], labelOf);
  }

  /** Output beyond the cap of the job is not kept, so it is not in the files either. */
  async save(client: Client, job: number, tasks: readonly ReportedTask[], labelOf: LabelOf): Promise<void> {
    for (const task of tasks) {
      const { index, attempt, output, outputBytes, number } = task;
      const folder = this.#folderOf(task, labelOf);
      mkdirSync(folder, { recursive: true });
      for (const stream of ["stdout", "stderr"]) writeFileSync(join(folder, stream), "");
      for (const { stream, bytes } of output ?? []) appendFileSync(join(folder, stream), bytes);
      const read = (from: number) => client.ask("output", { job, index, attempt, from });
      if (output === undefined && outputBytes > 0)
        for await (const page of pages(read))
          for (const { stream, bytes } of page.pieces) appendFileSync(join(folder, stream), bytes);
      // Last: it says that the others are complete.
      writeFileSync(join(folder, "seq"), `${number}\n`);
    }
  }

  #folderOf({ index, number }: TaskView, labelOf: LabelOf): string {
    const columns = labelOf(index)?.split(COLUMN_SEPARATOR) ?? [];
    const path = columns.flatMap((value, at) => [
      fileName(this.#names[at] ?? String(at + 1), number),
      fileName(value, number),
    ]);
    return join(this.#dir, ...path);
  }
}

/** The entry of a task, with its tabs. */
export type LabelOf = (index: number) => string | undefined;

function fileName(value: string, number: number): string {
  const name = value.replaceAll("\\", "\\\\").replaceAll("\t", "\\t").replaceAll("\n", "\\n").replaceAll("/", "\\_");
  if (/^\.{0,2}$/.test(name)) return `\\${name === "" ? "0" : name}`;
  const bytes = Buffer.from(name);
  return bytes.length <= MAX_NAME_BYTES ? name : `${bytes.subarray(0, MAX_NAME_BYTES - 12).toString()}~${number}`;
}
