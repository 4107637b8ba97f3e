/**
 * Standard output for what may come by the hundred a second. The first text goes at once; what follows within a moment goes together:
 * a write for each would cost more than a short job does, here and at who reads it. Nothing is lost where a process ends by itself; one
 * that is killed may lose the last moment.
 */

const PAUSE_MS = 20;

export class Gathered {
  readonly #write: (text: string) => void;
  #waiting = "";
  #pause: NodeJS.Timeout | undefined;

  constructor(write: (text: string) => void = (text) => void process.stdout.write(text)) {
    this.#write = write;
    process.once("exit", () => this.#flush());
  }

  write(text: string): void {
    this.#waiting += text;
    if (this.#pause !== undefined) return;
    this.#flush();
    this.#rest();
  }

  line(text: string): void {
    this.write(`${text}\n`);
  }

  #rest(): void {
    this.#pause = setTimeout(() => {
      this.#pause = undefined;
      if (this.#waiting === "") return;
      this.#flush();
      this.#rest();
    }, PAUSE_MS).unref();
  }

  #flush(): void {
    const text = this.#waiting;
    this.#waiting = "";
    if (text !== "") this.#write(text);
  }
}
