/**
 * A progress bar on a terminal's last line, with failures, rate and remaining time. Draws nothing without a terminal.
 */
import type { WriteStream } from "node:tty";
import { speedTexts } from "../../../base/format.js";
import type { JobView } from "../result-text.js";

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
  const [rate, left] = speedTexts(done - doneBefore, total - done, elapsedMs);
  const parts = [`${bar} ${done}/${total}`];
  if (counts.failed > 0) parts.push(`${counts.failed} failed`);
  if (done > doneBefore) parts.push(rate);
  if (done > doneBefore && done < total) parts.push(`${left} left`);
  return parts.join("  ");
}

/** The rate of a job and how long it still takes. Empty until a task has ended since the first call for this job. */
export type SpeedOf = (job: JobView) => readonly string[];

export function speedSinceFirst(): SpeedOf {
  const firsts = new Map<number, { readonly at: number; readonly done: number }>();
  return ({ id, count, counters, ended }) => {
    const now = { at: Date.now(), done: counters.succeeded + counters.failed + counters.cancelled };
    const first = firsts.get(id);
    // Fewer than before: tasks run again.
    if (first === undefined || now.done < first.done) firsts.set(id, now);
    if (first === undefined || now.done <= first.done || ended !== undefined) return [];
    return speedTexts(now.done - first.done, count - now.done, now.at - first.at);
  };
}
