/** Outgoing messages of a connection. Those of one turn of the event loop are written together; the bytes under way are limited. */
import type { Socket } from "node:net";
import { messageSize, writeMessage } from "./zmtp-frames.js";

/** Above this size the buffer is flushed before the end of the turn. */
const FLUSH_BYTES = 1024 * 1024;

export class WriteBuffer {
  readonly #socket: Socket;
  readonly #limitBytes: number;
  #queue: (readonly Uint8Array[] | Buffer)[] = [];
  #queuedBytes = 0;
  #scheduled = false;

  constructor(socket: Socket, limitBytes: number) {
    this.#socket = socket;
    this.#limitBytes = limitBytes;
  }

  get bytes(): number {
    return this.#queuedBytes + this.#socket.writableLength;
  }

  /** A message in its frames. False where too much is on its way already. */
  pushMessage(frames: readonly Uint8Array[]): boolean {
    return this.#push(frames, messageSize(frames));
  }

  /** A message or a command that is in its bytes already. */
  pushBytes(bytes: Buffer): boolean {
    return this.#push(bytes, bytes.length);
  }

  flush(): void {
    if (this.#queuedBytes === 0) return;
    const bytes = Buffer.allocUnsafe(this.#queuedBytes);
    let at = 0;
    for (const one of this.#queue) {
      if (one instanceof Uint8Array) at += one.copy(bytes, at);
      else at = writeMessage(bytes, at, one);
    }
    this.clear();
    this.#socket.write(bytes);
  }

  clear(): void {
    this.#queue = [];
    this.#queuedBytes = 0;
  }

  #push(what: readonly Uint8Array[] | Buffer, size: number): boolean {
    if (this.bytes + size > this.#limitBytes) return false;
    this.#queue.push(what);
    this.#queuedBytes += size;
    if (this.#queuedBytes > FLUSH_BYTES) {
      this.flush();
    } else if (!this.#scheduled) {
      this.#scheduled = true;
      process.nextTick(() => {
        this.#scheduled = false;
        this.flush();
      });
    }
    return true;
  }
}
