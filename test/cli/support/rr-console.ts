/** The consoles of `laboro rr`. */
import { type ChildProcess, spawn } from "node:child_process";
import { freePort } from "../../support/free-port.js";
import { LABORO } from "../../support/launched.js";
import { until } from "../../support/wait.js";

const DEADLINE = 60_000;

/** One of the round-robin programs with its console, as a process of its own. */
export class Console {
  readonly #child: ChildProcess;
  #said = "";
  #looked = 0;

  constructor(args: readonly string[], temporary: string, program: readonly string[] = [LABORO, "rr"]) {
    this.#child = spawn(process.execPath, [...program, ...args], { env: { ...process.env, TMPDIR: temporary } });
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      stream?.setEncoding("utf8").on("data", (text: string) => {
        this.#said += text;
      });
    }
  }

  get said(): string {
    return this.#said;
  }

  /** Types a line. */
  type(line: string): void {
    this.#looked = this.#said.length;
    this.#child.stdin?.write(`${line}\n`);
  }

  endInput(): void {
    this.#child.stdin?.end();
  }

  /** Waits until this comes after the last line that was typed; gives what came. */
  async says(text: string | RegExp): Promise<string> {
    const fresh = (): string => this.#said.slice(this.#looked);
    await until(
      () => `it says ${text}; it said ${this.#said.slice(-500)}`,
      () => fresh().match(text) !== null,
      DEADLINE,
    );
    return fresh();
  }

  async exit(): Promise<number | null> {
    await until(
      () => `it ends; it said ${this.#said.slice(-500)}`,
      () => this.#child.exitCode !== null || this.#child.signalCode !== null,
      DEADLINE,
    );
    return this.#child.exitCode;
  }

  kill(name: NodeJS.Signals): void {
    this.#child.kill(name);
  }
}

/** Where a server may listen. */
export const freeUrl = async (): Promise<string> => `tcp://127.0.0.1:${await freePort()}`;
