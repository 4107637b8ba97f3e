/**
 * Reading an attempt's output through its extents, a bounded page at a time. Pieces come in order of offset, neighbours
 * of one stream joined. Every offset passed over is named in a gap: `not stored` where it was never stored (past the cap),
 * `damaged` where it was and cannot be read any more.
 */
import { scanRecords } from "../../base/files/records.js";
import type { Attempt, TaskIndex } from "../../model/ids.js";
import type { OutputStream } from "../../model/outcome.js";
import type { OutputOptions, OutputPiece } from "../../model/store.js";
import { MAX_CHUNK_PAYLOAD, readChunk, trimmed } from "./chunk.js";
import type { Extent } from "./extents.js";

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
  /** Where the next page begins; absent where nothing more is stored. */
  readonly next?: number;
}

export type ReadOptions = Omit<OutputOptions, "attempt">;

/** A page ends after reading this much, however little of it was asked for. */
const MAX_READ_BYTES = 8 * 1024 * 1024;

/** Gives the descriptor of a segment, or why there is none. */
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
    let found = typeof fd === "string" ? fd : "other records stand in its place";
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
