/**
 * Writes output of tasks to standard output and standard error, byte for byte. On a terminal, escape sequences other
 * than text styles are removed. A write resolves when the stream accepts more, so that output does not accumulate in
 * memory when the reader is slow.
 */
import type { OutputStream } from "../../model/outcome.js";
import { EscapeFilter } from "./terminal/escape-filter.js";

const NEWLINE = 10;

export class OutputWriter {
  readonly #stop: readonly AbortSignal[];
  /** On a terminal: the last line has not ended. */
  readonly #partialLine: Record<OutputStream, boolean> = { stdout: false, stderr: false };
  readonly #filters = { stdout: new EscapeFilter(), stderr: new EscapeFilter() };

  /** Once one of these is aborted, writes do nothing and resolve at once. */
  constructor(...stop: readonly AbortSignal[]) {
    this.#stop = stop;
  }

  get stopped(): boolean {
    return this.#stop.some(({ aborted }) => aborted);
  }

  async write(stream: OutputStream, bytes: Uint8Array): Promise<void> {
    if (this.stopped || bytes.length === 0) return;
    this.#partialLine[stream] = process[stream].isTTY && bytes.at(-1) !== NEWLINE;
    await new Promise<void>((resolve) => {
      const end = (): void => {
        for (const signal of this.#stop) signal.removeEventListener("abort", end);
        resolve();
      };
      // `end` is also called after a failed write.
      const shown = process[stream].isTTY ? this.#filters[stream].filter(bytes) : bytes;
      if (process[stream].write(shown, end)) return end();
      for (const signal of this.#stop) signal.addEventListener("abort", end);
    });
  }

  /** On a terminal, starts a new line and resets the colours. */
  endLine(): void {
    for (const stream of ["stdout", "stderr"] as const) {
      const rest = this.#filters[stream].end() + (this.#partialLine[stream] ? "\n" : "");
      if (rest !== "" && !this.stopped) process[stream].write(rest);
      this.#partialLine[stream] = false;
    }
  }
}

export interface Sink {
  write(bytes: Uint8Array): unknown;
}

/** A longer line is written in pieces. */
const LONGEST = 64 * 1024;

/** Writes the output of one of several tasks in whole lines, so that lines of different tasks do not mix. */
export class LineWriter {
  readonly #sink: Sink;
  readonly #tag: Buffer;
  readonly #longest: number;
  #pending: Uint8Array[] = [];
  #pendingBytes = 0;

  /** `tag` is written before every line. */
  constructor(sink: Sink, tag = "", longest = LONGEST) {
    this.#sink = sink;
    this.#longest = longest;
    this.#tag = Buffer.from(tag);
  }

  write(bytes: Uint8Array): void {
    const end = bytes.lastIndexOf(NEWLINE) + 1;
    if (end > 0) {
      this.#pending.push(bytes.subarray(0, end));
      this.#flush();
    }
    if (end === bytes.length) return;
    this.#pending.push(bytes.subarray(end));
    this.#pendingBytes += bytes.length - end;
    if (this.#pendingBytes > this.#longest) this.#flush();
  }

  /** The task has ended. If output of other tasks follows, an incomplete last line is ended. */
  end(othersFollow: boolean): void {
    if (this.#pendingBytes === 0) return;
    if (othersFollow) this.#pending.push(Uint8Array.of(NEWLINE));
    this.#flush();
  }

  #flush(): void {
    const bytes = Buffer.concat(this.#pending);
    this.#pending = [];
    this.#pendingBytes = 0;
    this.#sink.write(this.#tag.length === 0 ? bytes : this.#tagged(bytes));
  }

  #tagged(bytes: Buffer): Buffer {
    const parts: Buffer[] = [];
    let from = 0;
    while (from < bytes.length) {
      const newline = bytes.indexOf(NEWLINE, from);
      const to = newline < 0 ? bytes.length : newline + 1;
      parts.push(this.#tag, bytes.subarray(from, to));
      from = to;
    }
    return Buffer.concat(parts);
  }
}
