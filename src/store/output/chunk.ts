/**
 * One stored chunk of output, and its form in a record of a segment: the stream as one byte, then task index, attempt and
 * offset as varints, then the bytes themselves. One without bytes says that what stands before it of this attempt does not count.
 *
 * The offset counts the attempt's output with both streams in one, in order of arrival. So one number says how much of
 * an attempt is stored, and reading by offset gives the streams interleaved as they came.
 */

import { badInput, LaboroError } from "../../base/errors.js";
import { RECORD_HEADER, writeRecordHeader } from "../../base/files/records.js";
import { VarintReader, varintSize, writeVarint } from "../../base/files/varint.js";
import type { Attempt, TaskIndex } from "../../model/ids.js";
import type { OutputChunk } from "../../model/store.js";

/** A chunk as a segment has it: the job is the name of the directory. */
export type StoredChunk = Omit<OutputChunk, "job">;

/** Larger chunks are stored as several: a reader and a repair never need more than this at once. */
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

/** Writes the chunk's record at `at` and says where it ends. */
export function writeChunk(buffer: Buffer, at: number, chunk: StoredChunk): number {
  const payload = at + RECORD_HEADER;
  buffer[payload] = chunk.stream === "stdout" ? 1 : 2;
  let next = writeVarint(buffer, payload + 1, chunk.index);
  next = writeVarint(buffer, next, chunk.attempt);
  next = writeVarint(buffer, next, chunk.offset);
  buffer.set(chunk.bytes, next);
  return writeRecordHeader(buffer, at, next + chunk.bytes.length - payload);
}

/** The chunk of a record's payload; its bytes are a view. Undefined where the payload has another form. */
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
