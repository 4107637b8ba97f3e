/**
 * Relayed output of tasks that are printed later, in a temporary file for each task. A file is a list of records:
 * stream (1 byte), offset (8), length (4), bytes. Only the latest attempt of a task is kept.
 */
import { appendFileSync, closeSync, mkdtempSync, openSync, readSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TaskOutput } from "../../../protocols/laboro/messages.js";

const HEADER = 13;

type RelayedPiece = Pick<TaskOutput, "stream" | "offset" | "bytes">;

interface SpooledTask {
  readonly attempt: number;
  readonly path: string;
  end: number;
}

export class RelaySpool {
  readonly #tasks = new Map<number, SpooledTask>();
  readonly #removeAll = (): void => {
    if (this.#dir !== undefined) rmSync(this.#dir, { recursive: true, force: true });
  };
  #dir: string | undefined;
  /** Why output could not be spooled, if that happened. */
  failure: string | undefined;

  /** Drops output of an earlier attempt and output that was sent twice. */
  async take({ index, attempt, stream, offset, bytes }: TaskOutput): Promise<void> {
    const end = offset + bytes.length;
    const task = this.#task(index, attempt);
    if (task === undefined || end <= task.end) return;
    const rest = offset < task.end ? bytes.subarray(task.end - offset) : bytes;
    const record = Buffer.allocUnsafe(HEADER + rest.length);
    record.writeUInt8(stream === "stdout" ? 0 : 1, 0);
    record.writeDoubleLE(end - rest.length, 1);
    record.writeUInt32LE(rest.length, 9);
    record.set(rest, HEADER);
    try {
      appendFileSync(task.path, record, { mode: 0o600 });
      task.end = end;
    } catch (cause) {
      this.failure ??= cause instanceof Error ? cause.message : String(cause);
      // The last record may be incomplete, so nothing may follow it.
      task.end = Number.POSITIVE_INFINITY;
    }
  }

  /** The spooled output of this attempt, in order. */
  reader(index: number, attempt: number): SpoolReader | undefined {
    const task = this.#tasks.get(index);
    return task?.attempt === attempt && task.end > 0 ? new SpoolReader(task.path) : undefined;
  }

  remove(index: number): void {
    const task = this.#tasks.get(index);
    if (task === undefined) return;
    this.#tasks.delete(index);
    rmSync(task.path, { force: true });
  }

  close(): void {
    process.off("exit", this.#removeAll);
    this.#removeAll();
  }

  #task(index: number, attempt: number): SpooledTask | undefined {
    const known = this.#tasks.get(index);
    if (known !== undefined && known.attempt > attempt) return undefined;
    if (known?.attempt === attempt) return known;
    this.remove(index);
    const task = { attempt, path: join(this.#directory(), `${index}.${attempt}`), end: 0 };
    this.#tasks.set(index, task);
    return task;
  }

  #directory(): string {
    if (this.#dir === undefined) {
      this.#dir = mkdtempSync(join(tmpdir(), "laboro-output-"));
      process.once("exit", this.#removeAll);
    }
    return this.#dir;
  }
}

export class SpoolReader {
  readonly #fd: number;
  #position = 0;
  #next: RelayedPiece | undefined;

  constructor(path: string) {
    this.#fd = openSync(path, "r");
    this.#next = this.#read();
  }

  /** The piece at this offset; undefined if there is none. */
  pieceAt(offset: number): RelayedPiece | undefined {
    while (this.#next !== undefined && this.#next.offset < offset) this.#next = this.#read();
    if (this.#next?.offset !== offset) return undefined;
    const found = this.#next;
    this.#next = this.#read();
    return found;
  }

  close(): void {
    closeSync(this.#fd);
  }

  #read(): RelayedPiece | undefined {
    const header = Buffer.allocUnsafe(HEADER);
    if (readSync(this.#fd, header, 0, HEADER, this.#position) < HEADER) return undefined;
    const bytes = Buffer.allocUnsafe(header.readUInt32LE(9));
    // Only the last record can be cut off, by a full disk.
    if (readSync(this.#fd, bytes, 0, bytes.length, this.#position + HEADER) < bytes.length) return undefined;
    this.#position += HEADER + bytes.length;
    return { stream: header.readUInt8(0) === 0 ? "stdout" : "stderr", offset: header.readDoubleLE(1), bytes };
  }
}
