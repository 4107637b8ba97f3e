/** The directory of a slot's shell, in which it runs commands itself. */
import { accessSync, closeSync, constants, existsSync, openSync, readSync, type Stats, statSync } from "node:fs";
import { resolve } from "node:path";
import { errnoOf } from "../../base/errors.js";
import { formatSize } from "../../base/format.js";
import type { Bytes } from "../../model/recipe.js";
import { latin1 } from "../../model/shell-command-list.js";
import type { CommandSpec } from "./script.js";

/** Text in latin1, as all that goes to a shell: one character is one byte. */
type Latin1 = string;

/** Used without PATH. */
export const DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin";

/** The file that execvp(3) would find for a command name; undefined if there is none to execute. */
export function findCommand(name: Latin1, path: Latin1, dir: Latin1 = "."): Latin1 | undefined {
  if (name === "") return undefined;
  const candidates = name.includes("/")
    ? [name]
    : path.split(":").map((folder) => `${folder === "" ? "." : folder}/${name}`);
  return candidates.find((file) => isExecutable(Buffer.from(resolve(dir, file), "latin1")));
}

function isExecutable(file: Buffer): boolean {
  try {
    accessSync(file, constants.X_OK);
    return statSync(file).isFile();
  } catch {
    return false;
  }
}

/** Why a command was not started, in one line. The shell reports only the fact; the file system shows the reason. */
export function startError(spec: CommandSpec, failed: "directory" | "start", code: number): string {
  if (failed === "directory")
    return `cannot enter the directory ${quoted(spec.dir ?? "")}: ${whyNotDirectory(spec.dir ?? "")}`;
  if (spec.stdinFile !== undefined) {
    const why = whyNotReadable(spec.stdinFile);
    if (why !== undefined) return `cannot read the input file ${quoted(spec.stdinFile)}: ${why}`;
  }
  const command = quoted(spec.argv[0] ?? "");
  if (code === 127) return `cannot start ${command}: command not found${hintOfSameName(spec)}`;
  if (isLong(spec)) {
    const longest = wordsOf(spec).reduce((most, { length }) => Math.max(most, length), 0);
    const remedy =
      longest < LONGEST_WORD ? "" : `: one word has ${formatSize(longest)}; give the name of a file instead`;
    return `cannot start ${command}: the argument list is too long${remedy}`;
  }
  return `cannot start ${command}: it is not executable`;
}

/**
 * Whether this command cannot have been started, according to the file system. For shells that do not distinguish a
 * failed exec from a command's own exit code 126 or 127.
 */
export function neverStarted(spec: CommandSpec, code: number, basePath: string | undefined): boolean {
  if (code !== 126 && code !== 127) return false;
  const [command = ""] = spec.argv;
  const path = latin1(spec.env?.PATH ?? basePath ?? DEFAULT_PATH, "PATH");
  const dir = spec.dir === undefined ? undefined : latin1(spec.dir, "directory");
  const file = findCommand(latin1(command, "command"), path, dir);
  return file === undefined || (code === 126 && isLong(spec)) || lacksInterpreter(resolve(dir ?? ".", file));
}

/** Whether the file is a script whose first line names a missing program. */
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

/** For a file of the command's name in its directory, where PATH does not lead: how to run it. */
function hintOfSameName({ argv: [command = ""], dir = "." }: CommandSpec): string {
  const name = latin1(command, "command");
  if (name === "" || name.includes("/")) return "";
  const file = Buffer.from(resolve(latin1(dir, "directory"), name), "latin1");
  if (statOf(file)?.isFile() !== true) return "";
  const remedy = isExecutable(file) ? `run it as ${quoted(`./${asText(command)}`)}` : "run it with --script";
  return `; its directory has a file of this name: ${remedy}`;
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

/** What Linux takes for one argument or variable, less the name of a variable. */
const LONGEST_WORD = 131_000;

const wordsOf = ({ argv, env }: CommandSpec): readonly Bytes[] => [...argv, ...Object.values(env ?? {})];

/** Half of the kernel's smallest limit, that of a single argument. Below it, length is not the reason. */
const isLong = (spec: CommandSpec): boolean =>
  wordsOf(spec).reduce((sum, word) => sum + word.length, 0) > LONGEST_WORD / 2;

const asPath = (path: Bytes): string | Buffer => (typeof path === "string" ? path : Buffer.from(path));

const asText = (bytes: Bytes): string => (typeof bytes === "string" ? bytes : Buffer.from(bytes).toString());

/** Quoted, on one line, and not longer than a line. */
function quoted(bytes: Bytes): string {
  const text = asText(bytes);
  return JSON.stringify(text.length > 200 ? `${text.slice(0, 200)}…` : text);
}

/** A directory, by name and identity: it may have been created again. */
export interface Directory {
  readonly path: string;
  readonly dev: number;
  readonly ino: number;
}

export const UNKNOWN_DIRECTORY: Directory = { path: "", dev: -1, ino: -1 };

/** The directory in which the shell itself runs a command; `enter` if it must change to it first. */
export interface Place {
  readonly directory: Directory | undefined;
  readonly enter: Bytes | undefined;
}

export function placeAt(dir: Bytes, current: Directory | undefined): Place | undefined {
  const path = latin1(dir, "directory");
  const found = statOf(Buffer.from(path, "latin1"));
  if (found?.isDirectory() !== true) return undefined;
  const same = current?.path === path && current.dev === found.dev && current.ino === found.ino;
  return { directory: { path, dev: found.dev, ino: found.ino }, enter: same ? undefined : dir };
}

function statOf(path: Buffer): Stats | undefined {
  try {
    return statSync(path, { throwIfNoEntry: false });
  } catch {
    return undefined;
  }
}

/** The root if the agent's own directory was removed. */
export function agentDirectory(): string {
  try {
    return process.cwd();
  } catch {
    return "/";
  }
}
