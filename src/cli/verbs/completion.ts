/** `laboro completion`: a script for the shell, made from the definitions of the verbs. */
import { Argument, Command, Option } from "commander";
import type { Client } from "../../client/client.js";
import { addBrokerOptions, type BrokerChoice, connectToBroker } from "../lib/broker-connection.js";
import { printLines } from "../lib/print.js";
import { makeProgram } from "../lib/program.js";

/** Candidates that come from the broker. */
type CandidateKind = "jobs" | "workers" | "services";

interface OptionCompletion {
  /** `--json`, and the short form such as `-f`, if there is one. */
  readonly flags: readonly string[];
  readonly description: string;
  /** Set if the option takes a value: the allowed values, a file, a directory, or anything. */
  readonly value?: readonly string[] | "file" | "directory" | "any";
}

interface VerbCompletion {
  readonly name: string;
  readonly summary: string;
  readonly options: readonly OptionCompletion[];
  /** Candidates for its arguments: empty if it takes none, undefined if they are not known. */
  readonly words?: CandidateKind | readonly string[];
}

/** Reads what the scripts need from commander's definitions. */
function describeVerbs(program: Command): readonly VerbCompletion[] {
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

/** The options of a verb with commands of its own, such as scale0, are those of its commands. */
function optionsOf(command: Command): OptionCompletion[] {
  const all = [command, ...command.commands].flatMap(({ options }) => options);
  return [...new Map(all.map((option) => [option.flags, option])).values()]
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

/** Derived from the name of the first argument, because verbs use the same names. */
function argumentCandidates(command: Command): CandidateKind | readonly string[] | undefined {
  const [first] = command.registeredArguments;
  if (command.commands.length > 0) return command.commands.map((child) => child.name());
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

/** Completion for bash: one function with a case for each verb. */
function bashScript(verbs: readonly VerbCompletion[]): string {
  return `# laboro completion for bash: source <(laboro completion bash)
_laboro() {
  local word=\${COMP_WORDS[COMP_CWORD]} before=\${COMP_WORDS[COMP_CWORD-1]} verb=\${COMP_WORDS[1]}
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W '${verbs.map(({ name }) => name).join(" ")} help --help --version' -- "$word"))
    return
  fi
  case $verb in
${verbs.map(bashCase).join("\n")}
    help) COMPREPLY=($(compgen -W '${verbs.map(({ name }) => name).join(" ")}' -- "$word")) ;;
  esac
}
complete -F _laboro laboro`;
}

function bashCase({ name, options, words }: VerbCompletion): string {
  const flags = options.flatMap((option) => option.flags).join(" ");
  return `    ${name})
      case $before in
${options
  .filter(({ value }) => value !== undefined)
  .map(valueCase)
  .join("\n")}
      esac
      if [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W '${flags}' -- "$word"))
      else
        ${wordsLine(words)}
      fi
      ;;`;
}

function valueCase({ flags, value }: OptionCompletion): string {
  const reply = (made: string): string => `        ${flags.join("|")}) COMPREPLY=(${made}); return ;;`;
  if (value === "file") return reply('$(compgen -f -- "$word")');
  if (value === "directory") return reply('$(compgen -d -- "$word")');
  return reply(Array.isArray(value) ? `$(compgen -W '${value.join(" ")}' -- "$word")` : "");
}

function wordsLine(words: VerbCompletion["words"]): string {
  if (words === undefined) return 'COMPREPLY=($(compgen -f -- "$word"))';
  if (typeof words !== "string") return `COMPREPLY=($(compgen -W '${words.join(" ")}' -- "$word"))`;
  // One candidate per line, because the name of a worker may contain a blank.
  return `local IFS=$'\\n'; COMPREPLY=($(compgen -W "$(laboro completion --list ${words} 2>/dev/null | cut -f1)" -- "$word"))`;
}

/** Completion for zsh: `_arguments` for each verb. */
function zshScript(verbs: readonly VerbCompletion[]): string {
  return `#compdef laboro
# laboro completion for zsh: source <(laboro completion zsh), after compinit
_laboro_list() {
  local -a found
  found=(\${(f)"$(laboro completion --list $1 2>/dev/null)"})
  found=("\${found[@]//:/\\\\:}")
  found=("\${found[@]//$'\\t'/:}")
  _describe "$1" found
}
_laboro() {
  local context state line
  local -a verbs
  verbs=(
${verbs.map(({ name, summary }) => `    '${name}:${summary}'`).join("\n")}
  )
  if ((CURRENT == 2)); then
    _describe verb verbs
    return
  fi
  case $words[2] in
    help) _describe verb verbs ;;
${verbs.map(zshCase).join("\n")}
  esac
}
compdef _laboro laboro`;
}

function zshCase({ name, options, words }: VerbCompletion): string {
  const lines = options.flatMap((option) => optionSpecs(option));
  // The verb itself is the first word.
  lines.push("'1: :'", `'2:${wordsSpec(words)}'`, `'*:${words === undefined ? "file:_files" : " :"}'`);
  return `    ${name})\n      _arguments \\\n        ${lines.join(" \\\n        ")}\n      ;;`;
}

function optionSpecs({ flags, description, value }: OptionCompletion): string[] {
  return flags.map((flag) => `'${flag}[${description}]${value === undefined ? "" : `:value:${valueSpec(value)}`}'`);
}

function valueSpec(value: NonNullable<OptionCompletion["value"]>): string {
  if (value === "file") return "_files";
  if (value === "directory") return "_files -/";
  return value === "any" ? "" : `(${value.join(" ")})`;
}

function wordsSpec(words: VerbCompletion["words"]): string {
  if (words === undefined) return "file:_files";
  // Without the blank, _arguments would put arguments of its own before this one.
  return typeof words === "string" ? `${words}: _laboro_list ${words}` : `word:(${words.join(" ")})`;
}

/** Completion for fish: one line for each option. */
function fishScript(verbs: readonly VerbCompletion[]): string {
  const lines = [
    "# laboro completion for fish: laboro completion fish > ~/.config/fish/completions/laboro.fish",
    "complete -c laboro -e",
    "function __laboro_verb",
    "  set -l words (commandline -opc)",
    "  set -q words[2]; and test $words[2] = $argv[1]",
    "end",
    `complete -c laboro -f -n '__laboro_verb help' -a '${verbs.map(({ name }) => name).join(" ")}'`,
    "complete -c laboro -f -n __fish_use_subcommand -a help -d 'print help about a verb'",
    ...verbs.map(({ name, summary }) => `complete -c laboro -f -n __fish_use_subcommand -a ${name} -d '${summary}'`),
  ];
  for (const { name, options, words } of verbs) {
    const seen = `-n '__laboro_verb ${name}'`;
    for (const option of options) lines.push(`complete -c laboro ${seen} ${optionWords(option)}`);
    if (typeof words === "string")
      lines.push(`complete -c laboro -f ${seen} -a '(laboro completion --list ${words} 2>/dev/null)'`);
    else if (words !== undefined) lines.push(`complete -c laboro -f ${seen} -a '${words.join(" ")}'`);
  }
  return lines.join("\n");
}

function optionWords({ flags, description, value }: OptionCompletion): string {
  const names = flags.map((flag) => (flag.startsWith("--") ? `-l ${flag.slice(2)}` : `-s ${flag.slice(1)}`));
  return [...names, `-d '${description}'`, valueWords(value)].filter((word) => word !== "").join(" ");
}

function valueWords(value: OptionCompletion["value"]): string {
  if (value === undefined) return "";
  if (value === "file") return "-r -F";
  if (value === "directory") return "-x -a '(__fish_complete_directories)'";
  return value === "any" ? "-x" : `-x -a '${value.join(" ")}'`;
}

const SCRIPTS = { bash: bashScript, zsh: zshScript, fish: fishScript } as const;
type Shell = keyof typeof SCRIPTS;

/** A completion must not make the user wait. */
const TIMEOUT_MS = 500;
const MOST = 100;

interface Options extends BrokerChoice {
  readonly list?: CandidateKind;
}

export function completion(): Command {
  const command = new Command("completion")
    .description("Print a script that completes verbs, options, job numbers and the names of workers and services.")
    .addArgument(new Argument("[shell]", "the shell").choices(Object.keys(SCRIPTS)))
    .addOption(
      new Option("--list <what>", "what the script asks for").choices(["jobs", "workers", "services"]).hideHelp(),
    )
    .addHelpText(
      "after",
      `
Examples:
  bash: source <(laboro completion bash)        in ~/.bashrc
  zsh:  source <(laboro completion zsh)         in ~/.zshrc, after compinit
  fish: laboro completion fish > ~/.config/fish/completions/laboro.fish`,
    )
    .action(run);
  return addBrokerOptions(command);
}

async function run(shell: Shell | undefined, options: Options, command: Command): Promise<void> {
  if (options.list !== undefined) {
    printLines(...(await listCandidates(options.list, options)));
    return;
  }
  if (shell === undefined) command.error("error: missing required argument 'shell': bash, zsh or fish");
  printLines(SCRIPTS[shell ?? "bash"](describeVerbs(await makeProgram("all"))));
}

/** No candidates if anything fails: the user is typing and must not see errors. */
async function listCandidates(what: CandidateKind, options: BrokerChoice): Promise<readonly string[]> {
  try {
    const client = await connectToBroker(options, TIMEOUT_MS);
    try {
      return await Promise.race([candidates(client, what), tooLate()]);
    } finally {
      client.close();
    }
  } catch {
    return [];
  }
}

const tooLate = (): Promise<readonly string[]> =>
  new Promise((resolve) => setTimeout(() => resolve([]), TIMEOUT_MS).unref());

/** `VALUE<tab>DESCRIPTION`, as fish shows it. The other shells use the part before the tab. */
async function candidates(client: Client, what: CandidateKind): Promise<readonly string[]> {
  switch (what) {
    case "jobs": {
      const { jobs } = await client.ask("jobs", { limit: MOST });
      return ["last\tthe newest job", "all\tevery job", ...jobs.map(({ id, name }) => `${id}\t${plain(name)}`)];
    }
    case "workers":
      return (await client.ask("workers", {})).workers.map(({ name }) => plain(name));
    case "services":
      return (await client.ask("services", {})).services.map(({ name }) => plain(name));
  }
}

/** A shell evaluates candidates, so only characters without a special meaning are kept. */
const plain = (text: string): string => text.replace(/[^\w.:@%+=,/ -]/gu, "_").slice(0, 60);
