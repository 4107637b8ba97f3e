/**
 * No task starts while the machine is short of memory or its load is high. Both are read before each start; while none may start, every
 * second and whenever a task has ended.
 */
import { readFileSync } from "node:fs";

export interface MemoryOptions {
  /** Bytes that must be available for a task to start. */
  readonly minBytes?: number | undefined;
  /** Processes that may be running or ready to run for a task to start, with those that have just been started. */
  readonly maxLoad?: number | undefined;
  /** Memory or load have become too low or high (`why`), or are good again. */
  readonly onChange: (why: string | undefined, available: number) => void;
  /** Called every second while no task may start, to check again. */
  readonly retry: () => void;
  /** The file in which the kernel reports it; /proc/meminfo if absent. */
  readonly file?: string;
  /** /proc/loadavg if absent. */
  readonly loadFile?: string;
}

const RETRY_MS = 1_000;

export class MemoryWatch {
  readonly #options: MemoryOptions;
  #shortage: string | undefined;
  /** Since then so many tasks were started: they may not count as load yet. */
  #started = { at: 0, count: 0 };
  #timer: NodeJS.Timeout | undefined;

  constructor(options: MemoryOptions) {
    this.#options = options;
  }

  /** Why no task starts, as of the last check. */
  get shortage(): string | undefined {
    return this.#shortage;
  }

  /** To be called before each start. After a negative answer `retry` is called later. */
  hasEnough(): boolean {
    const { minBytes = 0, maxLoad = Number.POSITIVE_INFINITY, onChange, retry } = this.#options;
    const available = minBytes > 0 ? this.#available() : 0;
    const isLoaded = Number.isFinite(maxLoad) && this.#load() >= maxLoad;
    const before = this.#shortage;
    this.#shortage = isLoaded ? `the load is ${maxLoad} or more` : undefined;
    if (available < minBytes) this.#shortage = `less than ${mebibytes(minBytes)} of memory are available`;
    if (before !== this.#shortage) onChange(this.#shortage, available);
    const enough = this.#shortage === undefined;
    if (!enough && this.#timer === undefined) {
      this.#timer = setTimeout(() => {
        this.#timer = undefined;
        retry();
      }, RETRY_MS);
    }
    return enough;
  }

  taskStarted(): void {
    this.#started.count++;
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  /** The processes that run or are ready to run, without this one: the fourth number of the file. */
  #load(): number {
    if (Date.now() - this.#started.at > RETRY_MS) this.#started = { at: Date.now(), count: 0 };
    try {
      const text = readFileSync(this.#options.loadFile ?? "/proc/loadavg", "latin1");
      return Number(/ (\d+)\//.exec(text)?.[1] ?? 1) - 1 + this.#started.count;
    } catch {
      return 0;
    }
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
