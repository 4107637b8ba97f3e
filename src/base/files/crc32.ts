import * as zlib from "node:zlib";

const TABLE = new Uint32Array(256);
for (let byte = 0; byte < 256; byte++) {
  let rest = byte;
  for (let bit = 0; bit < 8; bit++) rest = rest & 1 ? (rest >>> 1) ^ 0xedb88320 : rest >>> 1;
  TABLE[byte] = rest;
}

/** CRC-32 (as in zlib) of bytes[from, to), continuing from `before`; works in every Node. */
export function crc32ByTable(bytes: Uint8Array, from = 0, to = bytes.length, before = 0): number {
  let crc = ~before;
  for (let at = from; at < to; at++) {
    // In bounds by the loop and the mask; the fallbacks only satisfy the compiler.
    crc = (TABLE[(crc ^ (bytes[at] ?? 0)) & 0xff] ?? 0) ^ (crc >>> 8);
  }
  return ~crc >>> 0;
}

// Node has it from 20.15 on; older ones have only the table.
const native: ((bytes: Uint8Array, before?: number) => number) | undefined = (zlib as Partial<typeof zlib>).crc32;

/** Below this a call into zlib costs more than the table does. */
const SHORT = 64;

export function crc32(bytes: Uint8Array, from = 0, to = bytes.length, before = 0): number {
  if (native === undefined || to - from < SHORT) return crc32ByTable(bytes, from, to, before);
  return native(bytes.subarray(from, to), before);
}
