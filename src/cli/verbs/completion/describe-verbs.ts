/** The verbs as the completion scripts need them, read from commander's definitions. */
import type { Command } from "commander";

/** Candidates that come from the broker. */
export type CandidateKind = "jobs" | "workers" | "services";

export interface OptionCompletion {
  /** `--json`, and `-f` where there is a short one. */
  readonly flags: readonly string[];
  readonly description: string;
  /** Set where a value follows: the only ones possible, files, directories, or anything. */
  readonly value?: readonly string[] | "file" | "directory" | "any";
}

export interface VerbCompletion {
  readonly name: string;
  readonly summary: string;
  readonly options: readonly OptionCompletion[];
  /** Candidates for its arguments: empty if it takes none, undefined if they are not known. */
  readonly words?: CandidateKind | readonly string[];
}

export function describeVerbs(program: Command): readonly VerbCompletion[] {
  return program.commands.map((command) => {
    const words = argumentCandidates(command);
    return {
      name: command.name(),
      summary: plainText(command.summary() || command.description()),
      options: [...optionsOf(command), { flags: ["--help"], description: "print help" }],
      ...(words === undefined ? {} : { words }),
    };
  });
}

function optionsOf(command: Command): OptionCompletion[] {
  return command.options
    .filter((option) => !option.hidden)
    .map((option) => {
      const flags = [option.long, option.short].filter((flag) => flag !== undefined && flag !== null);
      const description = plainText(option.description);
      if (!option.required && !option.optional) return { flags, description };
      return { flags, description, value: option.argChoices ?? kindOf(option.flags) };
    });
}

function kindOf(flags: string): "file" | "directory" | "any" {
  const name = /<([^>]+)>/.exec(flags)?.[1] ?? "";
  if (/^dir/.test(name)) return "directory";
  // The value of <@file> begins with @.
  return /^(?!@).*(file|path)/.test(name) ? "file" : "any";
}

/** Derived from the name of the first argument, which is the same in every verb. */
function argumentCandidates(command: Command): CandidateKind | readonly string[] | undefined {
  const [first] = command.registeredArguments;
  if (first === undefined) return [];
  if (first.argChoices !== undefined) return first.argChoices;
  switch (first.name()) {
    case "selector":
    case "job.task":
      return "jobs";
    case "worker":
      return "workers";
    case "service":
      return "services";
    default:
      return undefined;
  }
}

/** Safe between any quotes of any shell. */
const plainText = (text: string): string => text.replace(/['"`$\\[\]]/g, "").replaceAll("\n", " ");
