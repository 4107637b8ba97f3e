/**
 * Results as rows, in both engines. The small output of an attempt is one value: varints (the number of parts, then
 * each part's length * 2 + stream), then the bytes.
 */

import { VarintReader, varintSize, writeVarint } from "../base/files/records.js";
import { END_STATES } from "../model/job.js";
import type { OutputStream, SmallOutput, TaskEnd, TaskResult } from "../model/outcome.js";
import type { OutputOptions, OutputPage, OutputPiece } from "../model/store.js";

/** About so many rows of removed jobs are deleted in one batch, so that other writes do not wait for long. */
export const REMOVED_IN_BATCH = 10_000;

/** How a task ended, by the number that the tables have for it. */

export const stateNumber = (state: TaskEnd): number => END_STATES.indexOf(state);

export interface ResultRow {
  readonly index: number;
  readonly attempt: number;
  readonly state: number;
  readonly worker: string;
  readonly started: number;
  readonly ended: number;
  readonly outputBytes: number;
  readonly code: number | null;
  readonly signal: string | null;
  readonly timedOut: number | boolean | null;
  readonly error: string | null;
  readonly cpuMs: number | null;
  readonly peakMemory: number | null;
  /** Only if requested. */
  readonly output?: Uint8Array | null;
  readonly valueBytes: number | null;
  readonly value?: Uint8Array | null;
}

export function resultFrom(row: ResultRow): TaskResult {
  const { code, signal, timedOut, error, cpuMs, peakMemory, output, valueBytes, value, state, ...rest } = row;
  return {
    ...rest,
    state: END_STATES[state] ?? "failed",
    ...(code === null ? {} : { code }),
    ...(signal === null ? {} : { signal }),
    ...(timedOut === null ? {} : { timedOut: Boolean(timedOut) }),
    ...(error === null ? {} : { error }),
    ...(output == null ? {} : { output: decodeSmallOutput(withoutBuffer(output)) }),
    ...(valueBytes === null ? {} : { valueBytes }),
    ...(value == null ? {} : { value: withoutBuffer(value) }),
    ...(cpuMs === null ? {} : { cpuMs }),
    ...(peakMemory === null ? {} : { peakMemory }),
  };
}

/** A driver may give a Buffer, which is a view of all that it received. */
const withoutBuffer = (bytes: Uint8Array): Uint8Array => (Buffer.isBuffer(bytes) ? new Uint8Array(bytes) : bytes);

/** A page of output as it is read: pieces in order of offset, neighbours of one stream joined. */
export class OutputPageBuilder {
  at: number;
  /** Less was taken of a row than there was. */
  truncated = false;
  #bytesLeft: number;
  readonly #wanted: OutputStream | undefined;
  readonly #pieces: { stream: OutputStream; offset: number; end: number; parts: Uint8Array[] }[] = [];

  constructor({ from, limit, stream }: OutputOptions) {
    this.at = from;
    this.#bytesLeft = Math.max(1, limit);
    this.#wanted = stream;
  }

  get full(): boolean {
    return this.#bytesLeft === 0;
  }

  /** Adds bytes that begin at this offset; bytes before the page, or in it already, are skipped. */
  take(stream: OutputStream, offset: number, bytes: Uint8Array): void {
    const fresh = bytes.subarray(Math.max(0, this.at - offset));
    if (fresh.length === 0) return;
    const start = Math.max(offset, this.at);
    if (this.#wanted !== undefined && stream !== this.#wanted) {
      this.at = start + fresh.length;
      return;
    }
    const part = fresh.subarray(0, this.#bytesLeft);
    this.truncated = part.length < fresh.length;
    this.at = start + part.length;
    this.#bytesLeft -= part.length;
    const last = this.#pieces.at(-1);
    if (last?.stream === stream && last.end === start) {
      last.parts.push(part);
      last.end = this.at;
    } else this.#pieces.push({ stream, offset: start, end: this.at, parts: [part] });
  }

  get pieces(): OutputPiece[] {
    return this.#pieces.map(({ stream, offset, parts }) => ({
      stream,
      offset,
      bytes: new Uint8Array(Buffer.concat(parts)),
    }));
  }
}

const headOf = ({ stream, bytes }: SmallOutput): number => bytes.length * 2 + (stream === "stdout" ? 0 : 1);

export function encodeSmallOutput(parts: readonly SmallOutput[]): Uint8Array {
  let size = varintSize(parts.length);
  for (const part of parts) size += varintSize(headOf(part)) + part.bytes.length;
  const value = new Uint8Array(size);
  let at = writeVarint(value, 0, parts.length);
  for (const part of parts) at = writeVarint(value, at, headOf(part));
  for (const { bytes } of parts) {
    value.set(bytes, at);
    at += bytes.length;
  }
  return value;
}

/** The results with copied bytes: output and values are often views into large receive buffers. */
export function withOwnBytes(results: readonly TaskResult[]): readonly TaskResult[] {
  if (results.every(({ output, value }) => output === undefined && value === undefined)) return results;
  return results.map((result) => {
    const output = result.output?.map(({ stream, bytes }) => ({ stream, bytes: new Uint8Array(bytes) }));
    const value = result.value && new Uint8Array(result.value);
    return { ...result, ...(output && { output }), ...(value && { value }) };
  });
}

/** The parts; their bytes are views of the value. */
function decodeSmallOutput(value: Uint8Array): SmallOutput[] {
  const numbers = new VarintReader(value);
  const heads = Array.from({ length: numbers.next() }, () => numbers.next());
  let at = numbers.at;
  return heads.map((head) => {
    const bytes = value.subarray(at, at + (head >>> 1));
    at += bytes.length;
    return { stream: head % 2 === 0 ? "stdout" : "stderr", bytes };
  });
}

export function pageOfSmallOutput(value: Uint8Array, options: OutputOptions): OutputPage {
  const page = new OutputPageBuilder(options);
  let offset = 0;
  for (const { stream, bytes } of decodeSmallOutput(value)) {
    if (!page.full) page.take(stream, offset, bytes);
    offset += bytes.length;
  }
  return page.at < offset ? { pieces: page.pieces, next: page.at } : { pieces: page.pieces };
}
