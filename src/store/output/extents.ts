/**
 * Where an attempt's output is stored: a list of extents, in order of offset. An extent is a part of a segment together with the
 * offsets that it covers. It may contain records of other attempts, which a reader skips. Every offset it covers was stored there, so
 * what a reader does not find in it is damaged. Offsets covered by no extent were never stored.
 *
 * Neighbouring records share an extent up to a size that keeps reading from the middle cheap. A list that grows long all the
 * same (an attempt that trickles between others) is thinned by joining neighbours, which bounds both the memory of a
 * running attempt and the reference in a result row.
 *
 * The reference is varints: a form number, then for each extent: segment (as a difference), position (as a difference
 * within one segment), length, offsets left out before it, offsets covered.
 */

import { LaboroError } from "../../base/errors.js";
import { encodeVarints, VarintReader } from "../../base/files/varint.js";

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
      // Where little could be joined, trying again at once would cost on every chunk.
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

/** Every second extent joined to the one before it, where they are of one segment and leave no offsets out. */
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
