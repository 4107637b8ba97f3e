/**
 * The text that is written to the shell of a slot. All foreign input is single-quoted, so no shell interprets it; bytes
 * are passed as latin1 text so that none is changed. A task is one subshell, which gives it its own directory and
 * environment for one fork and one exec:
 *     (trap - TERM;trap 'echo "MARK X$?">report' EXIT;cd DIR||…;export A='1';exec 'cmd' 'arg' </dev/null >out 2>err
 *     )2>/dev/null
 *     echo "MARK E$?"
 * `exec` never runs a builtin, function or keyword. Only after a failed exec (or redirection) does the EXIT trap run,
 * so that `X127` distinguishes a missing command from one that exits 127. The subshell's own stderr is dropped: besides
 * the marked lines, the report pipe gets only the shell's message about a child that a signal ended. Most tasks need no
 * subshell: they are a command of the shell itself, for which dash need not copy itself (it calls vfork):
 *     trap : TERM
 *     A='1' '/path/to/cmd' 'arg' </dev/null >out 2>err
 *     set -- $?
 *     trap '' TERM
 *     echo "MARK E$1"
 * The assignments are gone with the command. The shell changes its own directory first if the task needs another one.
 * The shell's message about a signal becomes part of the task's standard error: slot-shell.ts removes it.
 *
 * Reads the reports of a slot's shell about its task. Marked lines end with `\n` and contain one letter and a number:
 *     MARK D1     the directory could not be entered, says the subshell; d1 says the shell itself
 *     MARK X127   the command could not be started, with the shell's code for the reason
 *     MARK E0     the task is over, with the shell's status; ends the report
 * Text between them is the shell's own message ("Killed"), printed when a signal ended the task: it distinguishes
 * status 137 by signal from exit 137. No shell prints it for SIGINT and SIGPIPE, so these count as exit 130 and 141.
 */
import { constants } from "node:os";
import { badInput } from "../../base/errors.js";
import type { OutputStream } from "../../model/outcome.js";
import type { Bytes } from "../../model/recipe.js";
import { latin1, quote, SHELL_RESERVED } from "../../model/shell-command-list.js";
import { DEFAULT_PATH, findCommand } from "./start-error.js";

/** A program to run, found as exec(2) via PATH would find it. No shell interprets any of it. */
export interface CommandSpec {
  readonly argv: readonly Bytes[];
  /** The working directory; the agent's own if absent. */
  readonly dir?: Bytes;
  /** Added to the base environment. Names are shell names, values hold no NUL. */
  readonly env?: Readonly<Record<string, Bytes>>;
  /** A file as standard input; /dev/null where absent. */
  readonly stdinFile?: string;
  /**
   * As a shell runs it in a pipe: it has ended when no process can write to its standard output any more, not when its
   * own process has. Leftover processes continue while the slot has a shell. A signal that ends it may be reported as
   * exit code 128 plus its number, with the shell's message on its standard error.
   */
  readonly asInPipe?: boolean;
}

/** How it ended: by exit (`code`), by signal (`signal`), or because laboro could not run it to its end (`error`). */
export interface ProcessEnd {
  readonly code?: number;
  /** "SIGKILL". With it `error` may say that the slot's shell died too. */
  readonly signal?: string;
  /** One line for a person: why it did not start, or what happened to the slot. */
  readonly error?: string;
  /** Milliseconds since 1970. */
  readonly started: number;
  readonly ended: number;
  /** See model/outcome.ts. */
  readonly cpuMs?: number;
  readonly peakMemory?: number;
}

/** Both calls come from the event loop, never from within `run`, and none follows `ended`. */
export interface ProcessSink {
  /** The receiver may keep the bytes. Nobody else writes to them. */
  output(stream: OutputStream, bytes: Buffer): void;
  /** All output was delivered before; the process is gone. The slot may be used again from within this call. */
  ended(end: ProcessEnd): void;
}

export interface RunningCommand {
  /** SIGTERM to the process group now, SIGKILL when `graceMs` have passed and it is not gone. */
  terminate(graceMs: number): void;
  /** SIGKILL to the process group. */
  kill(): void;
  /** Stops reading its output, so that it blocks when its pipes are full. At its end their content is delivered. */
  pause(): void;
  resume(): void;
}

export interface ShellPipes {
  readonly report: string;
  readonly stdout: string;
  readonly stderr: string;
}

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;

/** The lines, as latin1, that run a command in a subshell and report its end. `path`: PATH of the base environment. */
export function subshellScript(spec: CommandSpec, pipes: ShellPipes, mark: string, path?: string): string {
  const onFailure = quote(`echo "${mark} X$?">${quote(pipes.report)}`);
  const enter =
    spec.dir === undefined ? "" : `${changeDirectory(spec.dir)}||{ echo ${mark} D1;trap - EXIT;exit 1;};unset OLDPWD;`;
  return (
    `(trap - TERM;trap ${onFailure} EXIT;${enter}${exportAll(spec.env)}` +
    `exec ${commandWords(spec, path)} ${redirections(spec, pipes)}\n)2>/dev/null\necho "${mark} E$?"\n`
  );
}

/** The same without a subshell, if `needsNoSubshell`. `enter`: the directory that the shell must change to. */
export function directScript(spec: CommandSpec, pipes: ShellPipes, mark: string, enter: Bytes | undefined): string {
  const assignments = namedValues(spec.env).map(([name, word]) => `${name}=${word} `);
  const run =
    `trap : TERM\n${assignments.join("")}${commandWords(spec, undefined)} ${redirections(spec, pipes)}\n` +
    `set -- $?\ntrap '' TERM\necho "${mark} E$1"\n`;
  if (enter === undefined) return run;
  return `if ${changeDirectory(enter)};then unset OLDPWD\n${run}else echo "${mark} d1\n${mark} E1";fi\n`;
}

/** Below the smallest limit that the kernel has: a start cannot fail because of the length. */
const SHORT = 65_536;

/** A name with a slash is no builtin, function or keyword. */
export function needsNoSubshell({ argv, env = {}, stdinFile, asInPipe }: CommandSpec): boolean {
  const [command = ""] = argv;
  if (!latin1(command, "command").includes("/")) return false;
  if (stdinFile !== undefined && asInPipe !== true) return false;
  let size = 0;
  for (const word of argv) size += word.length;
  for (const [name, value] of Object.entries(env)) {
    if (SHELL_RESERVED.test(name)) return false;
    size += value.length;
  }
  return size < SHORT;
}

function redirections({ stdinFile }: CommandSpec, { stdout, stderr }: ShellPipes): string {
  const stdin = stdinFile === undefined ? "/dev/null" : quote(stdinFile, "name of the input file");
  return `<${stdin} >${quote(stdout)} 2>${quote(stderr)}`;
}

function changeDirectory(dir: Bytes): string {
  const path = latin1(dir, "directory");
  // A leading "/" or "./" keeps CDPATH, "-" and options out of it; ".." is to mean what chdir(2) takes it for.
  const safe = path.startsWith("/") || path === "" ? path : `./${path}`;
  const flag = path.split("/").includes("..") ? "-P " : "";
  return `command cd ${flag}${quote(Buffer.from(safe === "" ? "/dev/null/" : safe, "latin1"))}`;
}

const exportAll = (env: CommandSpec["env"]): string =>
  namedValues(env)
    .map(([name, word]) => `export ${name}=${word};`)
    .join("");

/** The variables that a shell can set, with their values as words. */
function namedValues(env: CommandSpec["env"]): [string, string][] {
  const found: [string, string][] = [];
  for (const [name, value] of Object.entries(env ?? {})) {
    if (!NAME.test(name)) {
      throw badInput(`"${name}" cannot be the name of an environment variable`);
    }
    const word = quote(value, `value of ${name}`);
    if (!SHELL_RESERVED.test(name)) found.push([name, word]);
  }
  return found;
}

function commandWords(spec: CommandSpec, path: string | undefined): string {
  const [command, ...rest] = spec.argv;
  if (command === undefined) throw badInput("the command is empty");
  const viaEnv = Object.entries(spec.env ?? {}).filter(([name]) => SHELL_RESERVED.test(name));
  const name = latin1(command, "command");
  // exec or env would take the name for an option or assignment: pass the path of the file instead.
  const ambiguous = name.startsWith("-") || (viaEnv.length > 0 && name.includes("="));
  const first = ambiguous
    ? (findCommand(name, latin1(spec.env?.PATH ?? path ?? DEFAULT_PATH, "PATH")) ?? `./${name}`)
    : name;
  const prefix = viaEnv.length === 0 ? "" : `env ${viaEnv.map(([n, value]) => `${n}=${quote(value)}`).join(" ")} `;
  let text = prefix + quote(Buffer.from(first, "latin1"), "command");
  for (const argument of rest) text += ` ${quote(argument)}`;
  return text;
}

export interface TaskReport {
  /** The exit code; with `failed` the shell's code for the reason. Absent with `signal`. */
  readonly code?: number;
  readonly signal?: string;
  readonly failed?: "directory" | "start";
}

const MAX_KEPT = 65_536;

export class ReportReader {
  private readonly line: RegExp;
  private text = "";
  private sawMessage = false;
  private failure: Pick<TaskReport, "failed" | "code"> | undefined;
  /** Bytes that the shell itself, not a subshell, has written to the pipe. */
  ownBytes = 0;

  constructor(mark: string) {
    this.line = new RegExp(`${mark} ([DdXE])([0-9]+)\\n`);
  }

  /** Takes a piece of the pipe; returns the report when the piece completes it. */
  push(bytes: Buffer): TaskReport | undefined {
    this.text += bytes.toString("latin1");
    this.ownBytes += bytes.length;
    for (;;) {
      const match = this.line.exec(this.text);
      if (match === null) break;
      if (match.index > 0) this.sawMessage = true;
      this.text = this.text.slice(match.index + match[0].length);
      if (match[1] === "E") return this.finish(Number(match[2]));
      if (match[1] !== "d") this.ownBytes -= match[0].length;
      this.failure ??= { failed: match[1] === "X" ? "start" : "directory", code: Number(match[2]) };
    }
    // A shell may quote the whole command in its message; only the tail can contain the beginning of a mark.
    if (this.text.length > MAX_KEPT) {
      this.sawMessage = true;
      this.text = this.text.slice(-256);
    }
    return undefined;
  }

  private finish(status: number): TaskReport {
    const { sawMessage, failure } = this;
    this.sawMessage = false;
    this.failure = undefined;
    if (status > 128 && sawMessage) return { signal: signalName(status - 128) };
    return failure ?? { code: status };
  }
}

export function signalName(number: number): string {
  for (const [name, value] of Object.entries(constants.signals)) {
    if (value === number) return name;
  }
  return `SIG${number}`;
}
