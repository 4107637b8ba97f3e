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
    // The time of creation tells it from a job of the same number in another store.
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

export type UnfinishedJob = Pick<JobView, "id" | "created">;

/** The latest job of this batch whose output was not printed to its end, if there is one. */
export function unfinishedJob(dir: string, key: string): UnfinishedJob | undefined {
  const jobs = recordsOf(dir, key).map((name) => name.split(" ").map(Number));
  const [, id, created] = jobs.sort(([, a = 0], [, b = 0]) => b - a)[0] ?? [];
  return id === undefined || created === undefined ? undefined : { id, created };
}

/** Removes the records of a batch, except of these jobs. */
export function keepOnly(dir: string, jobs: readonly JobView[]): void {
  const kept = new Set(jobs.map(fileName));
  for (const name of recordsOf(dir, jobs[0]?.key))
    if (!kept.has(name)) orUndefined(() => rmSync(join(dir, FOLDER, name), { force: true }));
}

const recordsOf = (dir: string, key: string | undefined): string[] =>
  (orUndefined(() => readdirSync(join(dir, FOLDER))) ?? []).filter((name) => name.startsWith(`${key} `));

const fileName = ({ key, id, created }: JobView): string => `${key} ${id} ${created}`;

const lineOf = ({ index, attempt }: TaskView): string => `${index} ${attempt}`;

function orUndefined<T>(act: () => T): T | undefined {
  try {
    return act();
  } catch {
    return undefined;
  }
}
