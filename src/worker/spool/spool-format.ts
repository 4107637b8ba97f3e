/**
 * The format of the file of spooled results. A record's payload begins with its kind:
 *
 *   1 entry    number, length of the key, key (UTF-8), result
 *   2 settled  the numbers of entries that were acknowledged, as differences
 *
 * All numbers are varints. Entry numbers rise and are never used twice.
 */
import { LaboroError } from "../../base/errors.js";
import {
  encodeVarints,
  RECORD_HEADER,
  scanRecords,
  VarintReader,
  varintSize,
  writeRecordHeader,
  writeVarint,
} from "../../base/files/records.js";

interface SpooledResult {
  readonly number: number;
  readonly key: string;
  readonly payload: Uint8Array;
}

export interface SpoolDamage {
  readonly at: number;
  readonly bytes: number;
  readonly reason: string;
}

export interface SpoolEntry extends SpooledResult {
  state: "waiting" | "writing" | "written" | "settled";
}

/** The approximate size of an entry in the file. */
export const entrySize = (entry: SpooledResult): number => RECORD_HEADER + 8 + entry.key.length + entry.payload.length;

/** One buffer with a record for each entry, and one for the numbers that were settled, if any. */
export function encodeBatch(entries: readonly SpooledResult[], settled: readonly number[]): Buffer {
  const last = settled.length > 0 ? encodeSettled(settled) : undefined;
  let size = last === undefined ? 0 : RECORD_HEADER + last.length;
  for (const { number, key, payload } of entries) {
    const keyBytes = Buffer.byteLength(key);
    size += RECORD_HEADER + 1 + varintSize(number) + varintSize(keyBytes) + keyBytes + payload.length;
  }
  const buffer = Buffer.allocUnsafe(size);
  let at = 0;
  for (const { number, key, payload } of entries) {
    const from = at + RECORD_HEADER;
    buffer[from] = 1;
    let next = writeVarint(buffer, from + 1, number);
    next = writeVarint(buffer, next, Buffer.byteLength(key));
    next += buffer.write(key, next);
    buffer.set(payload, next);
    at = writeRecordHeader(buffer, at, next + payload.length - from);
  }
  if (last !== undefined) {
    buffer.set(last, at + RECORD_HEADER);
    writeRecordHeader(buffer, at, last.length);
  }
  return buffer;
}

function encodeSettled(numbers: readonly number[]): Uint8Array {
  const values = [2];
  let before = 0;
  for (const number of numbers.toSorted((a, b) => a - b)) {
    values.push(number - before);
    before = number;
  }
  return encodeVarints(values);
}

function decodeEntry(payload: Buffer): SpooledResult {
  const numbers = new VarintReader(payload, 1);
  const number = numbers.next();
  const keyBytes = numbers.next();
  const from = numbers.at + keyBytes;
  if (from > payload.length) throw new LaboroError("LABORO_DATA_CORRUPT", "a key is cut off");
  return { number, key: payload.toString("utf8", numbers.at, from), payload: new Uint8Array(payload.subarray(from)) };
}

interface SpoolContents {
  /** What was not acknowledged, oldest first. */
  readonly results: SpooledResult[];
  readonly damage: SpoolDamage[];
  readonly lastNumber: number;
  /** The position of the next record. */
  readonly end: number;
}

/** Reads the whole file. Only entries without a settled record so far are held in memory. */
export function readSpool(fd: number): SpoolContents {
  const results = new Map<number, SpooledResult>();
  const damage: SpoolDamage[] = [];
  let lastNumber = 0;
  const record = (at: number, payload: Buffer): boolean => {
    try {
      if (payload[0] === 1) {
        const entry = decodeEntry(payload);
        results.set(entry.number, entry);
        lastNumber = Math.max(lastNumber, entry.number);
      } else if (payload[0] === 2) {
        const differences = new VarintReader(payload, 1);
        for (let number = 0; !differences.done; ) {
          number += differences.next();
          results.delete(number);
          lastNumber = Math.max(lastNumber, number);
        }
      } else {
        damage.push({ at, bytes: payload.length, reason: `a record of the unknown kind ${payload[0]}` });
      }
    } catch (cause) {
      if (!(cause instanceof LaboroError)) throw cause;
      damage.push({ at, bytes: payload.length, reason: cause.message });
    }
    return true;
  };
  const { goodEnd } = scanRecords(fd, { record, damage: (one) => damage.push(one) });
  return { results: [...results.values()], damage, lastNumber, end: goodEnd };
}
