/**
 * No task starts while the machine is short of memory. The available memory is read before each start; while it is low, every
 * second and whenever a task has ended.
 */
import { readFileSync } from "node:fs";

export interface MemoryOptions {
  /** Bytes that must be available for a task to start. */
  readonly minBytes: number;
  /** Memory has become too low, or is sufficient again. */
  readonly onChange: (enough: boolean, available: number) => void;
  /** Called every second while memory is low, to check again. */
  readonly retry: () => void;
  /** The file in which the kernel reports it; /proc/meminfo if absent. */
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

  /** Why no task starts, as of the last check. */
  get shortage(): string | undefined {
    return this.#low ? `less than ${mebibytes(this.#options.minBytes)} of memory are available` : undefined;
  }

  /** To be called before each start. After a negative answer `retry` is called later. */
  hasEnough(): boolean {
    const { minBytes, onChange, retry } = this.#options;
    const available = this.#available();
    const enough = available >= minBytes;
    if (enough !== !this.#low) {
      this.#low = !enough;
      onChange(enough, available);
    }
    if (!enough && this.#timer === undefined) {
      this.#timer = setTimeout(() => {
        this.#timer = undefined;
        retry();
      }, RETRY_MS);
    }
    return enough;
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  /** Infinite if the system does not report it: then no task waits. */
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

export const mebibytes = (bytes: number): string => `${Math.round(bytes / 1024 / 1024)} MiB`;
