/**
 * The text that is written to the shell of a slot. All foreign input is a single-quoted word, in which no shell interprets
 * anything; bytes are passed as latin1 text so that none is changed.
 *
 * A task is one subshell, which gives it its own directory and environment for one fork and one exec:
 *
 *     (trap - TERM;trap 'echo "MARK X$?">report' EXIT;cd DIR||…;export A='1';exec 'cmd' 'arg' </dev/null >out 2>err
 *     )2>/dev/null
 *     echo "MARK E$?"
 *
 * `exec` never runs a builtin, function or keyword. Only after a failed exec (or redirection) does the EXIT trap run,
 * so that `X127` distinguishes a missing command from one that exits 127. The subshell's own stderr is dropped: what reaches the
 * report pipe besides the marked lines is the shell's message about a child that a signal ended.
 *
 * Most tasks need no subshell: they are a command of the shell itself, for which dash need not copy itself (it calls vfork):
 *
 *     trap : TERM
 *     A='1' '/path/to/cmd' 'arg' </dev/null >out 2>err
 *     set -- $?
 *     trap '' TERM
 *     echo "MARK E$1"
 *
 * The assignments are gone with the command. The directory is the shell's own, which it changes first where the task needs another. What
 * the shell says about a signal gets into the task's standard error: slot-shell.ts takes it out again.
 */

import { LaboroError } from "../../base/errors.js";
import type { Bytes } from "../../model/recipe.js";
import { latin1, quote, SHELL_RESERVED } from "../../model/shell-words.js";
import type { CommandSpec } from "./command.js";
import { DEFAULT_PATH, findCommand } from "./lookup.js";

/** The named pipes of one shell. */
export interface ShellPipes {
  readonly report: string;
  readonly stdout: string;
  readonly stderr: string;
}

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;

/** The lines, as latin1 text, that run one command in a subshell and report how it ended. `path` is the PATH of the base environment. */
export function subshellScript(spec: CommandSpec, pipes: ShellPipes, mark: string, path?: string): string {
  const onFailure = quote(`echo "${mark} X$?">${quote(pipes.report)}`);
  const enter =
    spec.dir === undefined ? "" : `${changeDirectory(spec.dir)}||{ echo ${mark} D1;trap - EXIT;exit 1;};unset OLDPWD;`;
  return (
    `(trap - TERM;trap ${onFailure} EXIT;${enter}${exportAll(spec.env)}` +
    `exec ${commandWords(spec, path)} ${redirections(spec, pipes)}\n)2>/dev/null\necho "${mark} E$?"\n`
  );
}

/** The same without a subshell, for a command that `needsNoSubshell`. `enter` is the directory that the shell has to change to. */
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
      throw new LaboroError("LABORO_BAD_INPUT", `"${name}" cannot be the name of an environment variable`);
    }
    const word = quote(value, `value of ${name}`);
    if (!SHELL_RESERVED.test(name)) found.push([name, word]);
  }
  return found;
}

function commandWords(spec: CommandSpec, path: string | undefined): string {
  const [command, ...rest] = spec.argv;
  if (command === undefined) throw new LaboroError("LABORO_BAD_INPUT", "the command is empty");
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
