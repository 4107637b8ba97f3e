/**
 * A file of slots of equal size; each holds one block or is free. Freed slots are used again, so the file acts as a ring where
 * the oldest block is replaced by the newest, and it is truncated once no slot is in use. It is created when first needed: the
 * output of most tasks never touches the disk.
 */
import * as fs from "node:fs";
import { LaboroError } from "../../base/errors.js";
import { writeFully } from "../../base/files/durable.js";
import { scanRecords } from "../../base/files/records.js";
import { Block, slotBytes } from "./block.js";

/** Every record is built here and written at once, so that a task with much output leaves nothing to collect. */
const draft = Buffer.allocUnsafeSlow(slotBytes(64 * 1024));

export class SpillFile {
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
