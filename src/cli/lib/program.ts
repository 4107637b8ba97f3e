/** The program that commander sees: every verb by name, and in full the ones that are needed. */
import { Command, type Option } from "commander";
import { packageVersion } from "../../base/version.js";
import { usageText } from "./failures.js";
import { VERBS } from "./verb-list.js";

/** With the named verbs loaded, or all of them; the others are there for the help and for suggestions. */
export async function makeProgram(loaded: readonly string[] | "all"): Promise<Command> {
  const program = new Command("laboro")
    .description("Hands out work: a broker keeps it, workers do it, clients ask for it.")
    .usage("[verb] [options]")
    .version(packageVersion(), "-V, --version", "print the version")
    .helpOption("-h, --help", "print help")
    .helpCommand("help [verb]", "print help about a verb")
    .exitOverride()
    // So that a verb may leave the options behind its own words to the command that it runs.
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

/** Not copyInheritedSettings: that would also take away what a verb has decided about its arguments. */
function inherit(command: Command, from: Command): Command {
  command
    .exitOverride()
    .configureOutput(from.configureOutput())
    .helpOption("-h, --help", "print help")
    .configureHelp({ ...command.configureHelp(), optionDescription });
  for (const child of command.commands) inherit(child, from);
  return command;
}

/** A default is not worth a word where the description has one itself, or where it is that nothing was given. */
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
