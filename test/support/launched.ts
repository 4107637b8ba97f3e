/** One process under test: what it says, when it ends, and its end by id. */
import { type ChildProcess, spawn } from "node:child_process";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { until } from "./wait.js";

export const REPOSITORY = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
export const LABORO = join(REPOSITORY, "bin", "laboro");

export interface LaunchOptions {
  readonly env: NodeJS.ProcessEnv;
  /** `ulimit -n`: how many files it may have open. */
  readonly openFiles?: number;
  /** A command that starts it. */
  readonly prefix?: readonly string[];
}

export class Launched {
  readonly name: string;
  readonly #child: ChildProcess;
  readonly #ended: Promise<void>;
  #said = "";
  #over = false;

  constructor(name: string, args: readonly string[], options: LaunchOptions) {
    const { openFiles, env, prefix = [] } = options;
    const limited = openFiles === undefined ? [] : ["sh", "-c", `ulimit -n ${openFiles}; exec "$@"`, "sh"];
    const [file = "", ...rest] = [...prefix, ...limited, process.execPath, ...args];
    this.name = name;
    this.#child = spawn(file, rest, { env, stdio: ["ignore", "pipe", "pipe"] });
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      stream?.setEncoding("utf8").on("data", (text: string) => {
        this.#said += text;
      });
    }
    this.#ended = new Promise((resolve) => {
      this.#child.once("exit", () => {
        this.#over = true;
        resolve();
      });
    });
  }

  get pid(): number {
    if (this.#child.pid === undefined) throw new Error(`${this.name} was not started`);
    return this.#child.pid;
  }

  get over(): boolean {
    return this.#over;
  }

  get exitCode(): number | null {
    return this.#child.exitCode;
  }

  /** All of its standard output and standard error so far. */
  get said(): string {
    return this.#said;
  }

  async says(text: string | RegExp, deadlineMs?: number): Promise<void> {
    const found = (): boolean => (typeof text === "string" ? this.#said.includes(text) : text.test(this.#said));
    const fault = (what: string): string => `${this.name} ${what} ${text}; it said:\n${this.#said.slice(-2_000)}`;
    await until(
      () => fault("says"),
      () => found() || (this.#over ? fail(fault("ended, and never said")) : false),
      deadlineMs,
    );
  }

  signal(name: NodeJS.Signals): void {
    if (!this.#over) process.kill(this.pid, name);
  }

  /** Sends the signal and waits for the end. */
  async end(signal: NodeJS.Signals): Promise<void> {
    this.signal(signal);
    // A stopped process takes nothing but SIGKILL before it goes on.
    if (signal !== "SIGKILL") this.signal("SIGCONT");
    await this.#ended;
  }

  ended(): Promise<void> {
    return this.#ended;
  }
}

function fail(text: string): never {
  throw new Error(text);
}
