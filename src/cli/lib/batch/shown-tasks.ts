/**
 * Records which outputs of a batch were printed, so that the next start prints the others. Each unfinished job has a
 * file with a line "INDEX ATTEMPT" for each task, written after its output. The file is removed when the job has ended
 * and all of its output was printed. Output that cannot be recorded is printed again by the next start.
 */
import { closeSync, mkdirSync, openSync, readdirSync, readFileSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
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

const lineOf = ({ index, attempt }: TaskView): string => `${index} ${attempt}`;

function orUndefined<T>(act: () => T): T | undefined {
  try {
    return act();
  } catch {
    return undefined;
  }
}
