/**
 * Which outputs of a batch were printed, so that the next start prints the others. A file for each job that is not finished has a line
 * "INDEX ATTEMPT" for each task, written after its output. It is removed when the job has ended and all of its output was printed. What
 * cannot be recorded is printed again by the next start.
 */
import { closeSync, mkdirSync, openSync, readdirSync, readFileSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
import type { JobView, TaskView } from "../views.js";

const FOLDER = "shown";

export class ShownTasks {
  readonly #path: string;
  readonly #shown: ReadonlySet<string>;
  readonly #fd: number | undefined;

  /** `dir`: the data directory of the run. `shownBefore`: what was printed before there was a record. */
  constructor(dir: string, job: JobView, shownBefore: readonly TaskView[] = []) {
    this.#path = join(dir, FOLDER, fileName(job));
    const known = orUndefined(() => readFileSync(this.#path, "utf8"));
    this.#shown = new Set(known?.split("\n"));
    this.#fd = orUndefined(() => {
      mkdirSync(join(dir, FOLDER), { recursive: true, mode: 0o700 });
      return openSync(this.#path, "a", 0o600);
    });
    if (known === undefined) this.add(...shownBefore);
  }

  /** The tasks whose output is not known to be printed. */
  unshown(tasks: readonly TaskView[]): TaskView[] {
    return tasks.filter((task) => task.outputBytes > 0 && !this.#shown.has(lineOf(task)));
  }

  add(...tasks: readonly TaskView[]): void {
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

/** Names a record. The time of creation tells its job from one of the same number in another store. */
export interface JobRecord {
  readonly key: string;
  readonly id: number;
  readonly created: number;
}

/** The jobs of this command whose output was not printed to its end, the latest first. */
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

const fileName = ({ key, id, created }: Partial<JobRecord>): string => `${key} ${id} ${created}`;

const lineOf = ({ index, attempt }: TaskView): string => `${index} ${attempt}`;

function orUndefined<T>(act: () => T): T | undefined {
  try {
    return act();
  } catch {
    return undefined;
  }
}
