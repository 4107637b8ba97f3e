/** A progress bar on a terminal's last line: failures, rate, remaining time. Draws nothing without a terminal. */
import type { WriteStream } from "node:tty";
import { speedTexts } from "../../../base/format.js";
import type { JobView, OperationOutput } from "../result-text.js";

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
  #redraw: NodeJS.Immediate | undefined;
  #isLineOpen: () => boolean = () => false;

  /** `doneBefore` tasks ended before `started`: they count as done, but not for the rate. */
  constructor(stream: WriteStream, total: number, doneBefore: number, started?: number, now: () => number = Date.now) {
    this.#stream = stream.isTTY && process.env.TERM !== "dumb" ? stream : undefined;
    this.#total = total;
    this.#doneBefore = doneBefore;
    this.#now = now;
    this.#started = started ?? now();
    this.#ascii = !/utf-?8/i.test(process.env.LC_ALL ?? process.env.LC_CTYPE ?? process.env.LANG ?? "");
  }

  /** Draws at once, and again every 200 ms, except where output has not ended its line. */
  begin(counts: TaskCounts, isLineOpen: () => boolean = () => false): void {
    this.#counts = counts;
    this.#isLineOpen = isLineOpen;
    if (this.#stream === undefined) return;
    this.#draw();
    this.#timer = setInterval(() => this.#draw(), REDRAW_MS);
    this.#timer.unref();
  }

  update(counts: TaskCounts): void {
    this.#counts = counts;
  }

  /** Removes the bar, so that other output can use the line. It is drawn again below that output. */
  clear(): void {
    if (!this.#drawn) return;
    this.#stream?.write("\r\x1b[K");
    this.#drawn = false;
    this.#redraw = setImmediate(() => this.#draw());
  }

  end(): void {
    clearInterval(this.#timer);
    this.clear();
    clearImmediate(this.#redraw);
  }

  #draw(): void {
    if (this.#stream === undefined || this.#isLineOpen()) return;
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

type Usage = OperationOutput<"usage">;

/** What the ended tasks of a job used. */
export type UsageOf = (job: number) => Promise<Usage>;

/**
 * The broker adds it up over all results of a job. A caller that repeats is given the last answer again, for ten times
 * as long as that answer took, but no longer than a minute.
 */
export function usageReader(read: UsageOf, now = (): number => performance.now()): UsageOf {
  const answers = new Map<number, { readonly usage: Usage; readonly until: number }>();
  return async (job) => {
    const began = now();
    const last = answers.get(job);
    if (last !== undefined && began < last.until) return last.usage;
    const usage = await read(job);
    answers.set(job, { usage, until: now() + Math.min(60_000, 10 * (now() - began)) });
    return usage;
  };
}

/** How many tasks of an open job have run since its first start, how many are left, and the time since. */
export function paceOf(
  { counters, ended }: JobView,
  { firstStart }: Usage,
): { readonly ran: number; readonly left: number; readonly ms: number } | undefined {
  const ran = counters.succeeded + counters.failed;
  if (ended !== undefined || ran === 0 || firstStart === 0) return undefined;
  return { ran, left: counters.waiting + counters.running, ms: Math.max(1, Date.now() - firstStart) };
}

/** The rate of a job and how long it still takes; empty until a task has ended. */
export function paceTexts(job: JobView, usage: Usage): readonly string[] {
  const pace = paceOf(job, usage);
  if (pace === undefined) return [];
  const [rate, left] = speedTexts(pace.ran, pace.left, pace.ms);
  return pace.left === 0 ? [rate] : [rate, left];
}
