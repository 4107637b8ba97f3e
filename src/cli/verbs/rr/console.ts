/**
 * The console of the round-robin programs: a prompt and commands, some of which take a number. Words may be on one line
 * or on several. The end of the input ends the console, like `quit`.
 */
import { createReadStream } from "node:fs";
import type { Readable } from "node:stream";
import { asLaboroError, errnoOf } from "../../../base/errors.js";
import { onStopSignal } from "../../lib/long-running.js";
import { escapeLines, printLines } from "../../lib/print.js";

interface ConsoleCommand {
  /** Set if the command takes a number. */
  readonly takes?: "N";
  readonly run: (number: number) => void | Promise<void>;
}

interface ConsoleOptions {
  readonly commands: Readonly<Record<string, ConsoleCommand>>;
  readonly output: ConsoleOutput;
  /** Commands are read from this file instead of standard input. */
  readonly script?: string | undefined;
}

const MAX_COUNT = 10_000_000;
const PROMPT = "> ";
const ERASE_LINE = "\r\x1b[K";

/** Output up to a level: 0 errors only, 1 events, 5 summaries, 10 every message. */
export class ConsoleOutput {
  readonly #name: string;
  readonly #level: number;
  #failures = 0;
  /** The prompt is the last thing that was written: the console waits for a command. */
  #prompting = false;

  constructor(name: string, level: number) {
    this.#name = name;
    this.#level = level;
  }

  log(level: number, ...lines: readonly string[]): void {
    if (level > this.#level) return;
    this.#besidePrompt(() => printLines(...lines.map((line) => `${this.#name}: ${line}`)));
  }

  /** The result of a command, at any level. */
  print(...lines: readonly string[]): void {
    this.#besidePrompt(() => printLines(...lines));
  }

  fail(cause: unknown): void {
    this.#failures++;
    const { code, message } = asLaboroError(cause);
    this.#besidePrompt(() => process.stderr.write(`${this.#name}: ERROR: ${escapeLines(message)} (${code})\n`));
  }

  prompt(): void {
    this.#prompting = true;
    process.stdout.write(PROMPT);
  }

  /** A command was read, or the end of the input. */
  promptAnswered(): void {
    this.#prompting = false;
  }

  /** Output that is written while the console waits for a command goes above the prompt. */
  #besidePrompt(write: () => void): void {
    if (!this.#prompting) {
      write();
      return;
    }
    process.stdout.write(process.stdout.isTTY ? ERASE_LINE : "\n");
    write();
    process.stdout.write(PROMPT);
  }

  /** How often something failed. */
  get failures(): number {
    return this.#failures;
  }
}

/** Runs until `quit` or the end of the input; commands one after the other. */
export async function runConsole({ commands, output, script }: ConsoleOptions): Promise<void> {
  const input: Readable = script === undefined ? process.stdin : createReadStream(script);
  input.setEncoding("utf8");
  onStopSignal(() => input.destroy());
  const words = wordsOf(input, output);
  const next = async (): Promise<string | undefined> => (await words.next()).value ?? undefined;
  const nextCommand = async (): Promise<string | undefined> => {
    output.prompt();
    const word = await next();
    output.promptAnswered();
    return word;
  };
  let word = await nextCommand();
  for (; word !== undefined && word !== "quit"; word = await nextCommand()) {
    // Echo the commands of a script.
    if (script !== undefined) process.stdout.write(`${word}\n`);
    await runCommand(commands, word, next, output);
  }
  if (word === undefined) process.stdout.write("\n");
  if (script === undefined) process.stdin.destroy();
}

async function runCommand(
  commands: ConsoleOptions["commands"],
  word: string,
  next: () => Promise<string | undefined>,
  output: ConsoleOutput,
): Promise<void> {
  const command = Object.hasOwn(commands, word) ? commands[word] : undefined;
  try {
    if (command === undefined) {
      output.print(`no command ${word}: ${commandList(commands)}`);
    } else if (command.takes === undefined) {
      await command.run(0);
    } else {
      const text = (await next()) ?? "";
      const number = /^\d+$/.test(text) ? Number(text) : Number.NaN;
      if (number <= MAX_COUNT) await command.run(number);
      else output.print(`${word} takes a number, not ${JSON.stringify(text)}`);
    }
  } catch (cause) {
    output.fail(cause);
  }
}

export const commandList = (commands: ConsoleOptions["commands"]): string =>
  [
    ...Object.entries(commands).map(([name, { takes }]) => (takes === undefined ? name : `${name} ${takes}`)),
    "quit",
  ].join(", ");

async function* wordsOf(input: Readable, output: ConsoleOutput): AsyncGenerator<string, undefined> {
  let rest = "";
  try {
    for await (const chunk of input) {
      const words = (rest + String(chunk)).split(/\s+/);
      // The last word may continue in the next chunk.
      rest = words.pop() ?? "";
      yield* words.filter((word) => word !== "");
    }
  } catch (cause) {
    // A signal closes the input, which is not a failure.
    if (errnoOf(cause) !== "ERR_STREAM_PREMATURE_CLOSE") output.fail(cause);
  }
  if (rest !== "") yield rest;
  return undefined;
}
