/**
 * An append-only file of checksummed records. All numbers are little-endian.
 *
 *   magic    4 bytes  c5 4c 42 72, which no UTF-8 text contains
 *   length   u32      bytes of payload
 *   checksum u32      CRC-32 over the length and the payload
 *   payload
 *
 * A scan reads the file in bounded chunks. At a damaged record it tries first the position where, by the damaged header, the next
 * one begins, then the next magic whose checksum is right. So a flipped bit costs the record it hit and no other. Skipped bytes are
 * reported once per gap. The end of good data is the end of the last good record: a writer truncates the file there before it
 * appends, so that a record cut off by a crash never stands before a good one.
 *
 * A payload may itself contain a whole record. It is taken for one only where its enclosing record is damaged.
 */
import * as fs from "node:fs";
import { type Damage, type DamageReason, DEFAULT_MAX_PAYLOAD, RECORD_HEADER } from "./record-format.js";
import { RecordWindow } from "./record-window.js";

export * from "./record-format.js";

export interface ScanVisitor {
  /** The payload's bytes may be reused after the call: copy what is kept. Returning false ends the scan. */
  record(at: number, payload: Buffer): boolean | undefined;
  damage?(damage: Damage): void;
}

export interface ScanOptions {
  readonly from?: number;
  readonly to?: number;
  /** A length above this is taken for damage. */
  readonly maxPayload?: number;
}

export interface ScanEnd {
  /** Where the last good record ends; `from` where there was none. */
  readonly goodEnd: number;
  /** Where the scan was to end: `to`, or the size of the file. */
  readonly size: number;
}

export function scanRecords(fd: number, visitor: ScanVisitor, options: ScanOptions = {}): ScanEnd {
  const from = options.from ?? 0;
  const size = Math.max(from, Math.min(options.to ?? Number.POSITIVE_INFINITY, fs.fstatSync(fd).size));
  const window = new RecordWindow(fd, size, options.maxPayload ?? DEFAULT_MAX_PAYLOAD, size - from);
  let at = from;
  let goodEnd = from;
  let skippedFrom = -1;
  let reason: DamageReason = "no record";

  while (at < size) {
    const found = window.check(at);
    if (found.good) {
      if (skippedFrom >= 0) {
        // A record that runs past the end is no cut where others follow: its length is wrong.
        if (reason === "cut off") reason = "bad length";
        visitor.damage?.({ at: skippedFrom, bytes: at - skippedFrom, reason });
        skippedFrom = -1;
      }
      goodEnd = at + RECORD_HEADER + found.length;
      if (visitor.record(at, window.payload(at, found.length)) === false) return { goodEnd, size };
      at = goodEnd;
      continue;
    }
    if (skippedFrom < 0) {
      skippedFrom = at;
      reason = found.reason;
      if (reason === "bad checksum") {
        const next = at + RECORD_HEADER + found.length;
        if (next === size || window.check(next).good) {
          at = next;
          continue;
        }
      }
    }
    at = window.findMagic(at + 1);
  }
  if (skippedFrom >= 0) visitor.damage?.({ at: skippedFrom, bytes: size - skippedFrom, reason });
  return { goodEnd, size };
}
