/**
 * The sealed blocks of one attempt that are still needed, in order of offset: each in memory or in a slot of the spill
 * file. A block that cannot be written to the disk, or cannot be read back unchanged, is reported lost and removed.
 */
import * as fs from "node:fs";
import { LaboroError } from "../../base/errors.js";
import { writeFully } from "../../base/files/durable.js";
import { scanRecords } from "../../base/files/records.js";
import { Block, slotBytes } from "./block.js";

// A file of slots of equal size, each free or with one block. Freed slots are used again, so the file is a ring in
// which the newest block replaces the oldest. It is truncated when no slot is in use. It is created when first needed:
// the output of most tasks is never on disk.

/** Every record is built here and written at once, so that a task with much output leaves nothing to collect. */
const draft = Buffer.allocUnsafeSlow(slotBytes(64 * 1024));

class SpillFile {
  readonly path: string;
  readonly #slotBytes: number;
  readonly #free: number[] = [];
  #fd: number | undefined;
  #slots: number;
  #made = false;

  /** `slots` is the number of slots in the file already. */
  constructor(path: string, blockBytes: number, slots = 0) {
    this.path = path;
    this.#slotBytes = slotBytes(blockBytes);
    this.#slots = slots;
  }

  /** Whether the file was opened, and so exists. */
  get made(): boolean {
    return this.#made;
  }

  /** Writes the block and returns its slot; a failure leaves the slot free. */
  put(block: Block): number {
    const slot = this.#free.pop() ?? this.#slots++;
    try {
      writeFully(this.#open(fs.constants.O_CREAT), block.encode(draft), slot * this.#slotBytes);
      return slot;
    } catch (cause) {
      this.free(slot);
      throw cause;
    }
  }

  /** The block in this slot. Throws if it cannot be read or is not the expected one. */
  get(slot: number, start: number, end: number): Block {
    const fd = this.#open(0);
    const from = slot * this.#slotBytes;
    let found: Block | undefined;
    let damage = "nothing";
    const visitor = {
      record: (at: number, payload: Buffer) => {
        if (at === from) found = Block.decode(Buffer.from(payload));
        return false;
      },
      damage: ({ reason }: { reason: string }) => {
        damage = reason;
      },
    };
    scanRecords(fd, visitor, { from, to: from + this.#slotBytes, maxPayload: this.#slotBytes });
    if (found !== undefined && found.start === start && found.end === end) return found;
    throw new LaboroError("LABORO_DATA_CORRUPT", `${this.path}: output ${start}..${end} cannot be read (${damage})`);
  }

  free(slot: number): void {
    this.#free.push(slot);
    if (this.#free.length < this.#slots) return;
    this.#free.length = 0;
    this.#slots = 0;
    if (this.#fd !== undefined) fs.ftruncateSync(this.#fd, 0);
  }

  close(): void {
    if (this.#fd !== undefined) fs.closeSync(this.#fd);
    this.#fd = undefined;
  }

  #open(flags: number): number {
    this.#fd ??= fs.openSync(this.path, fs.constants.O_RDWR | flags, 0o600);
    this.#made = true;
    return this.#fd;
  }
}

interface StoredBlock {
  readonly start: number;
  readonly end: number;
  /** While it is in memory. */
  block: Block | undefined;
  /** Once it is in the spill file. */
  slot: number | undefined;
}

/** Bytes of memory that several attempts share. */
export interface SharedMemory {
  free: number;
}

interface BlockStoreSettings {
  readonly path: string;
  readonly blockBytes: number;
  /** Bytes of sealed blocks in memory. */
  readonly memory: number;
  /** Memory beyond that, for blocks of all attempts; none if absent. */
  readonly shared?: SharedMemory | undefined;
  /** Slots that are in the spill file already. */
  readonly slots: number;
  readonly onLost: (from: number, to: number, cause: unknown) => void;
}

export class BlockStore {
  readonly #settings: BlockStoreSettings;
  readonly #file: SpillFile;
  #list: StoredBlock[] = [];
  #inMemory = 0;
  /** How much of the shared memory it uses. */
  #borrowed = 0;
  /** The block last read from the spill file. */
  #loaded: Block | undefined;
  /** The memory of the last spilled block, for the next one, so that a task with much output leaves no garbage. */
  #spare: Buffer | undefined;

  constructor(settings: BlockStoreSettings) {
    this.#settings = settings;
    this.#file = new SpillFile(settings.path, settings.blockBytes, settings.slots);
  }

  /** Whether there is a spill file. */
  get spilled(): boolean {
    return this.#file.made;
  }

  /** The end of the last block. */
  get end(): number {
    return this.#list.at(-1)?.end ?? 0;
  }

  /** The memory of a spilled block, for the next one. */
  takeSpare(): Buffer | undefined {
    const spare = this.#spare;
    this.#spare = undefined;
    return spare;
  }

  add(block: Block): void {
    const stored: StoredBlock = { start: block.start, end: block.end, block, slot: undefined };
    this.#list.push(stored);
    this.#inMemory += block.length;
    if (this.#inMemory <= this.#settings.memory + this.#borrowed || this.#borrow()) return;
    try {
      this.#spill(stored);
    } catch (cause) {
      this.#lose(stored, cause);
    }
  }

  addSpilled(block: { readonly slot: number; readonly start: number; readonly end: number }): void {
    this.#list.push({ start: block.start, end: block.end, block: undefined, slot: block.slot });
  }

  /** The block with this offset, or the first one after it. */
  blockFrom(offset: number): Block | undefined {
    for (;;) {
      const stored = this.#list[this.#firstEndingAfter(offset)];
      if (stored === undefined) return undefined;
      if (stored.block !== undefined) return stored.block;
      if (this.#loaded?.start === stored.start) return this.#loaded;
      try {
        this.#loaded = this.#file.get(stored.slot ?? -1, stored.start, stored.end);
        return this.#loaded;
      } catch (cause) {
        this.#lose(stored, cause);
      }
    }
  }

  /** Drops the blocks that end at or before this offset. */
  dropBefore(offset: number): void {
    const count = this.#firstEndingAfter(offset);
    for (const stored of this.#list.splice(0, count)) this.#forget(stored);
  }

  /** Drops the blocks that lie wholly between these offsets. */
  dropWithin(from: number, to: number): void {
    const first = this.#firstEndingAfter(from);
    let last = first;
    while (last < this.#list.length && (this.#list[last]?.end ?? 0) <= to) last++;
    if (last > first) for (const stored of this.#list.splice(first, last - first)) this.#forget(stored);
  }

  /** All blocks, if they are in memory and not larger than this in total. */
  inMemory(atMost: number): Block[] | undefined {
    if (this.#inMemory > atMost) return undefined;
    const blocks: Block[] = [];
    for (const { block } of this.#list) {
      if (block === undefined) return undefined;
      blocks.push(block);
    }
    return blocks;
  }

  /** Moves every block to the spill file. Throws if one cannot be written, which then stays in memory. */
  spillAll(): void {
    for (const stored of this.#list) if (stored.block !== undefined) this.#spill(stored);
  }

  /** Where each block is, once all are in the spill file. */
  slots(): { slot: number; start: number; end: number }[] {
    return this.#list.flatMap(({ slot, start, end }) => (slot === undefined ? [] : [{ slot, start, end }]));
  }

  clear(): void {
    this.#list = [];
    this.#inMemory = 0;
    this.#giveBack();
    this.#loaded = undefined;
    this.#spare = undefined;
  }

  close(): void {
    this.#file.close();
  }

  #firstEndingAfter(offset: number): number {
    let low = 0;
    let high = this.#list.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if ((this.#list[middle]?.end ?? 0) > offset) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  #spill(stored: StoredBlock): void {
    const { block } = stored;
    if (block === undefined) return;
    stored.slot = this.#file.put(block);
    stored.block = undefined;
    this.#spare = block.spare;
    this.#inMemory -= block.length;
    this.#giveBack();
  }

  #borrow(): boolean {
    const { shared, memory } = this.#settings;
    const more = this.#inMemory - memory - this.#borrowed;
    if (shared === undefined || shared.free < more) return false;
    shared.free -= more;
    this.#borrowed += more;
    return true;
  }

  #giveBack(): void {
    const { shared, memory } = this.#settings;
    const unused = Math.min(this.#borrowed, memory + this.#borrowed - this.#inMemory);
    if (shared === undefined || unused <= 0) return;
    shared.free += unused;
    this.#borrowed -= unused;
  }

  #lose(stored: StoredBlock, cause: unknown): void {
    this.#list.splice(this.#list.indexOf(stored), 1);
    this.#forget(stored);
    this.#settings.onLost(stored.start, stored.end, cause);
  }

  #forget(stored: StoredBlock): void {
    if (stored.block !== undefined) {
      this.#inMemory -= stored.block.length;
      this.#spare ??= stored.block.spare;
      this.#giveBack();
    }
    if (stored.slot !== undefined) this.#file.free(stored.slot);
    if (this.#loaded?.start === stored.start) this.#loaded = undefined;
  }
}
