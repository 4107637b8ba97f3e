/**
 * Standard output for what may come by the hundred a second. The first text goes at once; what follows within a moment goes together:
 * a write for each would cost more than a short job does, here and at who reads it. Nothing is lost where a process ends by itself; one
 * that is killed may lose the last moment.
 */

const FLUSH_INTERVAL_MS = 20;

export class BufferedStdout {
  readonly #write: (text: string) => void;
  #buffer = "";
  #timer: NodeJS.Timeout | undefined;

  constructor(write: (text: string) => void = (text) => void process.stdout.write(text)) {
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
