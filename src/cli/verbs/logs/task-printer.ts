/** Puts the output of one attempt where it belongs: each stream to its own, gaps marked on standard error. */
import { isUtf8 } from "node:buffer";
import { formatSize } from "../../../base/format.js";
import type { OutputStream } from "../../../model/outcome.js";
import type { OutputPiece } from "../../../model/store.js";
import { LineWriter, type Sink } from "../../lib/line-writer.js";
import { printNotice } from "../../lib/print.js";

export interface PrintOptions {
  /** Only this one. */
  readonly stream?: OutputStream;
  /** `JOB.TASK<tab>` before every line. */
  readonly tag: boolean;
  /** Lines of several tasks come together, so they are kept whole. */
  readonly multipleTasks: boolean;
  /** Each piece as a line of JSON on standard output, gaps too. */
  readonly json?: boolean;
}

export class TaskPrinter {
  readonly #name: string;
  readonly #options: PrintOptions;
  readonly #writers: Readonly<Record<OutputStream, LineWriter>> | undefined;
  #position = 0;

  /** `name` is JOB.TASK. */
  constructor(name: string, options: PrintOptions) {
    this.#name = name;
    this.#options = options;
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
      printJsonLine({ task: this.#name, stream, offset, bytes: readable(bytes) });
      return;
    }
    const sink: Sink = this.#writers?.[stream] ?? (stream === "stdout" ? process.stdout : process.stderr);
    sink.write(bytes);
  }

  /** `outputEnd`: how much the task wrote, where it has ended. */
  end(outputEnd = this.#position): void {
    this.#gapTo(outputEnd);
    for (const writer of Object.values(this.#writers ?? {})) writer.end(this.#options.multipleTasks);
  }

  /** Offsets count both streams, so a jump is what was not kept, whichever stream it was of. */
  #gapTo(offset: number): void {
    if (offset <= this.#position) return;
    if (this.#options.json === true) {
      printJsonLine({ task: this.#name, offset: this.#position, missing: offset - this.#position });
      this.#position = offset;
      return;
    }
    for (const writer of Object.values(this.#writers ?? {})) writer.end(true);
    printNotice(`[${this.#name}: ${formatSize(offset - this.#position)} of output were not kept here, see --output-cap]`);
    this.#position = offset;
  }
}

const printJsonLine = (line: object): void => void process.stdout.write(`${JSON.stringify(line)}\n`);

/** As in every answer: text where it is UTF-8. */
function readable(bytes: Uint8Array): string | { readonly base64: string } {
  return isUtf8(bytes) ? Buffer.from(bytes).toString() : { base64: Buffer.from(bytes).toString("base64") };
}
