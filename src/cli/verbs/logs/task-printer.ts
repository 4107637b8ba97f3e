/** Prints the output of one attempt: stdout and stderr separately, with a notice on standard error for a gap. */
import { formatSize } from "../../../base/format.js";
import type { OutputStream } from "../../../model/outcome.js";
import type { OutputPiece } from "../../../model/store.js";
import { LineWriter, type Sink } from "../../lib/line-writer.js";
import { bytesToJson, printLines, printNotice } from "../../lib/print.js";
import { EscapeFilter } from "../../lib/terminal/escape-filter.js";

export interface PrintOptions {
  /** Only this one. */
  readonly stream?: OutputStream;
  /** `JOB.TASK<tab>` before every line. */
  readonly tag: boolean;
  /** Lines of several tasks come together, so they are kept whole. */
  readonly multipleTasks: boolean;
  /** Each piece as a line of JSON on standard output, gaps too. */
  readonly json?: boolean;
  /** On a terminal, with all escape sequences. */
  readonly raw?: boolean;
}

export class TaskPrinter {
  readonly #name: string;
  readonly #options: PrintOptions;
  readonly #writers: Readonly<Record<OutputStream, LineWriter>> | undefined;
  readonly #filters: Readonly<Record<OutputStream, EscapeFilter | undefined>>;
  #position = 0;

  /** `name` is JOB.TASK. */
  constructor(name: string, options: PrintOptions) {
    this.#name = name;
    this.#options = options;
    const filterOf = (stream: OutputStream): EscapeFilter | undefined =>
      process[stream].isTTY && options.raw !== true ? new EscapeFilter() : undefined;
    this.#filters = { stdout: filterOf("stdout"), stderr: filterOf("stderr") };
    const tag = options.tag ? `${name}\t` : "";
    if (options.tag || options.multipleTasks) {
      this.#writers = { stdout: new LineWriter(process.stdout, tag), stderr: new LineWriter(process.stderr, tag) };
    }
  }

  /** Where the next piece should begin. */
  get position(): number {
    return this.#position;
  }

  print({ stream, offset, bytes }: OutputPiece): void {
    this.#gapTo(offset);
    this.#position = offset + bytes.length;
    if (this.#options.stream !== undefined && stream !== this.#options.stream) return;
    if (this.#options.json === true) {
      printJsonLine({ task: this.#name, stream, offset, bytes: bytesToJson(bytes) });
      return;
    }
    const filtered = this.#filters[stream]?.filter(bytes);
    this.#sink(stream).write(filtered === undefined ? bytes : Buffer.from(filtered));
  }

  #sink(stream: OutputStream): Sink {
    return this.#writers?.[stream] ?? process[stream];
  }

  /** `outputBytes`: how much the task wrote, if it has ended. */
  end(outputBytes = this.#position): void {
    this.#gapTo(outputBytes);
    this.#endPieces(this.#options.multipleTasks);
  }

  #endPieces(othersFollow: boolean): void {
    for (const stream of ["stdout", "stderr"] as const) {
      const rest = this.#filters[stream]?.end() ?? "";
      if (rest !== "") this.#sink(stream).write(Buffer.from(rest));
      this.#writers?.[stream].end(othersFollow);
    }
  }

  /** Offsets count both streams: a jump is output of either that was not stored. */
  #gapTo(offset: number): void {
    if (offset <= this.#position) return;
    if (this.#options.json === true) {
      printJsonLine({ task: this.#name, offset: this.#position, missing: offset - this.#position });
      this.#position = offset;
      return;
    }
    this.#endPieces(true);
    printNotice(
      `[${this.#name}: ${formatSize(offset - this.#position)} of output were not kept here, see --output-cap]`,
    );
    this.#position = offset;
  }
}

const printJsonLine = (line: object): void => printLines(JSON.stringify(line));
