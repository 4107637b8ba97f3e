/** `laboro completion`: a script for the shell, made from the definitions of the verbs. */
import { Argument, Command, Option } from "commander";
import type { Client } from "../../client/client.js";
import { addBrokerOptions, type BrokerChoice, connectToBroker } from "../lib/broker-connection.js";
import { printLines } from "../lib/print.js";
import { makeProgram } from "../lib/program.js";
import { bashScript } from "./completion/bash.js";
import { type CandidateKind, describeVerbs } from "./completion/describe-verbs.js";
import { fishScript } from "./completion/fish.js";
import { zshScript } from "./completion/zsh.js";

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
    .addArgument(new Argument("[shell]", "which shell").choices(Object.keys(SCRIPTS)))
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

/** `VALUE<tab>what it is`, as fish shows it; the other shells take what is before the tab. */
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

/** A shell evaluates what it completes: only characters that mean nothing to it. */
const plain = (text: string): string => text.replace(/[^\w.:@%+=,/ -]/gu, "_").slice(0, 60);
