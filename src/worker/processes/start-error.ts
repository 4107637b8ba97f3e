import { accessSync, closeSync, constants, existsSync, openSync, readSync, statSync } from "node:fs";
import { resolve } from "node:path";
import { errnoOf } from "../../base/errors.js";
import type { Bytes } from "../../model/recipe.js";
import { latin1 } from "../../model/shell-words.js";
import type { CommandSpec } from "./command.js";
import { DEFAULT_PATH, findCommand } from "./lookup.js";

/** Why a command was not started, in one line. The shell only reports that it was not; the file system shows the reason. */
export function startError(spec: CommandSpec, failed: "directory" | "start", code: number): string {
  if (failed === "directory")
    return `cannot enter the directory ${quoted(spec.dir ?? "")}: ${whyNotDirectory(spec.dir ?? "")}`;
  if (spec.stdinFile !== undefined) {
    const why = whyNotReadable(spec.stdinFile);
    if (why !== undefined) return `cannot read the input file ${quoted(spec.stdinFile)}: ${why}`;
  }
  const command = quoted(spec.argv[0] ?? "");
  if (code === 127) return `cannot start ${command}: command not found`;
  if (isLong(spec)) return `cannot start ${command}: the argument list is too long`;
  return `cannot start ${command}: it is not executable`;
}

/**
 * Where the shell does not distinguish a failed exec from a command's own exit code 126 or 127: whether this command cannot
 * have been started, according to the file system.
 */
export function neverStarted(spec: CommandSpec, code: number, basePath: string | undefined): boolean {
  if (code !== 126 && code !== 127) return false;
  const [command = ""] = spec.argv;
  const path = latin1(spec.env?.PATH ?? basePath ?? DEFAULT_PATH, "PATH");
  const dir = spec.dir === undefined ? undefined : latin1(spec.dir, "directory");
  const file = findCommand(latin1(command, "command"), path, dir);
  return file === undefined || (code === 126 && isLong(spec)) || lacksInterpreter(resolve(dir ?? ".", file));
}

/** Whether the file is a script whose first line names a program that is not there. */
function lacksInterpreter(file: string): boolean {
  let fd: number | undefined;
  try {
    fd = openSync(Buffer.from(file, "latin1"), "r");
    const head = Buffer.alloc(256);
    const [, interpreter] = /^#!\s*([^\s]+)/.exec(head.toString("latin1", 0, readSync(fd, head))) ?? [];
    return interpreter !== undefined && !existsSync(Buffer.from(interpreter, "latin1"));
  } catch {
    return false;
  } finally {
    if (fd !== undefined) closeSync(fd);
  }
}

function whyNotDirectory(dir: Bytes): string {
  try {
    if (!statSync(asPath(dir)).isDirectory()) return "it is not a directory";
    return "permission denied";
  } catch (cause) {
    return why(cause);
  }
}

function whyNotReadable(file: string): string | undefined {
  try {
    accessSync(file, constants.R_OK);
    return undefined;
  } catch (cause) {
    return why(cause);
  }
}

function why(cause: unknown): string {
  const errno = errnoOf(cause);
  if (errno === "ENOENT") return "no such file or directory";
  if (errno === "EACCES") return "permission denied";
  if (errno === "ENOTDIR") return "a part of the path is not a directory";
  return errno ?? String(cause);
}

/** Half of the smallest limit that the kernel has, the one for a single argument; below it, length is not the reason. */
const isLong = ({ argv, env }: CommandSpec): boolean =>
  [...argv, ...Object.values(env ?? {})].reduce((sum, word) => sum + word.length, 0) > 65_536;

const asPath = (path: Bytes): string | Buffer => (typeof path === "string" ? path : Buffer.from(path));

/** Quoted, on one line, and not longer than a line. */
function quoted(bytes: Bytes): string {
  const text = typeof bytes === "string" ? bytes : Buffer.from(bytes).toString();
  return JSON.stringify(text.length > 200 ? `${text.slice(0, 200)}…` : text);
}
