/**
 * Output of tasks on its way to standard output and standard error, byte for byte. A write resolves when the stream takes more, so
 * that a slow reader is waited for and nothing piles up in memory.
 */
import type { OutputStream } from "../../model/outcome.js";

const NEWLINE = 10;

export class OutputWriter {
  readonly #stop: readonly AbortSignal[];
  /** On a terminal: the last line has not ended. */
  readonly #partialLine: Record<OutputStream, boolean> = { stdout: false, stderr: false };

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
      if (process[stream].write(bytes, end)) return end();
      for (const signal of this.#stop) signal.addEventListener("abort", end);
    });
  }

  /** On a terminal, what follows begins on a new line. */
  endLine(): void {
    for (const stream of ["stdout", "stderr"] as const) {
      if (this.#partialLine[stream] && !this.stopped) process[stream].write("\n");
      this.#partialLine[stream] = false;
    }
  }
}
