/**
 * Records which outputs of a batch were printed, so that the next start prints the others. Each unfinished job has a
 * file with a line "INDEX ATTEMPT" for each task, written after its output. The file is removed when the job has ended
 * and all of its output was printed. Output that cannot be recorded is printed again by the next start.
 * `OutputNotices` reports output that was not printed or not stored.
 *
 * `--joblog FILE`: one line per ended task, with the columns of GNU parallel, then CPU time and memory.
 *
 * `--results DIR`: stdout, stderr and number of each task in files, in the layout of GNU parallel. A task's folder is
 * DIR/1/VALUE/2/VALUE, for the columns of its entry; with --header, the names take the place of the numbers.
 */
import {
  appendFileSync,
  closeSync,
  existsSync,
  fstatSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { constants } from "node:os";
import { dirname, join } from "node:path";
import { badInput, errnoOf } from "../../../base/errors.js";
import { formatSize } from "../../../base/format.js";
import type { Client } from "../../../client/client.js";
import { COLUMN_SEPARATOR } from "../../../model/placeholders.js";
import { printNotice } from "../print.js";
import { type JobView, pages, type TaskView } from "../result-text.js";
import type { TaskAttempt } from "../task-output/attempt-output.js";
import type { ReportedTask } from "./batch-follower.js";
import type { StartedBatch } from "./resume.js";

const FOLDER = "shown";

export class ShownTasks {
  readonly #path: string;
  readonly #shown: ReadonlySet<string>;
  readonly #fd: number | undefined;

  /** `dir`: the data directory of the run. `shownBefore`: tasks that were printed before the record began. */
  constructor(dir: string, job: JobView, shownBefore: readonly TaskView[] = []) {
    const { batchKey: key = "", id, created } = job;
    this.#path = join(dir, FOLDER, shownFile({ key, id, created }));
    const known = orUndefined(() => readFileSync(this.#path, "utf8"));
    this.#shown = new Set(known?.split("\n"));
    this.#fd = orUndefined(() => {
      mkdirSync(join(dir, FOLDER), { recursive: true, mode: 0o700 });
      return openSync(this.#path, "a", 0o600);
    });
    if (known === undefined) this.add(...shownBefore);
  }

  /** The tasks whose output is not recorded as printed. */
  unshown(tasks: readonly TaskView[]): TaskView[] {
    return tasks.filter((task) => task.outputBytes > 0 && !this.#shown.has(shownLine(task)));
  }

  add(...tasks: readonly TaskAttempt[]): void {
    const lines = tasks.map((task) => `${shownLine(task)}\n`).join("");
    orUndefined(() => this.#fd !== undefined && writeSync(this.#fd, lines));
  }

  close(): void {
    orUndefined(() => this.#fd !== undefined && closeSync(this.#fd));
  }

  remove(): void {
    this.close();
    orUndefined(() => rmSync(this.#path, { force: true }));
  }
}

/** Identifies a record. A job of another store can have the same number, but not the same time of creation. */
export interface JobRecord {
  readonly key: string;
  readonly id: number;
  readonly created: number;
}

/** The jobs of this command whose output was not printed completely, the latest first. */
export function unfinishedJobs(dir: string, key: string): JobRecord[] {
  const names = (orUndefined(() => readdirSync(join(dir, FOLDER))) ?? []).filter((name) => name.startsWith(`${key} `));
  const records = names.map((name) => {
    const [, id, created] = name.split(" ");
    return { key, id: Number(id), created: Number(created) };
  });
  return records.sort((a, b) => b.id - a.id);
}

export function removeRecord(dir: string, record: JobRecord): void {
  orUndefined(() => rmSync(join(dir, FOLDER, shownFile(record)), { force: true }));
}

const shownFile = ({ key, id, created }: JobRecord): string => `${key} ${id} ${created}`;

const shownLine = ({ index, attempt }: TaskAttempt): string => `${index} ${attempt}`;

function orUndefined<T>(act: () => T): T | undefined {
  try {
    return act();
  } catch {
    return undefined;
  }
}

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
  add({ index, outputBytes = 0 }: TaskAttempt, missingBytes: number, reason?: string): void {
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

const signals: Readonly<Record<string, number>> = constants.signals;
const HEAD = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\tCpuTime\tPeakMemory\n";

export class JobLog {
  readonly #file: string;
  readonly #fd: number;

  constructor(file: string) {
    this.#file = file;
    try {
      this.#fd = openSync(file, "a");
    } catch (cause) {
      throw badInput(`cannot write --joblog ${file}: ${cause instanceof Error ? cause.message : String(cause)}`);
    }
  }

  /** A resumed batch keeps its lines and adds those that are missing. Another batch replaces the file. */
  begin({ job, resumed, earlier, commandOf }: StartedBatch): void {
    const isFile = fstatSync(this.#fd).isFile();
    if (!resumed && isFile) ftruncateSync(this.#fd);
    const lines = isFile ? readFileSync(this.#file, "utf8").split("\n") : [""];
    if (lines[0] === "") writeSync(this.#fd, HEAD);
    const logged = new Set(lines.map((line) => line.split("\t", 1)[0]));
    const ended = earlier.find((one) => one.job.id === job)?.ended;
    this.add(
      (ended ?? []).filter(({ number }) => !logged.has(String(number))),
      commandOf,
    );
  }

  add(results: readonly TaskView[], commandOf: (index: number) => string): void {
    if (results.length > 0) writeSync(this.#fd, results.map((one) => joblogLine(one, commandOf(one.index))).join(""));
  }

  close(): void {
    closeSync(this.#fd);
  }
}

/** Seq is the number of the task, for a list from 1 as in GNU parallel. */
function joblogLine(result: TaskView, label: string): string {
  const start = (result.started / 1000).toFixed(3);
  const runtime = ((result.ended - result.started) / 1000).toFixed(3);
  const signal = result.signal === undefined ? 0 : (signals[result.signal] ?? -1);
  const code = result.code ?? (result.signal === undefined ? -1 : 0);
  const fields = [
    result.number,
    result.worker,
    start,
    runtime,
    0,
    result.outputBytes,
    code,
    signal,
    label.replace(/[\t\n]/g, " "),
    result.cpuMs === undefined ? "" : (result.cpuMs / 1000).toFixed(3),
    result.peakMemory ?? "",
  ];
  return `${fields.join("\t")}\n`;
}

/** A file name has at most 255 bytes. */
const MAX_NAME_BYTES = 240;

export class ResultFiles {
  readonly #dir: string;
  readonly #names: readonly string[];

  constructor(dir: string, names: readonly string[] = []) {
    this.#dir = dir;
    this.#names = names;
    try {
      makeFolders(dir);
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
      makeFolders(folder);
      for (const stream of ["stdout", "stderr"]) writeFileSync(join(folder, stream), "");
      for (const { stream, bytes } of output ?? []) appendFileSync(join(folder, stream), bytes);
      const read = (from: number) => client.ask("output", { job, index, attempt, from });
      if (output === undefined && outputBytes > 0)
        for await (const page of pages(read))
          for (const { stream, bytes } of page.pieces) appendFileSync(join(folder, stream), bytes);
      // Last: it says that the others are complete.
      writeFileSync(join(folder, "seq"), String(number));
    }
  }

  #folderOf({ index, number }: TaskView, labelOf: LabelOf): string {
    const columns = labelOf(index)?.split(COLUMN_SEPARATOR) ?? [];
    const path = columns.flatMap((value, at) => [
      resultFileName(this.#names[at] ?? String(at + 1), number),
      resultFileName(value, number),
    ]);
    return join(this.#dir, ...path);
  }
}

/** Node 20's recursive `mkdir` loops forever if the system reports ENOENT below an existing folder, as in /proc. */
function makeFolders(path: string): void {
  try {
    mkdirSync(path);
  } catch (cause) {
    if (errnoOf(cause) === "EEXIST" && statSync(path).isDirectory()) return;
    if (errnoOf(cause) !== "ENOENT" || existsSync(dirname(path))) throw cause;
    makeFolders(dirname(path));
    mkdirSync(path);
  }
}

/** The entry of a task, with its tabs. */
type LabelOf = (index: number) => string | undefined;

function resultFileName(value: string, number: number): string {
  const name = value.replaceAll("\\", "\\\\").replaceAll("\t", "\\t").replaceAll("\n", "\\n").replaceAll("/", "\\_");
  if (/^\.{0,2}$/.test(name)) return `\\${name === "" ? "0" : name}`;
  const bytes = Buffer.from(name);
  return bytes.length <= MAX_NAME_BYTES ? name : `${bytes.subarray(0, MAX_NAME_BYTES - 12).toString()}~${number}`;
}
