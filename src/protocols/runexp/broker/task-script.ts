/**
 * A task of laboro as a script for a runner, and how its result is read back. The script runs the recipe and reports
 * the outcome in a last line that both a runner and this broker understand:
 *
 *     [laboro 3f9c0d2e…] RES: done 0
 *     [laboro 3f9c0d2e…] RES: failed 3
 *     [laboro 3f9c0d2e…] RES: failed 143 timeout
 *
 * The number is the exit status as a shell reports it. A word after it is a reason that is not the task's own doing.
 * The mark in the brackets belongs to the task, and nobody can guess it. The script has it in two halves, so that a
 * task that prints its own script does not print the line.
 */
import { badInput } from "../../../base/errors.js";
import { redirection } from "../../../model/output-files.js";
import { expandLine, expandWords, placeholderForms, type TaskValues } from "../../../model/placeholders.js";
import {
  type Bytes,
  interpreterOf,
  outputPaths,
  type ProcessRecipe,
  type ScriptRecipe,
  shellOf,
  withEntry,
} from "../../../model/recipe.js";
import { latin1, quote, SHELL_RESERVED } from "../../../model/shell-command-list.js";
import { MAX_HEADER, readResHeader } from "../res-text.js";

export interface TaskParameters {
  readonly job: number;
  readonly index: number;
  readonly number: number;
  readonly attempt: number;
  readonly entry?: Bytes | undefined;
  readonly timeLimitMs?: number | undefined;
}

interface TaskScript {
  readonly kind: ".sh" | ".m";
  readonly content: Buffer;
  /** A script for MATLAB does not report its outcome. */
  readonly reportsOutcome: boolean;
}

/** Between SIGTERM and SIGKILL, as at laboro's own worker. */
const GRACE_S = 5;

/** Throws LABORO_BAD_INPUT for a recipe that no runner can run. */
export function makeTaskScript(recipe: ProcessRecipe, parameters: TaskParameters, mark: string): TaskScript {
  const task = withEntry(parameters, recipe);
  if (recipe.kind === "script" && recipe.type === ".m") return matlabScript(recipe);
  const text = [
    "exec </dev/null 2>/dev/null",
    endFunction(mark),
    changeDirectory(recipe.dir),
    ...variables(recipe, task),
    ...(recipe.kind === "script" ? unpack("script", recipe.content) : []),
    ...(recipe.stdin === undefined ? [] : unpack("stdin", recipe.stdin)),
    ...(recipe.kind === "command" && recipe.log !== undefined ? teeInto(recipe.log, task.number) : []),
    ...runCommand(commandOf(recipe, task), recipe, task.timeLimitMs),
    'if [ "$laboro_status" = 0 ]; then laboro_end "done 0" 0; fi',
    'laboro_end "failed $laboro_status$laboro_late" "$laboro_status"',
    "",
  ].join("\n");
  return { kind: ".sh", content: Buffer.from(text, "latin1"), reportsOutcome: true };
}

/** The beginning of the last line, with the newline before it. */
const reportPrefix = (mark: string): string => `\n[laboro ${mark}] RES: `;

function endFunction(mark: string): string {
  const half = mark.length >> 1;
  const [one, two] = [mark.slice(0, half), mark.slice(half)];
  return (
    'laboro_dir=\nlaboro_late=\nlaboro_end() { [ -z "$laboro_dir" ] || command -p rm -rf "$laboro_dir"; ' +
    `printf '\\n[laboro %s%s] RES: %s\\n' ${one} ${two} "$1"; exit "$2"; }`
  );
}

function changeDirectory(dir: Bytes | undefined): string {
  if (dir === undefined) return ":";
  const path = latin1(dir, "directory");
  // A leading "/" or "./" keeps CDPATH, "-" and options out of it.
  const safe = path.startsWith("/") ? path : `./${path}`;
  return `command cd -P ${quote(Buffer.from(safe, "latin1"))} >/dev/null || laboro_end "failed 1 directory" 1`;
}

function variables(recipe: ProcessRecipe, task: TaskParameters): string[] {
  const all = Object.entries(recipe.env ?? {}).filter(([name]) => !SHELL_RESERVED.test(name));
  all.push(["LABORO_JOB", String(task.job)], ["LABORO_TASK", String(task.number)]);
  all.push(["LABORO_ATTEMPT", String(task.attempt)]);
  if (task.entry !== undefined) all.push(["LABORO_ENTRY", task.entry]);
  return all.map(([name, value]) => `export ${name}=${quote(value, `value of ${name}`)}`);
}

/** A folder that is removed when the task ends. */
const makeFolder =
  'if [ -z "$laboro_dir" ]; then laboro_dir=$(command -p mktemp -d) || laboro_end "failed 1 file" 1; fi';

/** Writes a file into that folder. */
function unpack(name: string, bytes: Uint8Array): string[] {
  return [
    makeFolder,
    `command -p base64 -d >"$laboro_dir/${name}" <<'LABORO' || laboro_end "failed 1 file" 1`,
    Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("base64"),
    "LABORO",
  ];
}

/** A new file: `job_3.log`, or `job_3-1.log` if that exists. */
function teeInto(pattern: string, number: number): string[] {
  const path = pattern.replaceAll("{#}", String(number));
  const dot = path.lastIndexOf(".");
  const [stem, end] = dot > path.lastIndexOf("/") + 1 ? [path.slice(0, dot), path.slice(dot)] : [path, ""];
  return [
    `laboro_stem=${quote(stem)}; laboro_ext=${quote(end)}; laboro_log="$laboro_stem$laboro_ext"; laboro_n=0`,
    'while ! (set -C; : >"$laboro_log"); do',
    '  [ -e "$laboro_log" ] || laboro_end "failed 1 log" 1',
    '  laboro_n=$((laboro_n+1)); laboro_log="$laboro_stem-$laboro_n$laboro_ext"',
    "done",
    'exec 4> >(exec tee -a -- "$laboro_log"); laboro_tee=$!',
  ];
}

function commandOf(recipe: ProcessRecipe, task: TaskParameters): string {
  const { number, entry } = task;
  const values = { number, entry, several: recipe.several };
  refuseSlot(recipe);
  const before = redirection(recipe, { ...values, ...task }).map((word) => quote(word));
  return [...before, ...commandWords(recipe, values)].join(" ");
}

function commandWords(recipe: ProcessRecipe, values: TaskValues): readonly string[] {
  if (recipe.kind === "script") {
    const args = expandWords(recipe.args ?? [], values).map((word) => quote(word));
    return [...interpreterOf(recipe), '"$laboro_dir/script"', ...args];
  }
  const line = recipe.argv.at(-1);
  if (recipe.shell === true && line !== undefined) {
    const words = [...shellOf(recipe), recipe.placeholders === true ? expandLine(line, values) : line];
    return words.map((word) => quote(word));
  }
  const argv = recipe.placeholders === true ? expandWords(recipe.argv, values) : recipe.argv;
  return argv.map((word) => quote(word));
}

function refuseSlot(recipe: ProcessRecipe): void {
  const words = recipe.kind === "script" ? (recipe.args ?? []) : recipe.placeholders === true ? recipe.argv : [];
  const shell = recipe.kind === "command" && recipe.shell === true;
  if ([...placeholderForms(words, shell), ...placeholderForms(outputPaths(recipe), false)].includes("{%}"))
    throw badInput("{%} cannot be used at a runexp runner, which does not tell its threads apart");
}

/** `exec` runs no builtin and no function; its failure ends the subshell only. A runner keeps one stream: 2>&1. */
function runCommand(command: string, recipe: ProcessRecipe, timeLimitMs: number | undefined): string[] {
  const owned = Object.entries(recipe.env ?? {}).filter(([name]) => SHELL_RESERVED.test(name));
  const prefix = owned.map(([name, value]) => quote(Buffer.from(`${name}=${latin1(value, name)}`, "latin1")));
  const words = prefix.length === 0 ? command : `env ${prefix.join(" ")} ${command}`;
  const logged = recipe.kind === "command" && recipe.log !== undefined;
  const stdin = recipe.stdin === undefined ? "/dev/null" : '"$laboro_dir/stdin"';
  const executable = recipe.kind === "script" ? ['command -p chmod 700 "$laboro_dir/script"'] : [];
  const run = `(${logged ? "exec 4>&- ; " : ""}exec ${words}) <${stdin} ${logged ? ">&4 " : ""}2>&1`;
  const after = logged ? ["exec 4>&-", "wait $laboro_tee"] : [];
  if (timeLimitMs === undefined) return [...executable, run, "laboro_status=$?", ...after];
  const seconds = Math.max(0.001, timeLimitMs / 1000);
  return [
    ...executable,
    makeFolder,
    // With job control, each command has its own process group, which can be signalled.
    "set -m",
    `${run} &`,
    "laboro_task=$!",
    // The timeout is recorded in a file. A signal to this shell would end its wait, and bash would lose the exit
    // status.
    `( exec >/dev/null${logged ? " 4>&-" : ""}; sleep ${seconds} || sleep ${Math.ceil(seconds)}; : >"$laboro_dir/late"; ` +
      `kill -TERM -- -$laboro_task; sleep ${GRACE_S}; kill -KILL -- -$laboro_task ) &`,
    "laboro_clock=$!",
    "wait $laboro_task",
    "laboro_status=$?",
    "kill -KILL -- -$laboro_clock",
    "wait $laboro_clock",
    'if [ -e "$laboro_dir/late" ]; then laboro_late=" timeout"; fi',
    ...after,
  ];
}

/** The script unchanged; directory and variables are set in MATLAB's own language. */
function matlabScript(recipe: ScriptRecipe): TaskScript {
  if (
    (recipe.args?.length ?? 0) > 0 ||
    recipe.array !== undefined ||
    recipe.stdin !== undefined ||
    outputPaths(recipe).length > 0
  ) {
    throw badInput("a .m script at a runexp runner takes no arguments, no input and no files for its output");
  }
  const quoted = (bytes: Bytes): string => `'${latin1(bytes, "text").replaceAll("'", "''")}'`;
  const before = Object.entries(recipe.env ?? {}).map(([name, value]) => `setenv('${name}', ${quoted(value)}); `);
  if (recipe.dir !== undefined) before.push(`cd(${quoted(recipe.dir)}); `);
  const content = Buffer.concat([Buffer.from(before.join(""), "latin1"), recipe.content]);
  return { kind: ".m", content, reportsOutcome: false };
}

// Results

export interface TaskReport {
  /** As a shell reports it: from the script, or from the runner if the script did not report. */
  readonly exit?: number;
  /** `timeout`, `directory`, `file` or `log`. */
  readonly reason?: string;
  /** The script reached its end. */
  readonly completed: boolean;
}

/** The line after the mark: `failed 143 timeout`. */
const REPORT = /^(done|failed) (\d{1,3})(?: ([a-z]+))?\n/;
const MAX_REPORT = 64;

/** Reads a result of a runner: the `.res` header, the task's output, the last line. Passes on only the output. */
export class TaskReportReader {
  readonly #mark: string | undefined;
  readonly #onOutput: (bytes: Buffer) => void;
  #headerRead = false;
  #waitStatus: number | undefined;
  #report: TaskReport | undefined;
  /** Bytes that may be part of a header or of the last line. */
  #buffer = Buffer.alloc(0);

  /** Without a mark there is no last line. */
  constructor(mark: string | undefined, onOutput: (bytes: Buffer) => void) {
    this.#mark = mark === undefined ? undefined : reportPrefix(mark);
    this.#onOutput = onOutput;
  }

  push(bytes: Uint8Array): void {
    this.#buffer = Buffer.concat([this.#buffer, bytes]);
    if (!this.#headerRead && !this.#readHeader(false)) return;
    this.#passOutput(false);
  }

  end(): TaskReport {
    if (!this.#headerRead) this.#readHeader(true);
    this.#passOutput(true);
    if (this.#report !== undefined) return this.#report;
    return this.#waitStatus === undefined ? { completed: false } : { exit: this.#waitStatus >> 8, completed: false };
  }

  /** Bytes that are no header are output. */
  #readHeader(last: boolean): boolean {
    const header = readResHeader(this.#buffer.toString("latin1", 0, MAX_HEADER));
    if (header === undefined && !last && this.#buffer.length < MAX_HEADER) return false;
    this.#headerRead = true;
    this.#waitStatus = header?.waitStatus;
    this.#buffer = this.#buffer.subarray(header?.length ?? 0);
    return true;
  }

  #passOutput(last: boolean): void {
    const mark = this.#mark;
    if (mark === undefined || this.#report !== undefined) {
      this.#emit(this.#buffer.length);
      return;
    }
    const at = this.#buffer.indexOf(mark, 0, "latin1");
    if (at < 0) {
      this.#emit(Math.max(0, this.#buffer.length - (last ? 0 : mark.length - 1)));
      return;
    }
    this.#emit(at);
    const report = REPORT.exec(this.#buffer.toString("latin1", mark.length, mark.length + MAX_REPORT));
    if (report === null && !last && this.#buffer.length < mark.length + MAX_REPORT) return;
    const [all = "", , exit, reason] = report ?? [];
    if (report !== null) {
      this.#report = { exit: Number(exit), ...(reason === undefined ? {} : { reason }), completed: true };
      this.#buffer = this.#buffer.subarray(mark.length + all.length);
    }
    // Bytes after it come from a background process and are output, too.
    this.#emit(this.#buffer.length);
  }

  #emit(bytes: number): void {
    if (bytes === 0) return;
    this.#onOutput(this.#buffer.subarray(0, bytes));
    this.#buffer = this.#buffer.subarray(bytes);
  }
}
