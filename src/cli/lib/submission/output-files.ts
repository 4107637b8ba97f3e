/**
 * Output of tasks in files at the worker: --output for all of it, --stdout and --stderr for a part. A shell around the command redirects it,
 * so it works at workers of every protocol. What goes to a file does not go to the broker.
 */
import type { Command } from "commander";
import { badInput } from "../../../base/errors.js";

export interface OutputFiles {
  readonly output?: string;
  readonly stdout?: string;
  readonly stderr?: string;
}

const OUTPUT_FILES = ["output", "stdout", "stderr"] as const;

export const addOutputFileOptions = (command: Command): Command =>
  command
    .option(
      "--output <path>",
      "write each task's output to this file at the worker; may have placeholders; makes the folder",
    )
    .option("--stdout <path>", "the same for the standard output alone")
    .option("--stderr <path>", "the same for the standard error alone");

/** The options that are given, with their paths. */
export const filesOf = (options: OutputFiles): readonly (readonly [name: string, path: string])[] =>
  OUTPUT_FILES.flatMap((name) => (options[name] === undefined ? [] : [[name, options[name]] as const]));

interface Redirection {
  /** The files, each once. */
  readonly files: readonly string[];
  /** Of the variables with the files. */
  readonly to: string;
}

function redirectionOf({ output, stdout, stderr }: OutputFiles): Redirection | undefined {
  if (output !== undefined && (stdout ?? stderr) !== undefined)
    throw badInput("--output is for all output: it excludes --stdout and --stderr");
  if ([output, stdout, stderr].includes("")) throw badInput("--output, --stdout and --stderr need a path: out/{#}.txt");
  const both = output ?? (stdout === stderr ? stdout : undefined);
  if (both !== undefined) return { files: [both], to: '> "$laboro_to1" 2>&1' };
  if (stdout === undefined) return stderr === undefined ? undefined : { files: [stderr], to: '2> "$laboro_to1"' };
  if (stderr === undefined) return { files: [stdout], to: '> "$laboro_to1"' };
  return { files: [stdout, stderr], to: '> "$laboro_to1" 2> "$laboro_to2"' };
}

/** Makes the folder. What an earlier attempt wrote stays beside the new file: `FILE~1` of the first. */
const PREPARE =
  `case $laboro_to in ?*/*) mkdir -p -- "\${laboro_to%/*}" || exit;; esac; ` +
  `if [ "\${LABORO_ATTEMPT:-1}" -gt 1 ] && [ -f "$laboro_to" ]; then ` +
  `mv -f -- "$laboro_to" "$laboro_to~$(expr "$LABORO_ATTEMPT" - 1)" || exit; fi`;

const prepareAll = (files: readonly string[]): string =>
  files.map((_, i) => `laboro_to=$laboro_to${i + 1}; ${PREPARE}`).join("; ");

export function lineIntoFiles(line: string, given: OutputFiles): string {
  const redirection = redirectionOf(given);
  if (redirection === undefined) return line;
  const { files, to } = redirection;
  const assigned = files.map((file, i) => `laboro_to${i + 1}="${file.replace(/["$`\\]/g, "\\$&")}"`).join("; ");
  return `${assigned}; ${prepareAll(files)}; { ${line}\n} ${to}`;
}

/** Redirects the output of a program by a shell. */
export function intoFiles(argv: readonly string[], given: OutputFiles): readonly string[] {
  const redirection = redirectionOf(given);
  if (redirection === undefined) return argv;
  const { files, to } = redirection;
  const assigned = files.map((_, i) => `laboro_to${i + 1}=$${i + 1}`).join("; ");
  return [
    "/bin/sh",
    "-c",
    `${assigned}; shift ${files.length}; ${prepareAll(files)}; exec "$@" ${to}`,
    "sh",
    ...files,
    ...argv,
  ];
}
