/**
 * Writes output of tasks to standard output and standard error, byte for byte. On a terminal, escape sequences other
 * than text styles are removed. A write resolves when the stream accepts more, so that output does not accumulate in
 * memory when the reader is slow.
 */
import type { OutputStream } from "../../../model/outcome.js";
import { EscapeFilter } from "../terminal/escape-filter.js";

const NEWLINE = 10;

/** Where the output of one task goes. */
export interface TaskWriter {
  /** Writes do nothing any more. */
  readonly stopped: boolean;
  /** `offset`: position in the output of the attempt, both streams counted together. */
  write(stream: OutputStream, bytes: Uint8Array, offset: number): Promise<void>;
  /** Ends an incomplete last line, if it would mix with output that follows. */
  end?(): Promise<void>;
}

interface WriterOptions {
  /** Once it is aborted, writes do nothing and resolve at once. */
  readonly stop?: AbortSignal;
  /** Called before each write to a terminal, to remove a progress bar. */
  readonly clear?: () => void;
  /** Keep all escape sequences on a terminal. */
  readonly raw?: boolean;
}

export class OutputWriter {
  readonly #options: WriterOptions;
  /** On a terminal: the last line has not ended. */
  readonly #partialLine: Record<OutputStream, boolean> = { stdout: false, stderr: false };
  readonly #filters = { stdout: new EscapeFilter(), stderr: new EscapeFilter() };

  constructor(options: WriterOptions = {}) {
    this.#options = options;
  }

  get stopped(): boolean {
    return this.#options.stop?.aborted === true;
  }

  /** The last line on the terminal has not ended. */
  get isLineOpen(): boolean {
    return this.#partialLine.stdout || this.#partialLine.stderr;
  }

  async write(stream: OutputStream, bytes: Uint8Array): Promise<void> {
    if (this.stopped || bytes.length === 0) return;
    const { stop, clear, raw } = this.#options;
    if (process[stream].isTTY) clear?.();
    this.#partialLine[stream] = process[stream].isTTY && bytes.at(-1) !== NEWLINE;
    await new Promise<void>((resolve) => {
      const end = (): void => {
        stop?.removeEventListener("abort", end);
        resolve();
      };
      const shown = process[stream].isTTY && raw !== true ? this.#filters[stream].filter(bytes) : bytes;
      // `end` is also called after a failed write.
      if (process[stream].write(shown, end)) return end();
      stop?.addEventListener("abort", end);
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

/** Writes the output of one of several tasks in whole lines, with a tag before each. */
export class LineOutput implements TaskWriter {
  readonly #writer: OutputWriter;
  readonly #lines: Readonly<Record<OutputStream, LineWriter>>;
  #written: Promise<void> = Promise.resolve();

  constructor(writer: OutputWriter, tag: string) {
    this.#writer = writer;
    const lines = (stream: OutputStream): LineWriter => {
      const write = (bytes: Uint8Array): void => {
        this.#written = writer.write(stream, bytes);
      };
      return new LineWriter({ write }, tag);
    };
    this.#lines = { stdout: lines("stdout"), stderr: lines("stderr") };
  }

  get stopped(): boolean {
    return this.#writer.stopped;
  }

  write(stream: OutputStream, bytes: Uint8Array): Promise<void> {
    this.#lines[stream].write(bytes);
    return this.#written;
  }

  end(): Promise<void> {
    for (const writer of Object.values(this.#lines)) writer.end();
    return this.#written;
  }
}

interface Sink {
  write(bytes: Uint8Array): unknown;
}

/** A longer line is written in pieces, which may mix with the lines of other tasks. */
const LONGEST_LINE = 1024 * 1024;

/** Writes the output of one of several tasks in whole lines, so that lines of different tasks do not mix. */
export class LineWriter {
  readonly #sink: Sink;
  readonly #tag: Buffer;
  #pending: Uint8Array[] = [];
  #pendingBytes = 0;

  /** `tag` is written before every line. */
  constructor(sink: Sink, tag = "") {
    this.#sink = sink;
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
    if (this.#pendingBytes > LONGEST_LINE) this.#flush();
  }

  /** The task has ended: an incomplete last line is ended. */
  end(): void {
    if (this.#pendingBytes === 0) return;
    this.#pending.push(Uint8Array.of(NEWLINE));
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
