/** What leaves a connection: the messages of one turn of the event loop together, and never more than a limit on the way. */
import type { Socket } from "node:net";
import { messageSize, writeMessage } from "./zmtp-frames.js";

/** So much does not wait for the end of the turn. */
const FLUSH_BYTES = 1024 * 1024;

export class Outgoing {
  readonly #socket: Socket;
  readonly #most: number;
  #queue: (readonly Uint8Array[] | Buffer)[] = [];
  #queued = 0;
  #scheduled = false;

  constructor(socket: Socket, most: number) {
    this.#socket = socket;
    this.#most = most;
  }

  /** A message in its frames. False where too much is on its way already. */
  message(frames: readonly Uint8Array[]): boolean {
    return this.#push(frames, messageSize(frames));
  }

  /** A message or a command that is in its bytes already. */
  bytes(bytes: Buffer): boolean {
    return this.#push(bytes, bytes.length);
  }

  flush(): void {
    if (this.#queued === 0) return;
    const bytes = Buffer.allocUnsafe(this.#queued);
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
    this.#queued = 0;
  }

  #push(what: readonly Uint8Array[] | Buffer, size: number): boolean {
    if (this.#queued + this.#socket.writableLength + size > this.#most) return false;
    this.#queue.push(what);
    this.#queued += size;
    if (this.#queued > FLUSH_BYTES) {
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
