/**
 * The sealed blocks of one attempt that are still wanted, in order of offset: each in memory or in a slot of the spill
 * file. A block that the disk does not take, or does not give back as it was, is reported lost and no longer kept.
 */
import type { Block } from "./block.js";
import { SpillFile } from "./spill-file.js";

interface StoredBlock {
  readonly start: number;
  readonly end: number;
  /** While it is in memory. */
  block: Block | undefined;
  /** Once it is in the spill file. */
  slot: number | undefined;
}

export interface BlockStoreSettings {
  readonly path: string;
  readonly blockBytes: number;
  /** Bytes of sealed blocks in memory. */
  readonly memory: number;
  /** Slots that are in the spill file already. */
  readonly slots: number;
  readonly onLost: (from: number, to: number, cause: unknown) => void;
}

export class BlockStore {
  readonly #settings: BlockStoreSettings;
  readonly #file: SpillFile;
  #list: StoredBlock[] = [];
  #inMemory = 0;
  /** The block last read from the spill file. */
  #loaded: Block | undefined;
  /** The memory of the block last spilled, for the next one: a task that floods leaves nothing to collect. */
  #spare: Buffer | undefined;

  constructor(settings: BlockStoreSettings) {
    this.#settings = settings;
    this.#file = new SpillFile(settings.path, settings.blockBytes, settings.slots);
  }

  /** Whether there is a spill file. */
  get spilled(): boolean {
    return this.#file.made;
  }

  /** Where the last block kept ends. */
  get end(): number {
    return this.#list.at(-1)?.end ?? 0;
  }

  /** Memory for the next block, if there is some left over. */
  takeSpare(): Buffer | undefined {
    const spare = this.#spare;
    this.#spare = undefined;
    return spare;
  }

  add(block: Block): void {
    const kept: StoredBlock = { start: block.start, end: block.end, block, slot: undefined };
    this.#list.push(kept);
    this.#inMemory += block.length;
    if (this.#inMemory <= this.#settings.memory) return;
    try {
      this.#spill(kept);
    } catch (cause) {
      this.#lose(kept, cause);
    }
  }

  addSpilled(block: { readonly slot: number; readonly start: number; readonly end: number }): void {
    this.#list.push({ start: block.start, end: block.end, block: undefined, slot: block.slot });
  }

  /** The block with this offset, or the first one after it. */
  blockFrom(offset: number): Block | undefined {
    for (;;) {
      const kept = this.#list[this.#firstEndingAfter(offset)];
      if (kept === undefined) return undefined;
      if (kept.block !== undefined) return kept.block;
      if (this.#loaded?.start === kept.start) return this.#loaded;
      try {
        this.#loaded = this.#file.get(kept.slot ?? -1, kept.start, kept.end);
        return this.#loaded;
      } catch (cause) {
        this.#lose(kept, cause);
      }
    }
  }

  /** Drops the blocks that end at or before this offset. */
  dropBefore(offset: number): void {
    const count = this.#firstEndingAfter(offset);
    for (const kept of this.#list.splice(0, count)) this.#forget(kept);
  }

  /** Drops the blocks that lie wholly between these offsets. */
  dropWithin(from: number, to: number): void {
    const first = this.#firstEndingAfter(from);
    let last = first;
    while (last < this.#list.length && (this.#list[last]?.end ?? 0) <= to) last++;
    if (last > first) for (const kept of this.#list.splice(first, last - first)) this.#forget(kept);
  }

  /** All blocks, where they are in memory and hold no more than this together. */
  inMemory(atMost: number): Block[] | undefined {
    if (this.#inMemory > atMost) return undefined;
    const blocks: Block[] = [];
    for (const { block } of this.#list) {
      if (block === undefined) return undefined;
      blocks.push(block);
    }
    return blocks;
  }

  /** Moves every block to the spill file; throws where that does not take one, which then stays in memory. */
  spillAll(): void {
    for (const kept of this.#list) if (kept.block !== undefined) this.#spill(kept);
  }

  /** Where each block is, once all are in the spill file. */
  slots(): { slot: number; start: number; end: number }[] {
    return this.#list.flatMap(({ slot, start, end }) => (slot === undefined ? [] : [{ slot, start, end }]));
  }

  clear(): void {
    this.#list = [];
    this.#inMemory = 0;
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

  #spill(kept: StoredBlock): void {
    const { block } = kept;
    if (block === undefined) return;
    kept.slot = this.#file.put(block);
    kept.block = undefined;
    this.#spare = block.spare;
    this.#inMemory -= block.length;
  }

  #lose(kept: StoredBlock, cause: unknown): void {
    this.#list.splice(this.#list.indexOf(kept), 1);
    this.#forget(kept);
    this.#settings.onLost(kept.start, kept.end, cause);
  }

  #forget(kept: StoredBlock): void {
    if (kept.block !== undefined) this.#inMemory -= kept.block.length;
    if (kept.slot !== undefined) this.#file.free(kept.slot);
    if (this.#loaded?.start === kept.start) this.#loaded = undefined;
  }
}
