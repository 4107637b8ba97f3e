/** The command of a task, and the files it needs: scripts and inputs are written once a job. */
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { JobId } from "../model/ids.js";
import { expandLine, expandWords } from "../model/placeholders.js";
import {
  hasShebang,
  interpreterOf,
  type ProcessRecipe,
  type ScriptRecipe,
  withEntry,
} from "../model/process-recipe.js";
import type { Bytes } from "../model/recipe.js";
import { type Strides, taskNumber } from "../model/task-numbers.js";
import type { AcquiredSlot } from "./capacity.js";
import { matlabLine } from "./matlab.js";
import type { CommandSpec } from "./processes/index.js";
import type { PrefetchedTask } from "./task-tracker.js";

export interface ProcessJob {
  readonly recipe: ProcessRecipe;
  readonly numbers?: Strides;
}

export class JobFiles {
  readonly #dir: string;
  readonly #baseEnv: Readonly<Record<string, string>>;
  #pushedEnv: Readonly<Record<string, string>> = {};
  /** The job of each file that exists. */
  readonly #written = new Map<string, JobId>();

  /** `baseEnv` is for every task; its recipe may override it. */
  constructor(dir: string, baseEnv: Readonly<Record<string, string>> = {}) {
    this.#dir = dir;
    this.#baseEnv = baseEnv;
    // Files of an earlier process belong to jobs that this one does not know.
    rmSync(dir, { recursive: true, force: true });
    mkdirSync(dir, { recursive: true, mode: 0o700 });
  }

  /** For every task from now on, from the pushed config. */
  setEnvironment(env: Readonly<Record<string, string>>): void {
    this.#pushedEnv = env;
  }

  commandOf(job: ProcessJob, prefetched: PrefetchedTask, acquired: AcquiredSlot): CommandSpec {
    const { recipe } = job;
    const task = withEntry(prefetched, recipe);
    const number = taskNumber(job, task.index);
    return {
      argv: this.#argv(recipe, task, number, acquired.slot + 1),
      env: { ...this.#pushedEnv, ...this.#baseEnv, ...recipe.env, ...taskEnvironment(task, number, acquired) },
      ...(recipe.dir === undefined ? {} : { dir: recipe.dir }),
      ...(recipe.stdin === undefined ? {} : { stdinFile: this.#file(task.job, `${task.job}.stdin`, recipe.stdin) }),
    };
  }

  #argv(recipe: ProcessRecipe, task: PrefetchedTask, number: number, slot: number): readonly Bytes[] {
    const values = { number, entry: task.entry, slot };
    if (recipe.kind === "script") {
      if (isMatlab(recipe)) {
        return ["/bin/sh", "-c", `exec ${matlabLine(this.#file(task.job, `laboro_${task.job}.m`, recipe.content), 1)}`];
      }
      const file = this.#file(task.job, `${task.job}.script${safeExtension(recipe.type)}`, recipe.content);
      const args = recipe.args ?? [];
      return [...interpreterOf(recipe), file, ...expandWords(args, values)];
    }
    const [line] = recipe.argv;
    if (recipe.shell === true && line !== undefined) {
      return ["/bin/sh", "-c", recipe.placeholders === true ? expandLine(line, values) : line];
    }
    return recipe.placeholders === true ? expandWords(recipe.argv, values) : recipe.argv;
  }

  #file(job: JobId, name: string, content: Uint8Array): string {
    const path = join(this.#dir, name);
    if (!this.#written.has(name)) {
      writeFileSync(path, content, { mode: 0o700 });
      this.#written.set(name, job);
    }
    return path;
  }

  forget(job: JobId): void {
    for (const [name, owner] of this.#written) {
      if (owner !== job) continue;
      this.#written.delete(name);
      rmSync(join(this.#dir, name), { force: true });
    }
  }

  remove(): void {
    rmSync(this.#dir, { recursive: true, force: true });
  }
}

function taskEnvironment(task: PrefetchedTask, number: number, { slot, env }: AcquiredSlot): Record<string, Bytes> {
  return {
    ...env,
    LABORO_JOB: String(task.job),
    LABORO_TASK: String(number),
    LABORO_ATTEMPT: String(task.attempt),
    LABORO_SLOT: String(slot),
    ...(task.entry === undefined ? {} : { LABORO_ENTRY: task.entry }),
  };
}

const isMatlab = (script: ScriptRecipe): boolean => script.type === ".m" && !hasShebang(script);

const safeExtension = (type: string): string => (/^\.[A-Za-z0-9]+$/.test(type) ? type : "");
