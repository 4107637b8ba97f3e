/** The form of a record, described in records.ts. */
import { crc32 } from "./crc32.js";

export const RECORD_HEADER = 12;
export const RECORD_MAGIC = 0x72424cc5;
export const DEFAULT_MAX_PAYLOAD = 64 * 1024 * 1024;

export type DamageReason = "cut off" | "bad checksum" | "bad length" | "no record";

export interface Damage {
  readonly at: number;
  readonly bytes: number;
  readonly reason: DamageReason;
}

/** Writes the header of a record whose payload already stands at `at + RECORD_HEADER`. Returns where the record ends. */
export function writeRecordHeader(buffer: Buffer, at: number, length: number): number {
  const payload = at + RECORD_HEADER;
  buffer.writeUInt32LE(RECORD_MAGIC, at);
  buffer.writeUInt32LE(length, at + 4);
  buffer.writeUInt32LE(crc32(buffer, payload, payload + length, crc32(buffer, at + 4, at + 8)), at + 8);
  return payload + length;
}

/** One buffer with a record for each payload, so that many are written at once. */
export function encodeRecords(payloads: readonly Uint8Array[]): Buffer {
  let size = 0;
  for (const payload of payloads) size += RECORD_HEADER + payload.length;
  const buffer = Buffer.allocUnsafe(size);
  let at = 0;
  for (const payload of payloads) {
    buffer.set(payload, at + RECORD_HEADER);
    at = writeRecordHeader(buffer, at, payload.length);
  }
  return buffer;
}
