/**
 * The segments of one job, and the extents of its attempts. Records are appended to the newest segment until it is
 * full. The extents of an attempt are in memory from its first chunk to its release. After a start, `recover` reads the
 * segments on disk once and rebuilds all extents. If a job is appended to without that, it begins a new segment, so
 * that nothing is written after a record cut off by a crash.
 *
 * Reading an attempt's output through its extents, a bounded page at a time. Pieces come in order of offset, neighbours
 * of one stream joined. A gap names skipped offsets: `not stored` (beyond the cap), or `damaged` on disk.
 */
import * as fs from "node:fs";
import { join } from "node:path";
import { type Damage, RECORD_HEADER, scanRecords } from "../../base/files/records.js";
import type { Attempt, TaskIndex } from "../../model/ids.js";
import type { OutputStream } from "../../model/outcome.js";
import type { OutputOptions, OutputPiece } from "../../model/store-reads.js";
import {
  attemptKey,
  type Extent,
  Extents,
  MAX_CHUNK,
  MAX_CHUNK_PAYLOAD,
  readChunk,
  type StoredChunk,
  trimmed,
} from "./segment-files.js";

export interface SegmentDamage extends Damage {
  readonly segment: number;
}

export class JobSegments {
  readonly directory: string;
  readonly attempts = new Map<number, Extents>();
  /** The segment that is appended to, and its size. */
  segment = 0;
  size = 0;
  /** All segments together. */
  bytes = 0;
  /** Whether the directory is there. */
  directoryExists = false;

  constructor(directory: string) {
    this.directory = directory;
  }

  path(segment: number): string {
    return join(this.directory, `${segment}.seg`);
  }

  /** Lists the segments on disk, without reading them. */
  loadSizes(): void {
    const segments = this.list();
    this.directoryExists = true;
    this.bytes = 0;
    for (const segment of segments) this.bytes += fs.statSync(this.path(segment)).size;
    this.segment = (segments.at(-1) ?? -1) + 1;
    this.size = 0;
  }

  /** The numbers of the segments on disk, oldest first. */
  list(): number[] {
    const numbers: number[] = [];
    for (const name of fs.readdirSync(this.directory)) {
      const number = /^(\d+)\.seg$/.exec(name)?.[1];
      if (number !== undefined) numbers.push(Number(number));
    }
    return numbers.sort((a, b) => a - b);
  }

  /** Reads all segments, truncates the newest after its last good record, and continues there. */
  recover(open: (path: string) => number): readonly SegmentDamage[] {
    const damages: SegmentDamage[] = [];
    const segments = this.list();
    this.attempts.clear();
    this.loadSizes();
    for (const segment of segments) {
      const fd = open(this.path(segment));
      const { goodEnd, size } = scanRecords(
        fd,
        {
          record: (at, payload) => {
            this.#recoverChunk(segment, at, payload, damages);
            return true;
          },
          damage: (damage) => {
            damages.push({ ...damage, segment });
          },
        },
        { maxPayload: MAX_CHUNK_PAYLOAD },
      );
      if (segment === segments.at(-1)) {
        if (goodEnd < size) fs.ftruncateSync(fd, goodEnd);
        this.bytes -= size - goodEnd;
        this.segment = segment;
        this.size = goodEnd;
      }
    }
    return damages;
  }

  /** The parts of these chunks that are not stored yet: in order, of bounded size. */
  newParts(chunks: readonly StoredChunk[]): StoredChunk[] {
    const ends = new Map<number, number>();
    const parts: StoredChunk[] = [];
    for (const chunk of chunks) {
      const key = attemptKey(chunk.index, chunk.attempt);
      const end = chunk.offset + chunk.bytes.length;
      const stored = ends.get(key) ?? this.attempts.get(key)?.end ?? 0;
      if (chunk.bytes.length === 0 || end <= stored) continue;
      let part = trimmed(chunk, stored);
      while (part.bytes.length > MAX_CHUNK) {
        parts.push({ ...part, bytes: part.bytes.subarray(0, MAX_CHUNK) });
        part = trimmed(part, part.offset + MAX_CHUNK);
      }
      parts.push(part);
      ends.set(key, end);
    }
    return parts;
  }

  /** Adds a record of the newest segment at this position. */
  addExtent(chunk: StoredChunk, position: number, length: number): void {
    const { offset } = chunk;
    const end = offset + chunk.bytes.length;
    this.#extentsOf(chunk).add({ segment: this.segment, position, length, offset, end });
  }

  #extentsOf(chunk: StoredChunk): Extents {
    const key = attemptKey(chunk.index, chunk.attempt);
    let extents = this.attempts.get(key);
    if (extents === undefined) {
      extents = new Extents();
      this.attempts.set(key, extents);
    }
    return extents;
  }

  #recoverChunk(segment: number, at: number, payload: Buffer, damages: readonly SegmentDamage[]): void {
    const chunk = readChunk(payload);
    if (chunk === undefined) return;
    if (chunk.bytes.length === 0) {
      this.attempts.delete(attemptKey(chunk.index, chunk.attempt));
      return;
    }
    const extents = this.#extentsOf(chunk);
    const end = chunk.offset + chunk.bytes.length;
    if (end <= extents.end) return;
    if (chunk.offset > extents.end) {
      // Offsets are missing and damage lies between them. An extent over the damage lets readers report it.
      const damage = damages.at(-1);
      if (damage !== undefined && isBehind(damage, extents.list.at(-1))) {
        const { segment: where, at: position, bytes: length } = damage;
        extents.add({ segment: where, position, length, offset: extents.end, end: chunk.offset });
      }
    }
    const offset = Math.max(chunk.offset, extents.end);
    extents.add({ segment, position: at, length: RECORD_HEADER + payload.length, offset, end });
  }
}

const isBehind = (damage: SegmentDamage, extent: Extent | undefined): boolean =>
  extent === undefined ||
  damage.segment > extent.segment ||
  (damage.segment === extent.segment && damage.at >= extent.position + extent.length);

export interface OutputGap {
  readonly offset: number;
  readonly length: number;
  readonly reason: "not stored" | "damaged";
  /** What was found in its place: one line for people. */
  readonly detail?: string;
}

export interface SegmentOutputPage {
  readonly pieces: readonly OutputPiece[];
  readonly gaps: readonly OutputGap[];
  /** The start of the next page; absent if nothing more is stored. */
  readonly next?: number;
}

export type ReadOptions = Omit<OutputOptions, "attempt">;

/** The most bytes that are read for one page, even if few of them belong to it. */
const MAX_READ_BYTES = 8 * 1024 * 1024;

/** Returns the descriptor of a segment, or why there is none. */
type OpenSegment = (segment: number) => number | string;

export function readOutput(
  attempt: { readonly index: TaskIndex; readonly attempt: Attempt },
  extents: readonly Extent[],
  options: ReadOptions,
  open: OpenSegment,
): SegmentOutputPage {
  const page = new PageBuilder(options);
  let budget = MAX_READ_BYTES;
  for (let at = firstBeyond(extents, options.from); at < extents.length && !page.full && budget > 0; at++) {
    const extent = extents[at];
    if (extent === undefined) break;
    page.skipTo(extent.offset, "not stored");
    const fd = open(extent.segment);
    let found = typeof fd === "string" ? fd : "other records are in its place";
    if (typeof fd === "number") {
      scanRecords(
        fd,
        {
          record: (_at, payload) => {
            const chunk = readChunk(payload);
            if (chunk === undefined || chunk.index !== attempt.index || chunk.attempt !== attempt.attempt) return true;
            if (chunk.offset + chunk.bytes.length <= page.at || chunk.offset >= extent.end) return true;
            page.skipTo(chunk.offset, "damaged", found);
            const { stream, bytes } = trimmed(chunk, page.at);
            page.take(stream, bytes);
            return !page.full;
          },
          damage: (damage) => {
            found = `${damage.reason} at ${damage.at} of segment ${extent.segment}`;
          },
        },
        { from: extent.position, to: extent.position + extent.length, maxPayload: MAX_CHUNK_PAYLOAD },
      );
    }
    if (!page.full) page.skipTo(extent.end, "damaged", found);
    budget -= extent.length;
  }
  const end = extents.at(-1)?.end ?? 0;
  const { pieces, gaps } = page.done();
  return page.at < end ? { pieces, gaps, next: page.at } : { pieces, gaps };
}

/** The first extent that reaches beyond this offset. */
function firstBeyond(extents: readonly Extent[], from: number): number {
  let low = 0;
  let high = extents.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((extents[middle]?.end ?? 0) > from) high = middle;
    else low = middle + 1;
  }
  return low;
}

class PageBuilder {
  at: number;
  #bytesLeft: number;
  readonly #wanted: OutputStream | undefined;
  readonly #gaps: OutputGap[] = [];
  readonly #pieces: { stream: OutputStream; offset: number; end: number; parts: Uint8Array[] }[] = [];

  constructor(options: ReadOptions) {
    this.at = options.from;
    this.#bytesLeft = Math.max(1, options.limit);
    this.#wanted = options.stream;
  }

  get full(): boolean {
    return this.#bytesLeft === 0;
  }

  skipTo(offset: number, reason: OutputGap["reason"], detail?: string): void {
    if (offset <= this.at) return;
    const gap = { offset: this.at, length: offset - this.at, reason };
    this.#gaps.push(detail === undefined || reason === "not stored" ? gap : { ...gap, detail });
    this.at = offset;
  }

  /** Copies as many of these bytes, which begin at `at`, as fit into the page. */
  take(stream: OutputStream, bytes: Uint8Array): void {
    if (this.#wanted !== undefined && stream !== this.#wanted) {
      this.at += bytes.length;
      return;
    }
    const part = Uint8Array.prototype.slice.call(bytes, 0, this.#bytesLeft);
    const last = this.#pieces.at(-1);
    const end = this.at + part.length;
    if (last?.stream === stream && last.end === this.at) {
      last.parts.push(part);
      last.end = end;
    } else {
      this.#pieces.push({ stream, offset: this.at, end, parts: [part] });
    }
    this.#bytesLeft -= part.length;
    this.at = end;
  }

  done(): { pieces: OutputPiece[]; gaps: OutputGap[] } {
    const pieces = this.#pieces.map(({ stream, offset, parts }) => ({ stream, offset, bytes: Buffer.concat(parts) }));
    return { pieces, gaps: this.#gaps };
  }
}
