/**
 * The dialling end of an open WebSocket (RFC 6455), with the methods and events of `ws` that the link uses. `ws` loads
 * the HTTP, TLS and crypto modules of Node, which takes longer than the rest of a verb that asks a broker.
 *
 *   open     "message" is emitted for each message
 *   closing  a close frame was sent or received: nothing is emitted until the connection has ended
 *   closed   "close" was emitted, once
 *
 * The mask of every frame is 0, which leaves the bytes as they are. Masks protect proxies from the content that a web
 * page sends (RFC 6455, section 10.3). Here a program sends it, to its own machine or inside TLS.
 */
import { EventEmitter } from "node:events";
import type { Socket } from "node:net";

/** A peer that does not end the connection is dropped after this time. */
const CLOSE_TIMEOUT = 5_000;
/** Frames up to this size are copied behind their head: a second write costs more than the copy. */
const COPIED = 16 * 1024;
const CONTROL_LIMIT = 125;
const OPCODE = { continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const;
const NOTHING = Buffer.alloc(0);
const NO_STATUS = 1005;
const NO_CLOSE_FRAME = 1006;

interface Frame {
  readonly fin: boolean;
  readonly opcode: number;
  readonly body: Buffer;
}

export class ClientWebSocket extends EventEmitter<{
  message: [Buffer, boolean];
  error: [Error];
  close: [number, Buffer];
}> {
  readonly #socket: Socket;
  readonly #maxPayload: number;
  #open = true;
  /** What has arrived of the next frame, and how many bytes it needs at least. */
  #chunks: Buffer[] = [];
  #received = 0;
  #needed = 2;
  /** The parts of a message that came in several frames. */
  #parts: Buffer[] = [];
  #partBytes = 0;
  #isBinary: boolean | undefined;
  #end: { readonly code: number; readonly reason: Buffer } = { code: NO_CLOSE_FRAME, reason: NOTHING };

  constructor(socket: Socket, maxPayload: number) {
    super();
    this.#socket = socket;
    this.#maxPayload = maxPayload;
    socket.on("data", (bytes) => this.#receive(bytes));
    socket.on("error", (error) => this.emit("error", error));
    socket.on("close", () => this.emit("close", this.#end.code, this.#end.reason));
  }

  get bufferedAmount(): number {
    return this.#socket.writableLength;
  }

  send(data: Uint8Array): void {
    if (this.#open) this.#write(OPCODE.binary, data);
  }

  close(code: number, reason: string): void {
    if (!this.#open) return;
    const body = Buffer.alloc(2 + Buffer.byteLength(reason));
    body.writeUInt16BE(code);
    body.write(reason, 2);
    this.#finish(body);
  }

  terminate(): void {
    this.#open = false;
    this.#socket.destroy();
  }

  /** Lets the process end before the peer has ended the connection. */
  unref(): void {
    this.#socket.unref();
  }

  #write(opcode: number, body: Uint8Array): void {
    const size = body.length;
    const extra = size < 126 ? 0 : size < 0x1_0000 ? 2 : 8;
    const head = 6 + extra;
    const copied = size <= COPIED;
    const frame = Buffer.allocUnsafe(copied ? head + size : head);
    frame[0] = 0x80 | opcode;
    frame[1] = 0x80 | (extra === 0 ? size : extra === 2 ? 126 : 127);
    if (extra === 2) frame.writeUInt16BE(size, 2);
    else if (extra === 8) frame.writeBigUInt64BE(BigInt(size), 2);
    frame.writeUInt32BE(0, 2 + extra);
    if (copied) {
      frame.set(body, head);
      this.#socket.write(frame);
      return;
    }
    this.#socket.cork();
    this.#socket.write(frame);
    this.#socket.write(body);
    this.#socket.uncork();
  }

  /** Sends the close frame. The peer ends the connection. */
  #finish(body: Uint8Array): void {
    this.#open = false;
    this.#write(OPCODE.close, body);
    const socket = this.#socket.end();
    const timer = setTimeout(() => socket.destroy(), CLOSE_TIMEOUT);
    timer.unref();
    socket.once("close", () => clearTimeout(timer));
  }

  #receive(bytes: Buffer): void {
    if (!this.#open) return;
    this.#chunks.push(bytes);
    this.#received += bytes.length;
    if (this.#received < this.#needed) return;
    let rest = this.#chunks.length === 1 ? bytes : Buffer.concat(this.#chunks, this.#received);
    try {
      for (;;) {
        this.#needed = frameSize(rest, this.#maxPayload);
        if (!this.#open || rest.length < this.#needed) break;
        const frame = rest.subarray(0, this.#needed);
        rest = rest.subarray(this.#needed);
        this.#take(parseFrame(frame));
      }
    } catch (cause) {
      // The owner answers with close().
      this.emit("error", cause as Error);
    }
    this.#chunks = rest.length === 0 ? [] : [rest];
    this.#received = rest.length;
  }

  #take({ fin, opcode, body }: Frame): void {
    switch (opcode) {
      case OPCODE.ping:
        this.#write(OPCODE.pong, body);
        return;
      case OPCODE.pong:
        return;
      case OPCODE.close:
        this.#end =
          body.length < 2
            ? { code: NO_STATUS, reason: NOTHING }
            : { code: body.readUInt16BE(), reason: body.subarray(2) };
        this.#finish(body.subarray(0, 2));
        return;
      default:
        this.#takePart(fin, opcode, body);
    }
  }

  #takePart(fin: boolean, opcode: number, body: Buffer): void {
    const isFirst = opcode !== OPCODE.continuation;
    if (isFirst !== (this.#isBinary === undefined)) throw violation(`an unexpected frame with opcode ${opcode}`);
    const isBinary = this.#isBinary ?? opcode === OPCODE.binary;
    if (fin && isFirst) {
      this.emit("message", body, isBinary);
      return;
    }
    this.#isBinary = isBinary;
    this.#parts.push(body);
    this.#partBytes += body.length;
    if (this.#partBytes > this.#maxPayload) throw tooLong(this.#partBytes, this.#maxPayload);
    if (!fin) return;
    const whole = Buffer.concat(this.#parts);
    this.#parts = [];
    this.#partBytes = 0;
    this.#isBinary = undefined;
    this.emit("message", whole, isBinary);
  }
}

/** The bytes of the frame at the beginning, or as many as are needed to tell. Throws what `ws` throws. */
function frameSize(bytes: Buffer, maxPayload: number): number {
  const [first, second] = bytes;
  if (first === undefined || second === undefined) return 2;
  const opcode = first & 0x0f;
  if ((first & 0x70) !== 0) throw violation("reserved bits are set");
  if (opcode > OPCODE.pong || (opcode > OPCODE.binary && opcode < OPCODE.close)) throw violation(`opcode ${opcode}`);
  if ((second & 0x80) !== 0) throw violation("a frame of the server is masked");
  const short = second & 0x7f;
  if (opcode >= OPCODE.close && (short > CONTROL_LIMIT || first < 0x80)) throw violation("a control frame in parts");
  const head = headSize(short);
  if (bytes.length < head) return head;
  const size = short < 126 ? short : short === 126 ? bytes.readUInt16BE(2) : Number(bytes.readBigUInt64BE(2));
  if (size > maxPayload) throw tooLong(size, maxPayload);
  return head + size;
}

const headSize = (short: number): number => (short < 126 ? 2 : short === 126 ? 4 : 10);

function parseFrame(bytes: Buffer): Frame {
  const [first = 0, second = 0] = bytes;
  return { fin: (first & 0x80) !== 0, opcode: first & 0x0f, body: bytes.subarray(headSize(second)) };
}

const violation = (text: string): Error =>
  Object.assign(new RangeError(`invalid WebSocket frame: ${text}`), { code: "WS_ERR_INVALID_FRAME" });

const tooLong = (size: number, limit: number): Error =>
  Object.assign(new RangeError(`a message of ${size} bytes, expected at most ${limit}`), {
    code: "WS_ERR_UNSUPPORTED_MESSAGE_LENGTH",
  });
