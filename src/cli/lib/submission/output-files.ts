/** Files of `run` and `submit`: for the output of tasks, sent with a job, and returned by its tasks. */
import { type Command, Option } from "commander";
import { badInput } from "../../../base/errors.js";
import { describeFiles } from "../../../client/task-files.js";
import { expandPaths, type TaskValues } from "../../../model/placeholders.js";
import type { OutputFiles } from "../../../model/recipe.js";
import { taskNumber } from "../../../model/task-numbers.js";
import { collect, textLike } from "../option-parsers.js";
import type { ParsedSubmission, SubmissionOptions } from "./options.js";

const OUTPUT_FILES = ["output", "stdout", "stderr"] as const;

export const addOutputFileOptions = (command: Command): Command =>
  command
    .option(
      "--output <path>",
      "write each task's output to this file at the worker; may have placeholders, {job} and {attempt}; makes the folder",
      textLike("out/{#}.txt"),
    )
    .option("--stdout <path>", "the same for the standard output alone", textLike("out/{#}.txt"))
    .option("--stderr <path>", "the same for the standard error alone", textLike("err/{#}.txt"));

/** The options that are given, with their paths. */
export const filesOf = (options: OutputFiles): readonly (readonly [name: string, path: string])[] =>
  OUTPUT_FILES.flatMap((name) => (options[name] === undefined ? [] : [[name, options[name]] as const]));

export interface FileOptions extends Pick<SubmissionOptions, "dir"> {
  readonly send: readonly string[];
  readonly return: readonly string[];
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
