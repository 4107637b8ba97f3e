/**
 * Output of tasks on its way to standard output and standard error, byte for byte; to a terminal without escape sequences that are no
 * style. A write resolves when the stream takes more, so that a slow reader is waited for and nothing piles up in memory.
 */
import type { OutputStream } from "../../model/outcome.js";
import { EscapeFilter } from "./terminal/escape-filter.js";

const NEWLINE = 10;

export class OutputWriter {
  readonly #stop: readonly AbortSignal[];
  /** On a terminal: the last line has not ended. */
  readonly #partialLine: Record<OutputStream, boolean> = { stdout: false, stderr: false };
  readonly #filters = { stdout: new EscapeFilter(), stderr: new EscapeFilter() };

  /** Once one of these is aborted, nothing is written and nothing waits. */
  constructor(...stop: readonly AbortSignal[]) {
    this.#stop = stop;
  }

  get stopped(): boolean {
    return this.#stop.some(({ aborted }) => aborted);
  }

  async write(stream: OutputStream, bytes: Uint8Array): Promise<void> {
    if (this.stopped || bytes.length === 0) return;
    this.#partialLine[stream] = process[stream].isTTY && bytes.at(-1) !== NEWLINE;
    await new Promise<void>((resolve) => {
      const end = (): void => {
        for (const signal of this.#stop) signal.removeEventListener("abort", end);
        resolve();
      };
      // Called after a failure, too.
      const shown = process[stream].isTTY ? this.#filters[stream].filter(bytes) : bytes;
      if (process[stream].write(shown, end)) return end();
      for (const signal of this.#stop) signal.addEventListener("abort", end);
    });
  }

  /** On a terminal, what follows begins on a new line, without the colours of what was there. */
  endLine(): void {
    for (const stream of ["stdout", "stderr"] as const) {
      const rest = this.#filters[stream].end() + (this.#partialLine[stream] ? "\n" : "");
      if (rest !== "" && !this.stopped) process[stream].write(rest);
      this.#partialLine[stream] = false;
    }
  }
}
