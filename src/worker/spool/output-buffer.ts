/**
 * The buffer between a task's pipes and the link, for one attempt. Writing never waits for the link and never grows
 * memory:
 *
 * - The newest bytes are in the open block. Sealed blocks stay in memory up to a limit. Beyond it the newest goes to
 *   the spill file, so that a fast link never uses the disk.
 * - Up to half the cap is the head, sent as it arrives. The rest is the tail: its oldest part is dropped when it
 *   exceeds the other half. It is sent after the end, when it is known which part remains.
 * - A block that the disk cannot write or read back is lost: the task continues, `onLost` is called, the offsets stay
 *   empty.
 *
 * States: writing; ended (`end` was called: nothing more is written, the tail can be sent); discarded. In each, `next`
 * returns what follows the cursor, `markStored` drops what the broker has, `rewind` sets the cursor back after a
 * reconnect.
 *
 * An ended output survives the process in one of two ways: `pack` returns a small one as bytes, to be spooled with the
 * result in one group commit; `persist` makes any other durable beside its spill file.
 */
import * as fs from "node:fs";
import { dirname } from "node:path";
import { asLaboroError, LaboroError } from "../../base/errors.js";
import { writeFailure } from "../../base/files/durable.js";
import type { OutputStream } from "../../model/outcome.js";
import { Block, encodeIndex, indexPath, packOutput, readIndex, unpackOutput } from "./block.js";
import { BlockStore, type SharedMemory } from "./block-store.js";

export interface OutputBufferSettings {
  /** The spill file, made when needed: a name of its own for each attempt. */
  readonly path: string;
  /** How much of an attempt's output is kept. */
  readonly cap?: number;
  /** How much of it is kept in memory. */
  readonly memory?: number;
  /** Memory beyond that, for all attempts together; none if absent. */
  readonly shared?: SharedMemory;
  readonly onLost?: (lost: { readonly from: number; readonly to: number; readonly error: LaboroError }) => void;
}

export interface UnsentOutput {
  readonly stream: OutputStream;
  readonly offset: number;
  readonly bytes: Uint8Array;
}

const DEFAULT_CAP = 16 * 1024 * 1024;
const DEFAULT_MEMORY = 256 * 1024;
const MAX_BLOCK = 64 * 1024;
const MAX_CHUNK = 32 * 1024;
/** Above this an output is cheaper in a file of its own than in the results' file. */
const MAX_PACKED_BYTES = 64 * 1024;

export class OutputBuffer {
  readonly #path: string;
  readonly #cap: number;
  readonly #head: number;
  readonly #blockBytes: number;
  readonly #blocks: BlockStore;
  readonly #onLost: NonNullable<OutputBufferSettings["onLost"]>;
  #openBlock: Block;
  #end = 0;
  #ended = false;
  #stored = 0;
  #cursor = 0;
  #lost = 0;
  /** The run of the last chunk, and its start: the next chunk is in it or after it. */
  #readPosition = { block: undefined as Block | undefined, run: 0, start: 0 };
  #persisting = false;
  /** Whether there may be files besides the spill file. */
  #hasFiles = false;
  #discarded = false;

  /** `blockBytes` and `slots`: for the output of another process, the size of its blocks and the slots of its file. */
  constructor(settings: OutputBufferSettings, blockBytes?: number, slots = 0) {
    const memory = settings.memory ?? DEFAULT_MEMORY;
    this.#path = settings.path;
    this.#cap = settings.cap ?? DEFAULT_CAP;
    this.#head = Math.floor(this.#cap / 2);
    this.#blockBytes = blockBytes ?? Math.max(1, Math.min(MAX_BLOCK, Math.floor(memory / 4)));
    this.#blocks = new BlockStore({
      path: settings.path,
      blockBytes: this.#blockBytes,
      memory: memory - this.#blockBytes,
      shared: settings.shared,
      slots,
      onLost: (from, to, cause) => this.#lose(from, to, cause),
    });
    this.#onLost = settings.onLost ?? (() => {});
    this.#openBlock = new Block(0, this.#blockBytes);
  }

  /** How much the task has written, kept or not. */
  get length(): number {
    return this.#end;
  }

  /** Bytes lost to a disk that failed or was full. */
  get lost(): number {
    return this.#lost;
  }

  /** The end of the part that is sent as it arrives. */
  get headEnd(): number {
    return this.#head;
  }

  /** How much of the head waits to be sent. */
  get unsent(): number {
    return Math.max(0, Math.min(this.#head, this.#end) - this.#cursor);
  }

  /** Whether `next` has returned all that will ever be sent: then the result may follow. */
  get sentAll(): boolean {
    return this.#ended && this.#cursor >= this.#keptEnd;
  }

  /** Whether the broker has all that was kept: then the buffer can be discarded. */
  get delivered(): boolean {
    return this.#ended && this.#stored >= this.#keptEnd;
  }

  write(stream: OutputStream, bytes: Uint8Array): void {
    if (this.#discarded) return;
    if (this.#ended) throw new LaboroError("LABORO_INTERNAL", "output was written after its end");
    let rest = bytes;
    while (rest.length > 0) {
      // No block lies in both head and tail, so that the tail can be dropped block by block.
      const fits = this.#openBlock.start < this.#head ? this.#head - this.#openBlock.end : rest.length;
      const taken = this.#openBlock.append(stream, fits < rest.length ? rest.subarray(0, fits) : rest);
      rest = rest.subarray(taken);
      this.#end += taken;
      if (this.#openBlock.full || this.#openBlock.end === this.#head) this.#seal();
    }
  }

  /** Nothing more will be written. Returns how much was. */
  end(): number {
    this.#ended = true;
    this.#blocks.dropWithin(this.#head, this.#tailFrom);
    if (this.#openBlock.start >= this.#head && this.#openBlock.end <= this.#tailFrom) this.#clearOpen();
    return this.#end;
  }

  /** The next unsent chunk, or undefined while there is none. */
  next(maxBytes: number = MAX_CHUNK): UnsentOutput | undefined {
    const sendable = this.#ended ? this.#end : Math.min(this.#head, this.#end);
    const limit = Math.min(maxBytes, MAX_CHUNK);
    while (limit > 0) {
      if (this.#cursor >= this.#head && this.#cursor < this.#tailFrom) this.#cursor = this.#tailFrom;
      if (this.#cursor >= sendable) return undefined;
      const block = this.#blocks.blockFrom(this.#cursor) ?? this.#openBlock;
      if (block.start > this.#cursor) {
        this.#cursor = block.start;
        continue;
      }
      if (block.length === 0) return undefined;
      return this.#chunk(block, limit);
    }
    return undefined;
  }

  /** The broker has everything before this offset: it is dropped here. */
  markStored(upTo: number): void {
    if (upTo <= this.#stored) return;
    this.#stored = Math.min(upTo, this.#end);
    this.#cursor = Math.max(this.#cursor, this.#stored);
    this.#blocks.dropBefore(this.#stored);
    if (this.#openBlock.length > 0 && this.#openBlock.end <= this.#stored) this.#clearOpen();
  }

  /** Sending restarts at this offset, up to which the broker has stored the output, after a reconnect. */
  rewind(toOffset: number): void {
    this.markStored(toOffset);
    this.#cursor = Math.min(toOffset, this.#end);
  }

  /** The rest of an ended output as bytes, if it is small and all in memory. */
  pack(atMost: number = MAX_PACKED_BYTES): Uint8Array | undefined {
    this.#sealLast();
    const blocks = this.#blocks.inMemory(atMost);
    if (blocks === undefined) return undefined;
    return packOutput({ cap: this.#cap, end: this.#end, lost: this.#lost, blocks });
  }

  static unpack(bytes: Uint8Array, settings: OutputBufferSettings): OutputBuffer {
    const { cap, end, lost, blocks } = unpackOutput(bytes);
    const longest = blocks.reduce((most, block) => Math.max(most, block.length), 1);
    const output = new OutputBuffer({ ...settings, cap }, longest);
    for (const block of blocks) output.#blocks.add(block);
    return output.#asEnded(end, lost);
  }

  /** Makes the rest of an ended output durable. Rejects with LABORO_DISK_FULL or LABORO_STORE_FAILED; repeatable. */
  async persist(): Promise<void> {
    this.#sealLast();
    this.#persisting = true;
    this.#hasFiles = true;
    try {
      this.#blocks.spillAll();
      if (this.#blocks.slots().length > 0) await fs.promises.open(this.#path, "r").then(syncAndClose);
      const blocks = this.#blocks.slots();
      const index = { cap: this.#cap, blockBytes: this.#blockBytes, end: this.#end, lost: this.#lost, blocks };
      const draft = `${this.#path}.new`;
      await fs.promises.writeFile(draft, encodeIndex(index), { mode: 0o600, flush: true });
      await fs.promises.rename(draft, indexPath(this.#path));
      await fs.promises.open(dirname(this.#path), "r").then(syncAndClose);
    } catch (cause) {
      throw writeFailure(cause, `cannot spool output to ${this.#path}`);
    } finally {
      this.#persisting = false;
      if (this.#discarded) this.#removeFiles();
    }
  }

  /** The output that an earlier process persisted under this path; undefined if there is none. */
  static load(settings: OutputBufferSettings): OutputBuffer | undefined {
    const index = readIndex(settings.path);
    if (index === undefined) return undefined;
    const slots = index.blocks.reduce((most, block) => Math.max(most, block.slot + 1), 0);
    const output = new OutputBuffer({ ...settings, cap: index.cap }, index.blockBytes, slots);
    for (const block of index.blocks) output.#blocks.addSpilled(block);
    output.#hasFiles = true;
    return output.#asEnded(index.end, index.lost);
  }

  /** Forgets everything and removes the files. */
  discard(): void {
    this.#discarded = true;
    this.#ended = true;
    this.#blocks.clear();
    this.#clearOpen();
    this.#cursor = this.#end;
    if (!this.#persisting) this.#removeFiles();
  }

  /** The start of the kept tail. */
  get #tailFrom(): number {
    return this.#end > this.#cap ? this.#end - (this.#cap - this.#head) : this.#head;
  }

  get #keptEnd(): number {
    return this.#openBlock.length > 0 ? this.#openBlock.end : this.#blocks.end;
  }

  #chunk(block: Block, limit: number): UnsentOutput {
    if (this.#readPosition.block !== block || this.#readPosition.start > this.#cursor) {
      this.#readPosition = { block, run: 0, start: block.start };
    }
    for (;;) {
      const run = block.run(this.#readPosition.run);
      if (run === undefined) throw new LaboroError("LABORO_INTERNAL", `no run covers offset ${this.#cursor}`);
      const runEnd = this.#readPosition.start + run.length;
      if (this.#cursor < runEnd) {
        const offset = this.#cursor;
        this.#cursor = Math.min(offset + limit, runEnd);
        return { stream: run.stream, offset, bytes: block.bytes(offset, this.#cursor) };
      }
      this.#readPosition.run++;
      this.#readPosition.start = runEnd;
    }
  }

  #seal(): void {
    if (this.#openBlock.length === 0) return;
    this.#blocks.add(this.#openBlock);
    this.#blocks.dropWithin(this.#head, this.#tailFrom);
    this.#clearOpen();
  }

  #clearOpen(): void {
    this.#openBlock = new Block(this.#end, this.#blockBytes, this.#blocks.takeSpare());
  }

  #sealLast(): void {
    if (!this.#ended)
      throw new LaboroError("LABORO_INTERNAL", "output is kept for another process only once it has ended");
    this.#seal();
  }

  #lose(from: number, to: number, cause: unknown): void {
    this.#lost += to - from;
    const error = cause instanceof LaboroError ? cause : writeFailure(cause, `output ${from}..${to} is lost`);
    this.#onLost({ from, to, error: asLaboroError(error) });
  }

  #asEnded(end: number, lost: number): this {
    this.#end = end;
    this.#ended = true;
    this.#lost = lost;
    this.#clearOpen();
    return this;
  }

  #removeFiles(): void {
    this.#blocks.close();
    // Most tasks never had a file, and removing one that does not exist costs more than everything else here.
    if (!this.#hasFiles && !this.#blocks.spilled) return;
    for (const path of [this.#path, indexPath(this.#path), `${this.#path}.new`]) fs.rmSync(path, { force: true });
  }
}

async function syncAndClose(handle: fs.promises.FileHandle): Promise<void> {
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
