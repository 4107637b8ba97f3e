import type { Attempt, JobId, TaskIndex } from "../../src/model/ids.js";
import type { OutputStream, TaskResult } from "../../src/model/outcome.js";
import type { OutputChunk } from "../../src/model/store.js";
import type { OutputPage, OutputPiece } from "../../src/model/store-reads.js";

export interface OutputOptions {
  readonly attempt?: Attempt;
  readonly from: number;
  readonly limit: number;
  readonly stream?: OutputStream;
}

/** Every byte of output as a list of pieces, one list an attempt. */
export class ModelOutput {
  readonly #attempts = new Map<string, OutputPiece[]>();

  append(chunks: readonly OutputChunk[]): void {
    for (const { job, index, attempt, stream, offset, bytes } of chunks) {
      const known = Math.max(0, Math.min(bytes.length, this.end(job, index, attempt) - offset));
      if (known === bytes.length) continue;
      const key = `${job}.${index}.${attempt}`;
      const pieces = this.#attempts.get(key) ?? [];
      pieces.push({ stream, offset: offset + known, bytes: new Uint8Array(bytes.subarray(known)) });
      this.#attempts.set(key, pieces);
    }
  }

  /** What is stored with a result is all of its attempt's output. */
  keepWithResult(job: JobId, { index, attempt, output }: TaskResult): void {
    if (output === undefined) return;
    this.#attempts.delete(`${job}.${index}.${attempt}`);
    for (const { stream, bytes } of output)
      this.append([{ job, index, attempt, stream, offset: this.end(job, index, attempt), bytes }]);
  }

  end(job: JobId, index: TaskIndex, attempt: Attempt): number {
    const last = this.#pieces(job, index, attempt).at(-1);
    return last === undefined ? 0 : last.offset + last.bytes.length;
  }

  read(job: JobId, index: TaskIndex, options: OutputOptions): OutputPage {
    const { from, limit, stream } = options;
    const attempt = options.attempt ?? this.latest(job, index);
    const pieces: { stream: OutputStream; offset: number; bytes: number[] }[] = [];
    let room = limit;
    // Byte by byte: slow and plain.
    for (const piece of this.#pieces(job, index, attempt)) {
      for (const [at, byte] of piece.bytes.entries()) {
        const offset = piece.offset + at;
        if (offset < from) continue;
        if (room === 0) return { pieces: finished(pieces), next: continuation(pieces) };
        if (stream !== undefined && piece.stream !== stream) continue;
        const last = pieces.at(-1);
        if (last?.stream === piece.stream && last.offset + last.bytes.length === offset) last.bytes.push(byte);
        else pieces.push({ stream: piece.stream, offset, bytes: [byte] });
        room--;
      }
    }
    return { pieces: finished(pieces) };
  }

  remove(job: JobId): void {
    for (const { index, attempt } of this.attempts(job)) this.#attempts.delete(`${job}.${index}.${attempt}`);
  }

  /** The attempts of a job that have any. */
  attempts(job: JobId): { readonly index: TaskIndex; readonly attempt: Attempt }[] {
    const keys = [...this.#attempts.keys()].map((key) => key.split(".").map(Number));
    return keys.flatMap(([of, index = 0, attempt = 0]) => (of === job ? [{ index, attempt }] : []));
  }

  /** The latest attempt of a task with any, or 0. */
  latest(job: JobId, index: TaskIndex): Attempt {
    const attempts = this.attempts(job).filter((one) => one.index === index);
    return Math.max(0, ...attempts.map(({ attempt }) => attempt));
  }

  #pieces(job: JobId, index: TaskIndex, attempt: Attempt): OutputPiece[] {
    return this.#attempts.get(`${job}.${index}.${attempt}`) ?? [];
  }
}

type Draft = { stream: OutputStream; offset: number; bytes: number[] };

const finished = (pieces: readonly Draft[]): OutputPiece[] =>
  pieces.map(({ stream, offset, bytes }) => ({ stream, offset, bytes: Uint8Array.from(bytes) }));

function continuation(pieces: readonly Draft[]): number {
  const last = pieces.at(-1);
  return last === undefined ? 0 : last.offset + last.bytes.length;
}
