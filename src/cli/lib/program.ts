/** The commander program: every verb by name; only the needed ones are loaded. */
import { Command, type Option } from "commander";
import { packageVersion } from "../../base/version.js";
import { usageText } from "./failures.js";
import { VERBS } from "./verb-list.js";

/** Loads the named verbs, or all. The others are present for the help and for suggestions. */
export async function makeProgram(loaded: readonly string[] | "all"): Promise<Command> {
  const program = new Command("laboro")
    .description("Hands out work: a broker keeps it, workers do it, clients ask for it.")
    .usage("[verb] [options]")
    .version(packageVersion(), "-V, --version", "print the version")
    .helpOption("-h, --help", "print help")
    .helpCommand("help [verb]", "print help about a verb")
    .exitOverride()
    // So that `run` can pass options through to the command that it runs.
    .enablePositionalOptions()
    .showHelpAfterError(false)
    .configureOutput({ outputError: (text, write) => write(usageText(text)) })
    .addHelpText("after", "\nlaboro VERB --help says more about a verb and has examples.");
  for (const verb of VERBS) {
    const command = loaded === "all" || loaded.includes(verb.name) ? await verb.load() : new Command(verb.name);
    program.addCommand(inherit(command, program).summary(verb.summary).helpGroup(verb.group));
  }
  return program;
}

/** Not copyInheritedSettings: that would also override the verb's own settings for its arguments. */
function inherit(command: Command, from: Command): Command {
  command
    .exitOverride()
    .configureOutput(from.configureOutput())
    .helpOption("-h, --help", "print help")
    .configureHelp({ ...command.configureHelp(), optionDescription });
  for (const child of command.commands) inherit(child, from);
  return command;
}

/** Adds choices and default, unless the description states the default or the default is empty. */
function optionDescription(option: Option): string {
  const { description, argChoices, defaultValue, defaultValueDescription } = option;
  const worded = description.includes("(default: ");
  const takesValue = option.required || option.optional;
  const parts = [
    argChoices === undefined ? "" : `one of ${argChoices.join(", ")}`,
    worded || !takesValue || defaultValue === undefined || isEmpty(defaultValue)
      ? ""
      : `default: ${defaultValueDescription ?? String(defaultValue)}`,
  ].filter((part) => part !== "");
  return parts.length === 0 ? description : `${description} (${parts.join("; ")})`;
}

const isEmpty = (value: unknown): boolean =>
  typeof value === "object" && value !== null && Object.keys(value).length === 0;
