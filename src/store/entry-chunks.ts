/**
 * Entries are stored many to a row. A chunk is a run of entries, each a u32 (little-endian: length in the low 31 bits,
 * top bit set for bytes that are not text) and its bytes.
 */
import type { Entries } from "../model/job.js";
import type { Range } from "../model/ranges.js";
import type { Bytes } from "../model/recipe.js";
import type { EntryChunk, PackedEntries } from "../model/store.js";

const MAX_ENTRIES = 1000;
const MAX_BYTES = 256 * 1024;
const BINARY = 0x80000000;

/** The chunks may be transferred: those of packed entries are copied, because a commit may be tried again. */
export function chunkEntries(entries: Entries | PackedEntries): EntryChunk[] {
  if ("chunks" in entries) return entries.chunks.map((chunk) => ({ ...chunk, bytes: new Uint8Array(chunk.bytes) }));
  const chunks: EntryChunk[] = [];
  let first = 0;
  while (first < entries.length) {
    let size = 0;
    let next = first;
    for (; next < entries.length && next - first < MAX_ENTRIES; next++) {
      const more = 4 + byteLength(entries[next] ?? "");
      if (next > first && size + more > MAX_BYTES) break;
      size += more;
    }
    chunks.push({ first, last: next - 1, bytes: encode(entries, first, next, size) });
    first = next;
  }
  return chunks;
}

/** The entries of `range` among chunks that cover it. */
export function entriesWithin(chunks: readonly EntryChunk[], range: Range): Bytes[] {
  const found: Bytes[] = [];
  for (const chunk of chunks) {
    const bytes = Buffer.from(chunk.bytes.buffer, chunk.bytes.byteOffset, chunk.bytes.byteLength);
    let at = 0;
    for (let index = chunk.first; index <= chunk.last && index <= range.last; index++) {
      const head = bytes.readUInt32LE(at);
      const from = at + 4;
      at = from + (head & ~BINARY);
      if (index < range.first) continue;
      found.push(head & BINARY ? new Uint8Array(bytes.subarray(from, at)) : bytes.toString("utf8", from, at));
    }
  }
  return found;
}

const byteLength = (entry: Bytes): number => (typeof entry === "string" ? Buffer.byteLength(entry) : entry.length);

function encode(entries: Entries, first: number, next: number, size: number): Uint8Array {
  // Not from the pool: the buffer is transferred to the thread.
  const bytes = Buffer.allocUnsafeSlow(size);
  let at = 0;
  for (let index = first; index < next; index++) {
    const entry = entries[index] ?? "";
    const text = typeof entry === "string";
    const length = text ? bytes.write(entry, at + 4) : entry.length;
    if (!text) bytes.set(entry, at + 4);
    bytes.writeUInt32LE((text ? length : length | BINARY) >>> 0, at);
    at += 4 + length;
  }
  return bytes;
}
