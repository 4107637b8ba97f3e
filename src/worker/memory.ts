/**
 * Starts wait while the machine is short of memory. It is looked at before each start, so again whenever a task has ended,
 * and every second while something waits for it.
 */
import { readFileSync } from "node:fs";

export interface MemoryOptions {
  /** Bytes that must be available for a task to start. */
  readonly minBytes: number;
  /** From now on there is not enough, or there is again. */
  readonly onChange: (enough: boolean, available: number) => void;
  /** Something may be able to start now. */
  readonly retry: () => void;
  /** Where the kernel says what is available. */
  readonly file?: string;
}

const RETRY_MS = 1_000;

export class MemoryWatch {
  readonly #options: MemoryOptions;
  #low = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: MemoryOptions) {
    this.#options = options;
  }

  /** Asked before a start. While the answer is no, `lookAgain` follows. */
  hasEnough(): boolean {
    const { minBytes: least, onChange: changed, retry: lookAgain } = this.#options;
    const available = this.#available();
    const enough = available >= least;
    if (enough !== !this.#low) {
      this.#low = !enough;
      changed(enough, available);
    }
    if (!enough && this.#timer === undefined) {
      this.#timer = setTimeout(() => {
        this.#timer = undefined;
        lookAgain();
      }, RETRY_MS);
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
