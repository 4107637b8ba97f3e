/**
 * The output of an attempt as bytes in memory and on disk: its blocks, and what another process needs to deliver them.
 *
 * A block is a range of the output in the worker's buffer: bytes in order of arrival, and runs that record their
 * stream. Successive writes of one stream share a run. A block is open while it takes bytes, and sealed when it is full
 * of bytes or of runs. Then it can be written to a slot of the spill file.
 *
 * In a slot it is one checksummed record: start and number of runs, each run (length * 2 + stream), all as varints,
 * then the bytes.
 */
import * as fs from "node:fs";
import { join } from "node:path";
import { errnoOf, LaboroError } from "../../base/errors.js";
import {
  encodeRecords,
  encodeVarints,
  RECORD_HEADER,
  scanRecords,
  VarintReader,
  varintSize,
  writeRecordHeader,
  writeVarint,
} from "../../base/files/records.js";
import type { OutputStream } from "../../model/outcome.js";

const MAX_RUNS = 4096;
const FIRST_BYTES = 256;
const NONE = Buffer.alloc(0);

/** The maximum size of a sealed block with this many bytes. */
export const slotBytes = (blockBytes: number): number => RECORD_HEADER + 16 + 4 * MAX_RUNS + blockBytes;

const bitOf = (stream: OutputStream): number => (stream === "stdout" ? 0 : 1);

export class Block {
  readonly start: number;
  readonly #limit: number;
  #runs: number[] = [];
  #bytes: Buffer;
  #length = 0;
  #lent = false;

  /** `spare` is used for the bytes, if it is given. */
  constructor(start: number, limit: number, spare: Buffer = NONE) {
    this.start = start;
    this.#limit = limit;
    this.#bytes = spare;
  }

  /** The memory of a block that is no longer needed, if it has full size and no view of it was returned. */
  get spare(): Buffer | undefined {
    return this.#lent || this.#bytes.length < this.#limit ? undefined : this.#bytes;
  }

  get length(): number {
    return this.#length;
  }

  get end(): number {
    return this.start + this.#length;
  }

  get full(): boolean {
    return this.#length >= this.#limit || this.#runs.length >= MAX_RUNS;
  }

  /** Appends as many of the bytes as fit, and returns how many. */
  append(stream: OutputStream, bytes: Uint8Array): number {
    const taken = Math.min(bytes.length, this.#limit - this.#length);
    this.#grow(taken);
    this.#bytes.set(taken < bytes.length ? bytes.subarray(0, taken) : bytes, this.#length);
    this.#length += taken;
    const last = this.#runs.length - 1;
    const run = this.#runs[last];
    if (run !== undefined && (run & 1) === bitOf(stream)) this.#runs[last] = run + taken * 2;
    else this.#runs.push(taken * 2 + bitOf(stream));
    return taken;
  }

  /** The run at this place of the list: its stream and length. */
  run(number: number): { readonly stream: OutputStream; readonly length: number } | undefined {
    const run = this.#runs[number];
    return run === undefined ? undefined : { stream: (run & 1) === 0 ? "stdout" : "stderr", length: run >>> 1 };
  }

  /** A view. It stays valid, as bytes in a block are never changed. */
  bytes(from: number, to: number): Uint8Array {
    this.#lent = true;
    return this.#bytes.subarray(from - this.start, to - this.start);
  }

  /** The block as one record; in `target`, if that is large enough. */
  encode(target?: Buffer): Buffer {
    let size = varintSize(this.start) + varintSize(this.#runs.length) + this.#length;
    for (const run of this.#runs) size += varintSize(run);
    const whole = RECORD_HEADER + size;
    const record =
      target === undefined || target.length < whole ? Buffer.allocUnsafe(whole) : target.subarray(0, whole);
    let at = writeVarint(record, RECORD_HEADER, this.start);
    at = writeVarint(record, at, this.#runs.length);
    for (const run of this.#runs) at = writeVarint(record, at, run);
    this.#bytes.copy(record, at, 0, this.#length);
    writeRecordHeader(record, 0, size);
    return record;
  }

  /** The block in a record's payload; it keeps a view of the payload. Throws LABORO_DATA_CORRUPT for an invalid one. */
  static decode(payload: Buffer): Block {
    const numbers = new VarintReader(payload);
    const start = numbers.next();
    const count = numbers.next();
    const block = new Block(start, Number.POSITIVE_INFINITY);
    for (let left = count; left > 0; left--) block.#runs.push(numbers.next());
    block.#bytes = payload.subarray(numbers.at);
    block.#length = block.#bytes.length;
    return block;
  }

  #grow(more: number): void {
    const needed = this.#length + more;
    if (needed <= this.#bytes.length) return;
    // Most tasks write a line or two: a block starts small and doubles.
    const size = Math.min(this.#limit, Math.max(needed, this.#bytes.length * 2, FIRST_BYTES));
    const larger = Buffer.allocUnsafeSlow(size);
    this.#bytes.copy(larger, 0, 0, this.#length);
    this.#bytes = larger;
  }
}

/**
 * A small ended output as bytes inside a spooled result: varints (format version, cap, written length, lost bytes),
 * then each block as its size and its record.
 */

interface PackedOutput {
  readonly cap: number;
  readonly end: number;
  readonly lost: number;
  readonly blocks: readonly Block[];
}

/** Of packed outputs and of indexes. */
const FORMAT_VERSION = 1;

export function packOutput(output: PackedOutput): Uint8Array {
  const parts: Uint8Array[] = [encodeVarints([FORMAT_VERSION, output.cap, output.end, output.lost])];
  for (const block of output.blocks) {
    const record = block.encode();
    parts.push(encodeVarints([record.length]), record);
  }
  return Buffer.concat(parts);
}

export function unpackOutput(bytes: Uint8Array): PackedOutput {
  const numbers = new VarintReader(bytes);
  const version = numbers.next();
  if (version !== FORMAT_VERSION) {
    throw new LaboroError("LABORO_DATA_NEWER", `packed output has the unknown format version ${version}`);
  }
  const [cap, end, lost] = [numbers.next(), numbers.next(), numbers.next()];
  const blocks: Block[] = [];
  while (!numbers.done) {
    const size = numbers.next();
    const record = bytes.subarray(numbers.at, numbers.at + size);
    if (record.length < size) throw new LaboroError("LABORO_DATA_CORRUPT", "packed output is cut off");
    // The result that carries it has a checksum of its own.
    blocks.push(Block.decode(Buffer.from(record.subarray(RECORD_HEADER))));
    numbers.at += size;
  }
  return { cap, end, lost, blocks };
}

// Everything that a new worker process needs to deliver the output of an ended attempt: its length, the kept part, and
// the slots of the spill file that contain it. It is the file `<path>.index` beside the spill file, one checksummed
// record of varints, written as a whole or not at all. A spill file without an index belonged to a task that died with
// its worker.

interface OutputIndex {
  readonly cap: number;
  readonly blockBytes: number;
  /** How much the task wrote. */
  readonly end: number;
  /** Bytes that could not be written to disk. */
  readonly lost: number;
  readonly blocks: readonly { readonly slot: number; readonly start: number; readonly end: number }[];
}

const SUFFIX = ".index";

export const indexPath = (path: string): string => path + SUFFIX;

export function encodeIndex(index: OutputIndex): Buffer {
  const numbers = [FORMAT_VERSION, index.cap, index.blockBytes, index.end, index.lost];
  for (const { slot, start, end } of index.blocks) numbers.push(slot, start, end - start);
  return encodeRecords([encodeVarints(numbers)]);
}

function decodeIndex(payload: Uint8Array): OutputIndex {
  const numbers = new VarintReader(payload);
  const version = numbers.next();
  if (version !== FORMAT_VERSION) {
    throw new LaboroError("LABORO_DATA_NEWER", `spooled output has the unknown format version ${version}`);
  }
  const [cap, blockBytes, end, lost] = [numbers.next(), numbers.next(), numbers.next(), numbers.next()];
  const blocks: { slot: number; start: number; end: number }[] = [];
  while (!numbers.done) {
    const [slot, start, length] = [numbers.next(), numbers.next(), numbers.next()];
    blocks.push({ slot, start, end: start + length });
  }
  return { cap, blockBytes, end, lost, blocks };
}

/** The index of this spill file; undefined if there is none. */
export function readIndex(path: string): OutputIndex | undefined {
  let fd: number;
  try {
    fd = fs.openSync(indexPath(path), "r");
  } catch (cause) {
    if (errnoOf(cause) === "ENOENT") return undefined;
    throw new LaboroError("LABORO_DATA_UNUSABLE", `cannot open ${indexPath(path)}`, { cause });
  }
  try {
    let index: OutputIndex | undefined;
    scanRecords(fd, {
      record: (_at, payload) => {
        index = decodeIndex(payload);
        return false;
      },
    });
    if (index === undefined) throw new LaboroError("LABORO_DATA_CORRUPT", `${indexPath(path)} holds no good record`);
    return index;
  } finally {
    fs.closeSync(fd);
  }
}

/** The names of the spooled outputs in this directory. Removes files of attempts that never ended. */
export function spooledOutputs(directory: string): string[] {
  const names = new Set(fs.readdirSync(directory));
  const spooled: string[] = [];
  for (const name of names) {
    if (name.endsWith(SUFFIX)) spooled.push(name.slice(0, -SUFFIX.length));
    else if (!names.has(indexPath(name))) fs.rmSync(join(directory, name), { force: true });
  }
  return spooled;
}
