/**
 * A chunk of output as a record of a segment: the stream as one byte, then task index, attempt and offset as varints,
 * then the bytes. A record without bytes voids everything before it of this attempt. Offsets count both streams
 * together, in order of arrival. So one number says how much of an attempt is stored, and reading by offset interleaves
 * the streams as they were written.
 *
 * The place of an attempt's output: a list of extents, in order of offset. An extent is a part of a segment and the
 * offsets that it covers. Records of other attempts in it are skipped. Every offset that it covers was stored there, so
 * a missing one is damaged. Offsets outside of all extents were never stored. Neighbouring records share an extent up
 * to a size that keeps reading from the middle cheap. A long list (an attempt that writes little by little between
 * others) is thinned by joining neighbours. This bounds the memory of a running attempt and the reference in a result
 * row.
 *
 * The reference is varints: a form number, then for each extent: segment (as a difference), position (as a difference
 * within one segment), length, offsets omitted before it, offsets covered.
 */
import { badInput, LaboroError } from "../../base/errors.js";
import {
  encodeVarints,
  RECORD_HEADER,
  VarintReader,
  varintSize,
  writeRecordHeader,
  writeVarint,
} from "../../base/files/records.js";
import type { Attempt, TaskIndex } from "../../model/ids.js";
import type { OutputChunk } from "../../model/store.js";

/** A chunk as a segment has it: the job is the name of the directory. */
export type StoredChunk = Omit<OutputChunk, "job">;

/** Larger chunks are split, so that readers and repairs never need more memory than this. */
export const MAX_CHUNK = 1024 * 1024;
/** What a segment's record may hold: a chunk and the numbers before it. */
export const MAX_CHUNK_PAYLOAD = MAX_CHUNK + 32;

const MAX_INDEX = 2 ** 32;
const MAX_ATTEMPT = 2 ** 21;

/** Index and attempt as one number, which is a quicker key than a string. */
export function attemptKey(index: TaskIndex, attempt: Attempt): number {
  return attempt * MAX_INDEX + index;
}

export function checkChunk(chunk: StoredChunk): void {
  const { index, attempt, offset } = chunk;
  if (isCount(index, MAX_INDEX) && isCount(attempt, MAX_ATTEMPT) && isCount(offset, Number.MAX_SAFE_INTEGER / 2))
    return;
  throw badInput(
    `output with task index ${index}, attempt ${attempt}, offset ${offset}: not all are whole numbers in range`,
  );
}

const isCount = (value: number, below: number): boolean => Number.isInteger(value) && value >= 0 && value < below;

function payloadSize(chunk: StoredChunk): number {
  return 1 + varintSize(chunk.index) + varintSize(chunk.attempt) + varintSize(chunk.offset) + chunk.bytes.length;
}

export function recordSize(chunk: StoredChunk): number {
  return RECORD_HEADER + payloadSize(chunk);
}

/** Writes the chunk's record at `at`. Returns its end. */
export function writeChunk(buffer: Buffer, at: number, chunk: StoredChunk): number {
  const payload = at + RECORD_HEADER;
  buffer[payload] = chunk.stream === "stdout" ? 1 : 2;
  let next = writeVarint(buffer, payload + 1, chunk.index);
  next = writeVarint(buffer, next, chunk.attempt);
  next = writeVarint(buffer, next, chunk.offset);
  buffer.set(chunk.bytes, next);
  return writeRecordHeader(buffer, at, next + chunk.bytes.length - payload);
}

/** Decodes a record's payload; the bytes are a view. Undefined if the payload has another form. */
export function readChunk(payload: Buffer): StoredChunk | undefined {
  const stream = payload[0];
  if (stream !== 1 && stream !== 2) return undefined;
  try {
    const numbers = new VarintReader(payload, 1);
    const index = numbers.next();
    const attempt = numbers.next();
    const offset = numbers.next();
    const bytes = payload.subarray(numbers.at);
    return { stream: stream === 1 ? "stdout" : "stderr", index, attempt, offset, bytes };
  } catch (cause) {
    if (cause instanceof LaboroError) return undefined;
    throw cause;
  }
}

/** The part of a chunk from this offset on. */
export function trimmed(chunk: StoredChunk, from: number): StoredChunk {
  if (from <= chunk.offset) return chunk;
  const { index, attempt, stream } = chunk;
  return { index, attempt, stream, offset: from, bytes: chunk.bytes.subarray(from - chunk.offset) };
}

export interface Extent {
  readonly segment: number;
  readonly position: number;
  readonly length: number;
  readonly offset: number;
  readonly end: number;
}

const FORMAT = 1;
const JOIN_UP_TO = 256 * 1024;
const MAX_EXTENTS = 1024;

export class Extents {
  #list: Extent[] = [];
  #thinAt = MAX_EXTENTS;

  get list(): readonly Extent[] {
    return this.#list;
  }

  /** How much of the attempt is stored: the end of the last extent. */
  get end(): number {
    return this.#list.at(-1)?.end ?? 0;
  }

  add(extent: Extent): void {
    const last = this.#list.at(-1);
    if (last !== undefined && follows(last, extent) && last.length + extent.length <= JOIN_UP_TO) {
      this.#list[this.#list.length - 1] = joined(last, extent);
      return;
    }
    this.#list.push(extent);
    if (this.#list.length > this.#thinAt) {
      this.#list = thinned(this.#list);
      // If few extents could be joined, the next try must not come with every chunk.
      this.#thinAt = Math.max(MAX_EXTENTS, this.#list.length * 2);
    }
  }

  encode(): Uint8Array {
    const numbers = [FORMAT];
    let before: Extent = { segment: 0, position: 0, length: 0, offset: 0, end: 0 };
    for (const extent of this.#list) {
      const sameSegment = extent.segment === before.segment;
      numbers.push(
        extent.segment - before.segment,
        sameSegment ? extent.position - before.position - before.length : extent.position,
        extent.length,
        extent.offset - before.end,
        extent.end - extent.offset,
      );
      before = extent;
    }
    return encodeVarints(numbers);
  }
}

export function decodeReference(reference: Uint8Array): Extent[] {
  const numbers = new VarintReader(reference);
  const format = numbers.next();
  if (format !== FORMAT)
    throw new LaboroError("LABORO_DATA_NEWER", `an output reference has the unknown form ${format}`);
  const list: Extent[] = [];
  let before: Extent = { segment: 0, position: 0, length: 0, offset: 0, end: 0 };
  while (!numbers.done) {
    const segment = before.segment + numbers.next();
    const position = numbers.next() + (segment === before.segment ? before.position + before.length : 0);
    const length = numbers.next();
    const offset = before.end + numbers.next();
    const end = offset + numbers.next();
    before = { segment, position, length, offset, end };
    list.push(before);
  }
  return list;
}

const follows = (last: Extent, next: Extent): boolean =>
  last.segment === next.segment && last.position + last.length === next.position && last.end === next.offset;

const joined = (first: Extent, second: Extent): Extent => ({
  segment: first.segment,
  position: first.position,
  length: second.position + second.length - first.position,
  offset: first.offset,
  end: second.end,
});

/** Joins every second extent to the one before it, if they are of one segment and adjacent. */
function thinned(list: readonly Extent[]): Extent[] {
  const result: Extent[] = [];
  let joinable = false;
  for (const extent of list) {
    const last = result.at(-1);
    if (joinable && last !== undefined && last.segment === extent.segment && last.end === extent.offset) {
      result[result.length - 1] = joined(last, extent);
      joinable = false;
    } else {
      result.push(extent);
      joinable = true;
    }
  }
  return result;
}
