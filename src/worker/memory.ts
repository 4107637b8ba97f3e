/**
 * Starts wait while the machine is short of memory. It is looked at before each start, so again whenever a task has ended,
 * and every second while something waits for it.
 */
import { readFileSync } from "node:fs";

export interface MemoryOptions {
  /** Bytes that must be available for a task to start. */
  readonly least: number;
  /** From now on there is not enough, or there is again. */
  readonly changed: (enough: boolean, available: number) => void;
  /** Something may be able to start now. */
  readonly lookAgain: () => void;
  /** Where the kernel says what is available. */
  readonly file?: string;
}

const LOOK_AGAIN_MS = 1_000;

export class MemoryWatch {
  readonly #options: MemoryOptions;
  #short = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: MemoryOptions) {
    this.#options = options;
  }

  /** Asked before a start. While the answer is no, `lookAgain` follows. */
  enough(): boolean {
    const { least, changed, lookAgain } = this.#options;
    const available = this.#available();
    const enough = available >= least;
    if (enough !== !this.#short) {
      this.#short = !enough;
      changed(enough, available);
    }
    if (!enough && this.#timer === undefined) {
      this.#timer = setTimeout(() => {
        this.#timer = undefined;
        lookAgain();
      }, LOOK_AGAIN_MS);
    }
    return enough;
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  /** Without bound where the system does not say; then nothing waits. */
  #available(): number {
    let text: string;
    try {
      text = readFileSync(this.#options.file ?? "/proc/meminfo", "latin1");
    } catch {
      return Number.POSITIVE_INFINITY;
    }
    const [, kilobytes] = /^MemAvailable:\s+(\d+) kB/m.exec(text) ?? [];
    return kilobytes === undefined ? Number.POSITIVE_INFINITY : Number(kilobytes) * 1024;
  }
}
