/**
 * Standard output for hundreds of lines a second. The first text is written at once, what follows within 20 ms in one write: a write for
 * each line would cost more than a short job does. Nothing is lost when the process exits; when it is killed, the last 20 ms may be.
 */
import { textFor } from "./terminal/escape-filter.js";

const FLUSH_INTERVAL_MS = 20;

export class BufferedStdout {
  readonly #write: (text: string) => void;
  #buffer = "";
  #timer: NodeJS.Timeout | undefined;

  constructor(write: (text: string) => void = (text) => void process.stdout.write(textFor(process.stdout, text))) {
    this.#write = write;
    process.once("exit", () => this.#flush());
  }

  write(text: string): void {
    this.#buffer += text;
    if (this.#timer !== undefined) return;
    this.#flush();
    this.#scheduleFlush();
  }

  writeLine(text: string): void {
    this.write(`${text}\n`);
  }

  #scheduleFlush(): void {
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      if (this.#buffer === "") return;
      this.#flush();
      this.#scheduleFlush();
    }, FLUSH_INTERVAL_MS).unref();
  }

  #flush(): void {
    const text = this.#buffer;
    this.#buffer = "";
    if (text !== "") this.#write(text);
  }
}
