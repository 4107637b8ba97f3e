/**
 * Output of tasks in files at the worker: --output for all of it, --stdout and --stderr for a part. A shell around the
 * command redirects it, so it works at workers of every protocol. Output in files is not sent to the broker.
 *
 * Files of `run` and `submit`: files sent with a job, and files that its tasks return.
 */
import { type Command, Option } from "commander";
import { badInput } from "../../../base/errors.js";
import { describeFiles } from "../../../client/task-files.js";
import { expandPaths, type TaskValues } from "../../../model/placeholders.js";
import { taskNumber } from "../../../model/task-numbers.js";
import { collect, textLike } from "../option-parsers.js";
import type { ParsedSubmission, SubmissionOptions } from "./options.js";

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
      textLike("out/{#}.txt"),
    )
    .option("--stdout <path>", "the same for the standard output alone", textLike("out/{#}.txt"))
    .option("--stderr <path>", "the same for the standard error alone", textLike("err/{#}.txt"));

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
  const both = output ?? (stdout === stderr ? stdout : undefined);
  if (both !== undefined) return { files: [both], to: '> "$laboro_to1" 2>&1' };
  if (stdout === undefined) return stderr === undefined ? undefined : { files: [stderr], to: '2> "$laboro_to1"' };
  if (stderr === undefined) return { files: [stdout], to: '> "$laboro_to1"' };
  return { files: [stdout, stderr], to: '> "$laboro_to1" 2> "$laboro_to2"' };
}

/** Creates the folder. An earlier attempt's file is kept beside the new one: `FILE~1` for the first. */
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

export interface FileOptions extends Pick<SubmissionOptions, "dir"> {
  readonly send: readonly string[];
  readonly return: readonly string[];
  readonly cleanup?: boolean;
  readonly transfer?: boolean;
  readonly transferfile: readonly string[];
  readonly basefile: readonly string[];
  readonly trc: readonly string[];
}

export function addFileOptions<T extends Command>(command: T): T {
  command
    .option(
      "--send <file>",
      "send this file or folder with the job; tasks then run in a folder of their own that has it; may have " +
        "placeholders, may be repeated",
      collect,
      [],
    )
    .option(
      "--return <pattern>",
      "bring these files or folders back from each task: {.}.out, 'plots/*.png'; may be repeated",
      collect,
      [],
    )
    .option("--cleanup", "accepted for GNU parallel: the folder of a task is always removed");
  const alike: readonly [string, string][] = [
    ["--tf, --transferfile <file>", "--send FILE"],
    ["--bf, --basefile <file>", "--send FILE"],
    ["--trc <pattern>", "--send {} --return PATTERN --cleanup"],
  ];
  for (const [flags, meaning] of alike)
    command.addOption(new Option(flags, `as ${meaning}`).argParser(collect).default([]).hideHelp());
  return command.addOption(new Option("--transfer", "as --send {}").hideHelp());
}

/** The submission with the files that these options name, which are read here. */
export function withFiles(submission: ParsedSubmission, options: FileOptions): ParsedSubmission {
  const entry = options.transfer === true || options.trc.length > 0 ? ["{}"] : [];
  const send = [...entry, ...options.send, ...options.transferfile, ...options.basefile];
  const returns = [...options.return, ...options.trc];
  if (send.length === 0 && returns.length === 0) return submission;
  const { recipe } = submission;
  if (recipe.kind === "call") throw badInput("--send and --return cannot be used with --service");
  if (options.dir !== undefined)
    throw badInput("--dir cannot be used with --send and --return: such a task runs in a folder of its own");
  const [first] = tasksOf(submission);
  // A mistake is reported before anything runs.
  if (first !== undefined) expandPaths(returns, first, "--return");
  const sent = describeFiles(send, tasksOf(submission), ".");
  const { dir: _, ...rest } = recipe;
  const files = {
    ...(send.length === 0 ? {} : { sent, use: send }),
    ...(returns.length === 0 ? {} : { returns }),
  };
  return { ...submission, recipe: { ...rest, files } };
}

function* tasksOf({ recipe, numbers, entries, count = 1 }: ParsedSubmission): Generator<TaskValues> {
  const total = entries?.length ?? count;
  for (let index = 0; index < total; index++) {
    const number = taskNumber({ recipe, ...(numbers && { numbers }) }, index);
    yield { number, entry: entries?.[index] ?? ("array" in recipe && recipe.array ? String(number) : undefined) };
  }
}
