/**
 * Starts wait while the machine is short of memory. It is looked at before each start, so again whenever a task has ended,
 * and every second while something waits for it.
 */
import { readFileSync } from "node:fs";
import type { Log } from "../broker/log.js";

export interface MemoryOptions {
  /** Bytes that must be available for a task to start. */
  readonly least: number;
  readonly log: Log;
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
    const { least, log, lookAgain } = this.#options;
    const available = this.#available();
    const enough = available === undefined || available >= least;
    if (enough !== !this.#short) {
      this.#short = !enough;
      const fields = { available, least };
      if (enough) log.info(fields, "there is memory again: tasks start");
      else log.warn(fields, `only ${megabytes(available)} of memory are available, tasks wait for ${megabytes(least)}`);
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

  /** Undefined where the system does not say; then nothing waits. */
  #available(): number | undefined {
    let text: string;
    try {
      text = readFileSync(this.#options.file ?? "/proc/meminfo", "latin1");
    } catch {
      return undefined;
    }
    const [, kilobytes] = /^MemAvailable:\s+(\d+) kB/m.exec(text) ?? [];
    return kilobytes === undefined ? undefined : Number(kilobytes) * 1024;
  }
}

const megabytes = (bytes: number): string => `${Math.round(bytes / 1024 / 1024)} MiB`;
