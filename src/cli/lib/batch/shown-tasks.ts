/**
 * Records which outputs of a batch were printed, so that the next start prints the others. Each unfinished job has a
 * file with a line "INDEX ATTEMPT" for each task, written after its output. The file is removed when the job has ended
 * and all of its output was printed. Output that cannot be recorded is printed again by the next start.
 *
 * `OutputNotices` reports output that was not printed or not stored.
 */
import { closeSync, mkdirSync, openSync, readdirSync, readFileSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
import { formatSize } from "../../../base/format.js";
import { printNotice } from "../print.js";
import type { TaskAttempt } from "../task-output/attempt-output.js";
import type { JobView, TaskView } from "../views.js";

const FOLDER = "shown";

export class ShownTasks {
  readonly #path: string;
  readonly #shown: ReadonlySet<string>;
  readonly #fd: number | undefined;

  /** `dir`: the data directory of the run. `shownBefore`: tasks that were printed before the record began. */
  constructor(dir: string, job: JobView, shownBefore: readonly TaskView[] = []) {
    const { batchKey: key = "", id, created } = job;
    this.#path = join(dir, FOLDER, fileName({ key, id, created }));
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
    return tasks.filter((task) => task.outputBytes > 0 && !this.#shown.has(lineOf(task)));
  }

  add(...tasks: readonly TaskAttempt[]): void {
    const lines = tasks.map((task) => `${lineOf(task)}\n`).join("");
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
  orUndefined(() => rmSync(join(dir, FOLDER, fileName(record)), { force: true }));
}

const fileName = ({ key, id, created }: JobRecord): string => `${key} ${id} ${created}`;

const lineOf = ({ index, attempt }: TaskAttempt): string => `${index} ${attempt}`;

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
