/** The command of a task, the files it needs (scripts and inputs are written once a job), and its log file. */
import { closeSync, existsSync, mkdirSync, openSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { errnoOf, LaboroError } from "../base/errors.js";
import { writeFully } from "../base/files/durable.js";
import type { JobId } from "../model/ids.js";
import { redirection } from "../model/output-files.js";
import { expandLine, expandWords, type TaskValues } from "../model/placeholders.js";
import {
  type Bytes,
  hasShebang,
  interpreterOf,
  type ProcessRecipe,
  type ScriptRecipe,
  shellOf,
  withEntry,
} from "../model/recipe.js";
import { quote } from "../model/shell-command-list.js";
import { type Strides, taskNumber } from "../model/task-numbers.js";
import type { AcquiredSlot } from "./capacity.js";
import type { CommandSpec } from "./processes/index.js";
import { DEFAULT_PATH, findCommand } from "./processes/start-error.js";
import type { PrefetchedTask } from "./task-tracker.js";

interface ProcessJob {
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
    const values = { number, entry: task.entry, slot: acquired.slot + 1, several: recipe.several };
    return {
      argv: [...redirection(recipe, { ...values, ...task }), ...this.#argv(recipe, task, values)],
      env: { ...this.#pushedEnv, ...this.#baseEnv, ...recipe.env, ...taskEnvironment(task, number, acquired) },
      ...(recipe.dir === undefined ? {} : { dir: this.#existing(recipe.dir) }),
      ...(recipe.stdin === undefined ? {} : { stdinFile: this.#file(task.job, `${task.job}.stdin`, recipe.stdin) }),
    };
  }

  #existing(dir: Bytes): Bytes {
    const isMissing = this.#missingDir !== undefined && !existsSync(typeof dir === "string" ? dir : Buffer.from(dir));
    return isMissing ? this.#missingDir : dir;
  }

  #argv(recipe: ProcessRecipe, task: PrefetchedTask, values: TaskValues): readonly Bytes[] {
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

// How a `.m` script is run: by MATLAB, or else by Octave. It is called by name with its folder on the path, so that it
// runs in the caller's directory.

/**
 * Shell text. The name of `file` must be one that MATLAB accepts for a script: letters, digits and `_` before the `.m`.
 * `exit`: the exit code after an error; 0 if absent.
 */
export function matlabLine(file: string, exit = 0): string {
  const name = basename(file).replace(/\.m$/, "");
  const folder = dirname(file).replaceAll("'", "''");
  const trace =
    "fprintf('Stack trace available (most recent calls last):\\n'), for i = numel(e.stack):-1:1, " +
    "fprintf('Function ''%s'' at file ''%s'', line %d\\n', e.stack(i).name, e.stack(i).file, e.stack(i).line), end";
  const end = exit === 0 ? "" : `, exit(${exit})`;
  const code = `try, addpath('${folder}'), ${name}, catch e, fprintf('Failed: %s\\n', e.message), ${trace}${end}, end, quit`;
  return `${interpreter(process.env.PATH ?? DEFAULT_PATH)} ${quote(code)}`;
}

function interpreter(path: string): string {
  if (findCommand("matlab", path) === undefined && findCommand("octave", path) !== undefined) {
    return "octave --no-gui --quiet --eval";
  }
  // If neither exists the shell reports it, and the script has failed.
  return "matlab -nodisplay -nosplash -nodesktop -singleCompThread -r";
}

/** The highest number that is tried. */
const MAX_EARLIER = 10_000;

/** The file at the worker that also gets a task's output, if its recipe names one. It is always a new file. */
export class LogFile {
  readonly #onFailure: (message: string) => void;
  #fd: number | undefined;
  #length = 0;

  private constructor(fd: number, onFailure: (message: string) => void) {
    this.#fd = fd;
    this.#onFailure = onFailure;
  }

  /**
   * `job_3.log`, or `job_3-1.log` if that exists, and so on. A relative path begins at the task's directory. Throws
   * LABORO_BAD_INPUT if the file cannot be created: a task whose log would be lost does not run. `onFailure` is called
   * if a later write fails.
   */
  static open(path: Bytes, dir: Bytes | undefined, onFailure: (message: string) => void): LogFile {
    const whole = within(dir, latin(path));
    for (let earlier = 0; earlier <= MAX_EARLIER; earlier++) {
      const name = Buffer.from(earlier === 0 ? whole : numbered(whole, earlier), "latin1");
      try {
        return new LogFile(openSync(name, "wx", 0o666), onFailure);
      } catch (cause) {
        if (errnoOf(cause) !== "EEXIST") throw cannotOpen(name, why(cause), cause);
      }
    }
    throw cannotOpen(Buffer.from(whole, "latin1"), `it is there, and so are ${MAX_EARLIER} others of its name`);
  }

  /** After a failure nothing more is written. The task continues, and the broker still gets its output. */
  write(bytes: Uint8Array): void {
    if (this.#fd === undefined) return;
    try {
      writeFully(this.#fd, bytes, this.#length);
      this.#length += bytes.length;
    } catch (cause) {
      this.close();
      this.#onFailure(`its log file is not complete: ${why(cause)}`);
    }
  }

  close(): void {
    if (this.#fd === undefined) return;
    closeSync(this.#fd);
    this.#fd = undefined;
  }
}

/** The number goes before the extension. */
function numbered(path: string, number: number): string {
  const dot = path.lastIndexOf(".");
  return dot > path.lastIndexOf("/") + 1 ? `${path.slice(0, dot)}-${number}${path.slice(dot)}` : `${path}-${number}`;
}

/** One character a byte, so that a name need not be UTF-8. */
const latin = (path: Bytes): string => Buffer.from(path).toString("latin1");

const within = (dir: Bytes | undefined, path: string): string =>
  dir === undefined || path.startsWith("/") ? path : `${latin(dir)}/${path}`;

const cannotOpen = (path: Buffer, reason: string, cause?: unknown): LaboroError =>
  new LaboroError("LABORO_BAD_INPUT", `cannot open the log file ${JSON.stringify(path.toString())}: ${reason}`, {
    cause,
  });

function why(cause: unknown): string {
  const errno = errnoOf(cause);
  if (errno === "ENOENT") return "no such directory";
  if (errno === "ENOTDIR") return "a part of the path is not a directory";
  if (errno === "EACCES") return "permission denied";
  if (errno === "ENOSPC") return "the disk is full";
  return errno ?? String(cause);
}
