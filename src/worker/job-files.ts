/** The command of a task, and the files it needs: scripts and inputs are written once a job. */
import { existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import type { JobId } from "../model/ids.js";
import { expandLine, expandWords } from "../model/placeholders.js";
import type { Bytes } from "../model/recipe.js";
import {
  hasShebang,
  interpreterOf,
  type ProcessRecipe,
  type ScriptRecipe,
  shellOf,
  withEntry,
} from "../model/recipe.js";
import { quote } from "../model/shell-words.js";
import { type Strides, taskNumber } from "../model/task-numbers.js";
import type { AcquiredSlot } from "./capacity.js";
import type { CommandSpec } from "./processes/index.js";
import { DEFAULT_PATH, findCommand } from "./processes/lookup.js";
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
  readonly #missingDir: string | undefined;
  readonly #written = new Map<string, JobId>();

  /** `baseEnv` is for every task; its recipe may override it. `missingDir`: see WorkerOptions. */
  constructor(dir: string, baseEnv: Readonly<Record<string, string>> = {}, missingDir?: string) {
    this.#dir = dir;
    this.#baseEnv = baseEnv;
    this.#missingDir = missingDir;
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
      ...(recipe.dir === undefined ? {} : { dir: this.#existing(recipe.dir) }),
      ...(recipe.stdin === undefined ? {} : { stdinFile: this.#file(task.job, `${task.job}.stdin`, recipe.stdin) }),
    };
  }

  #existing(dir: Bytes): Bytes {
    const isMissing = this.#missingDir !== undefined && !existsSync(typeof dir === "string" ? dir : Buffer.from(dir));
    return isMissing ? this.#missingDir : dir;
  }

  #argv(recipe: ProcessRecipe, task: PrefetchedTask, number: number, slot: number): readonly Bytes[] {
    const values = { number, entry: task.entry, slot, several: recipe.several };
    if (recipe.kind === "script") {
      if (isMatlab(recipe)) {
        return ["/bin/sh", "-c", `exec ${matlabLine(this.#file(task.job, `laboro_${task.job}.m`, recipe.content), 1)}`];
      }
      const file = this.#file(task.job, `${task.job}.script${safeExtension(recipe.type)}`, recipe.content);
      const args = recipe.args ?? [];
      return [...interpreterOf(recipe), file, ...expandWords(args, values)];
    }
    const line = recipe.argv.at(-1);
    if (recipe.shell === true && line !== undefined) {
      return [...shellOf(recipe), recipe.placeholders === true ? expandLine(line, values) : line];
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

// How a `.m` script is run: by MATLAB, or by Octave where there is no MATLAB. It is called by name with its folder on the path, so that it runs in the caller's directory.

/** Shell text. The name of `file` is one that MATLAB accepts for a script: letters, digits and `_` before the `.m`. `exit` is the exit code after an error; 0 if absent. */
export function matlabLine(file: string, exit = 0, path: string = process.env.PATH ?? DEFAULT_PATH): string {
  const name = basename(file).replace(/\.m$/, "");
  const folder = dirname(file).replaceAll("'", "''");
  const trace =
    "fprintf('Stack trace available (most recent calls last):\\n'), for i = numel(e.stack):-1:1, " +
    "fprintf('Function ''%s'' at file ''%s'', line %d\\n', e.stack(i).name, e.stack(i).file, e.stack(i).line), end";
  const end = exit === 0 ? "" : `, exit(${exit})`;
  const code = `try, addpath('${folder}'), ${name}, catch e, fprintf('Failed: %s\\n', e.message), ${trace}${end}, end, quit`;
  return `${interpreter(path)} ${quote(code)}`;
}

function interpreter(path: string): string {
  if (findCommand("matlab", path) === undefined && findCommand("octave", path) !== undefined) {
    return "octave --no-gui --quiet --eval";
  }
  // If neither exists the shell reports it, and the script has failed.
  return "matlab -nodisplay -nosplash -nodesktop -singleCompThread -r";
}
