/**
 * A progress bar on a terminal's last line, with failures, rate and remaining time. Draws nothing without a terminal.
 */
import type { WriteStream } from "node:tty";

export interface TaskCounts {
  readonly succeeded: number;
  readonly failed: number;
  readonly cancelled: number;
}

const REDRAW_MS = 200;
const BAR = 24;
/** Columns reserved for the numbers behind the bar. */
const NUMBERS = 36;

export class ProgressBar {
  readonly #stream: WriteStream | undefined;
  readonly #total: number;
  readonly #doneBefore: number;
  readonly #started: number;
  readonly #now: () => number;
  readonly #ascii: boolean;
  #counts: TaskCounts = { succeeded: 0, failed: 0, cancelled: 0 };
  #drawn = false;
  #timer: NodeJS.Timeout | undefined;

  /** `doneBefore` tasks ended in an earlier run: they count as done, but not for the rate. */
  constructor(stream: WriteStream, total: number, doneBefore: number, now: () => number = Date.now) {
    this.#stream = stream.isTTY && process.env.TERM !== "dumb" ? stream : undefined;
    this.#total = total;
    this.#doneBefore = doneBefore;
    this.#now = now;
    this.#started = now();
    this.#ascii = !/utf-?8/i.test(process.env.LC_ALL ?? process.env.LC_CTYPE ?? process.env.LANG ?? "");
  }

  /** Draws at once, and again every 200 ms: output of tasks overwrites the line. */
  begin(counts: TaskCounts): void {
    this.#counts = counts;
    if (this.#stream === undefined) return;
    this.#draw();
    this.#timer = setInterval(() => this.#draw(), REDRAW_MS);
    this.#timer.unref();
  }

  update(counts: TaskCounts): void {
    this.#counts = counts;
  }

  /** Removes the bar, so that other output can use the line. */
  clear(): void {
    if (this.#drawn) this.#stream?.write("\r\x1b[K");
    this.#drawn = false;
  }

  end(): void {
    clearInterval(this.#timer);
    this.clear();
  }

  #draw(): void {
    if (this.#stream === undefined) return;
    this.#drawn = true;
    // A new pseudo-terminal may report 0 columns.
    const width = Math.max(20, (this.#stream.columns || 80) - 1);
    const elapsed = this.#now() - this.#started;
    // On a narrow terminal the numbers matter more than the bar.
    const bar = Math.max(4, Math.min(BAR, width - NUMBERS));
    const line = progressLine(this.#counts, this.#total, this.#doneBefore, elapsed, this.#ascii, bar);
    this.#stream.write(`\r\x1b[K${line.slice(0, width)}`);
  }
}

export function progressLine(
  counts: TaskCounts,
  total: number,
  doneBefore: number,
  elapsedMs: number,
  ascii: boolean,
  width = BAR,
): string {
  const done = counts.succeeded + counts.failed + counts.cancelled;
  const share = total === 0 ? 1 : Math.min(1, done / total);
  const full = Math.round(share * width);
  const bar = ascii ? "#".repeat(full) + "-".repeat(width - full) : "█".repeat(full) + "░".repeat(width - full);
  const rate = ((done - doneBefore) / Math.max(1, elapsedMs)) * 1000;
  const parts = [`${bar} ${done}/${total}`];
  if (counts.failed > 0) parts.push(`${counts.failed} failed`);
  if (done > doneBefore) {
    parts.push(`${rate >= 10 ? Math.round(rate) : rate.toFixed(1)}/s`);
    if (done < total) parts.push(`${formatRemaining(((total - done) / rate) * 1000)} left`);
  }
  return parts.join("  ");
}

/** 0.4 s, 12 s, 3 min 20 s, 2 h 5 min */
export function formatRemaining(ms: number): string {
  const seconds = ms / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 120) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
