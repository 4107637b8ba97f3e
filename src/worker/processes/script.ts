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
 * A task as in a pipe that needs no directory and no environment of its own is a command of the shell itself, for which dash need not copy
 * itself (it calls vfork):
 *
 *     trap : TERM
 *     '/path/to/cmd' 'arg' </dev/null >out 2>err
 *     echo "MARK E$?"
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

/** The lines, as latin1 text, that run one command and report how it ended. `path` is the PATH of the base environment. */
export function taskScript(spec: CommandSpec, pipes: ShellPipes, mark: string, path?: string): string {
  if (needsNoSubshell(spec))
    return `trap : TERM\n${commandWords(spec, path)} ${redirections(spec, pipes)}\necho "${mark} E$?"\n`;
  const onFailure = quote(`echo "${mark} X$?">${quote(pipes.report)}`);
  return (
    `(trap - TERM;trap ${onFailure} EXIT;${changeDirectory(spec.dir, mark)}${exportAll(spec.env)}` +
    `exec ${commandWords(spec, path)} ${redirections(spec, pipes)}\n)2>/dev/null\necho "${mark} E$?"\n`
  );
}

/** A name with a slash is no builtin, function or keyword. */
function needsNoSubshell({ asInPipe, argv, dir, env = {} }: CommandSpec): boolean {
  const [command] = argv;
  return (
    asInPipe === true && typeof command === "string" && command.startsWith("/") && dir === undefined && isEmpty(env)
  );
}

const isEmpty = (record: object): boolean => Object.keys(record).length === 0;

function redirections({ stdinFile }: CommandSpec, { stdout, stderr }: ShellPipes): string {
  const stdin = stdinFile === undefined ? "/dev/null" : quote(stdinFile, "name of the input file");
  return `<${stdin} >${quote(stdout)} 2>${quote(stderr)}`;
}

function changeDirectory(dir: Bytes | undefined, mark: string): string {
  if (dir === undefined) return "";
  const path = latin1(dir, "directory");
  // A leading "/" or "./" keeps CDPATH, "-" and options out of it; ".." is to mean what chdir(2) takes it for.
  const safe = path.startsWith("/") || path === "" ? path : `./${path}`;
  const flag = path.split("/").includes("..") ? "-P " : "";
  const word = quote(Buffer.from(safe === "" ? "/dev/null/" : safe, "latin1"));
  return `command cd ${flag}${word}||{ echo ${mark} D1;trap - EXIT;exit 1;};unset OLDPWD;`;
}

function exportAll(env: CommandSpec["env"]): string {
  let text = "";
  for (const [name, value] of Object.entries(env ?? {})) {
    if (!NAME.test(name)) {
      throw new LaboroError("LABORO_BAD_INPUT", `"${name}" cannot be the name of an environment variable`);
    }
    const word = quote(value, `value of ${name}`);
    if (!SHELL_RESERVED.test(name)) text += `export ${name}=${word};`;
  }
  return text;
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
