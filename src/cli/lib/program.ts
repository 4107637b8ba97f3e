/** The commander program: every verb by name; only the needed ones are loaded. */
import { Command, CommanderError, type Option } from "commander";
import { packageVersion } from "../../base/package.js";
import { exitCodeOfUsage, isVerbose, reportFailure, usageText } from "./failures.js";
import { VERBS } from "./verb-list.js";

/** Options that every verb has may also be given before the verb. */
const GLOBAL_OPTIONS = new Set(["--broker", "--data", "--local", "--verbose"]);
const GLOBAL_FLAGS = new Set(["--local", "--verbose"]);

/** Finds the verb, loads it, and reports what it throws with a message and an exit code. */
export async function runProgram(given: readonly string[]): Promise<void> {
  const args = withVerb(given);
  try {
    const program = await makeProgram(args.slice(0, 2));
    await program.parseAsync(args, { from: "user" });
  } catch (cause) {
    process.exitCode = cause instanceof CommanderError ? exitCodeOfUsage(cause) : reportFailure(cause, isVerbose(args));
  }
}

/** Loads the named verbs, or all. If the first name is no verb, all are present, for the help and suggestions. */
export async function makeProgram(loaded: readonly string[] | "all"): Promise<Command> {
  const program = new Command("laboro")
    .description("Distribute work: clients submit jobs, a broker stores them, workers run their tasks.")
    .usage("[verb] [options]")
    .helpOption("-h, --help", "print help")
    .helpCommand("help [verb]", "print help about a verb")
    .exitOverride()
    // So that `run` can pass options through to the command that it runs.
    .enablePositionalOptions()
    .showHelpAfterError(false)
    .configureOutput({ outputError: (text, write) => write(usageText(withHint(text, loaded[0]))) })
    .addHelpText("after", "\nlaboro VERB --help describes a verb, with examples.");
  const verbs = VERBS.filter(({ name }) => name === loaded[0]);
  if (verbs.length === 0) program.version(packageVersion(), "-V, --version", "print the version");
  for (const verb of verbs.length === 0 ? VERBS : verbs) {
    const command = loaded === "all" || loaded.includes(verb.name) ? await verb.load() : new Command(verb.name);
    program.addCommand(inherit(command, program).summary(verb.summary).helpGroup(verb.group));
  }
  return program;
}

/** `laboro` alone, or with options only, is `laboro status`. */
function withVerb(given: readonly string[]): string[] {
  const own = new Set(["-h", "--help", "-V", "--version"]);
  const leading: string[] = [];
  let at = 0;
  for (let word = given[at]; word !== undefined; word = given[at]) {
    if (!GLOBAL_OPTIONS.has(word.replace(/=.*/s, ""))) break;
    const length = GLOBAL_FLAGS.has(word) || word.includes("=") ? 1 : 2;
    leading.push(...given.slice(at, at + length));
    at += length;
  }
  const [verb, ...rest] = given.slice(at);
  if (verb === undefined) return ["status", ...leading];
  if (own.has(verb)) return [verb, ...rest];
  return verb.startsWith("-") ? ["status", ...leading, verb, ...rest] : [verb, ...leading, ...rest];
}

/** Words of other programs, and the verbs for them. */
const VERB_FOR: Readonly<Record<string, string>> = {
  "job jobs list ls ps queue squeue info show": "status",
  "task sacct": "tasks",
  "log cat output tail": "logs",
  "parallel srun start": "run",
  "sbatch add": "submit",
  "scancel kill abort": "cancel",
  "rm delete remove forget prune": "clean",
  "retry restart requeue": "rerun",
  "server broker daemon": "serve",
  "node nodes hosts sinfo": "workers",
  "cron crontab scrontab": "schedule",
  "dashboard web ui": "open",
  version: "--version",
};

/** Completes commander's message about an unknown verb or a missing argument. */
function withHint(text: string, verb: string | undefined): string {
  const message = text.trimEnd();
  if (message.startsWith(`error: unknown command '${verb}'`)) {
    const meant = Object.entries(VERB_FOR).find(([words]) => words.split(" ").includes(verb ?? ""))?.[1];
    if (meant !== undefined) return `error: unknown command '${verb}'\n(Did you mean ${meant}?)`;
    return message.includes("\n") ? message : `${message}\n(laboro --help lists the verbs)`;
  }
  if (!message.startsWith("error: missing required argument")) return text;
  const meaning = message.endsWith("'selector'") ? ": a job, such as last or 7; laboro status lists them" : "";
  return `${message}${meaning}\n(laboro ${verb} --help has examples)`;
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

/** Adds choices and default. A description may end with a default of its own; an empty default is not shown. */
function optionDescription(option: Option): string {
  const { description, argChoices, defaultValue, defaultValueDescription } = option;
  const [, text = description, worded] = /^(.*) \((default: [^()]*)\)$/.exec(description) ?? [];
  const shown = (option.required || option.optional) && defaultValue !== undefined && !isEmpty(defaultValue);
  const parts = [
    argChoices === undefined ? "" : `one of ${argChoices.join(", ")}`,
    worded ?? (shown ? `default: ${defaultValueDescription ?? String(defaultValue)}` : ""),
  ].filter((part) => part !== "");
  return parts.length === 0 ? text : `${text} (${parts.join("; ")})`;
}

const isEmpty = (value: unknown): boolean =>
  typeof value === "object" && value !== null && Object.keys(value).length === 0;
