/**
 * One end of a ZMTP 3 connection over TCP, with the mechanism NULL (RFC 23, 37).
 *
 *   greeting    both have sent their 64 bytes or are about to
 *   handshake   READY both ways
 *   open        messages, and PING where nothing was received for a while
 *   failing     the peer broke the rules; what it sends is ignored
 *   closed      whatever the reason; reported once
 *
 * The bound side sends its READY only after the peer's READY: then it knows the peer's identity and can choose its own identity for it.
 */
import type { Socket } from "node:net";
import { inUrl } from "../../base/addresses.js";
import { asLaboroError, LaboroError } from "../../base/errors.js";
import type { Limits } from "./types.js";
import {
  encodeGreeting,
  GREETING_SIZE,
  MECHANISM,
  makeCommand,
  makeError,
  makeProperties,
  PING,
  pongTo,
  readCommand,
  readError,
  readGreeting,
  readProperties,
} from "./zmtp-commands.js";
import { encodeCommand, FrameReader, type Incoming, zmtpError } from "./zmtp-frames.js";
import { WriteBuffer } from "./zmtp-write-buffer.js";

export interface ZmtpConnectionOptions {
  readonly socketType: string;
  /** Socket types that may be at the other end. */
  readonly accepts: readonly string[];
  readonly bound: boolean;
  readonly identity: (peer: Buffer, localUrl: string) => Uint8Array;
  readonly limits: Limits;
}

export interface ConnectionListener {
  opened(peer: { readonly identity: Buffer; readonly socketType: string }): void;
  message(frames: readonly Buffer[]): void;
  /** A message over a limit, with its first frames. */
  dropped?(head: readonly Buffer[], why: string): void;
  /** One that is not the connection's own business: SUBSCRIBE, CANCEL. */
  command?(name: string, body: Buffer): void;
  /** What the peer sent is against the rules. Unless `closed` follows, only that message is lost. */
  protocolError(fault: LaboroError): void;
  closed(why: string): void;
  /** Called with each piece while more is buffered for this connection than for most. */
  muchBuffered?(): void;
}

const MUCH_BUFFERED = 1024 * 1024;

const HANDSHAKE_MS = 10_000;
const MISSED_LIMIT = 3;
const KEEP_ALIVE_MS = 10_000;

export class ZmtpConnection {
  readonly #socket: Socket;
  readonly #options: ZmtpConnectionOptions;
  readonly #listener: ConnectionListener;
  readonly #reader: FrameReader;
  readonly #outgoing: WriteBuffer;
  readonly #handshakeTimer: NodeJS.Timeout;
  readonly #take = (incoming: Incoming): void => this.#onIncoming(incoming);
  #state: "greeting" | "handshake" | "open" | "failing" | "closed" = "greeting";
  #greeting: Buffer = Buffer.alloc(0);
  /** The peer answers PING: it says that it speaks 3.1, or has sent one itself. */
  #answersPing = false;
  #receivedSinceBeat = false;
  #silentBeats = 0;
  /** Callers that wait to know whether the peer is alive. */
  readonly #livenessChecks = new Set<(alive: boolean) => void>();
  #why = "the connection was closed by the other end";

  constructor(socket: Socket, options: ZmtpConnectionOptions, listener: ConnectionListener) {
    this.#socket = socket;
    this.#options = options;
    this.#listener = listener;
    this.#reader = new FrameReader(options.limits);
    this.#outgoing = new WriteBuffer(socket, options.limits.queueBytes);
    this.#handshakeTimer = setTimeout(() => {
      this.#fail(zmtpError("the handshake took too long"));
      socket.destroy();
    }, HANDSHAKE_MS);
    socket.setNoDelay(true);
    socket.setKeepAlive(true, KEEP_ALIVE_MS);
    socket.on("data", (chunk: Buffer) => this.#received(chunk));
    socket.on("error", (error) => {
      this.#why = error.message;
    });
    socket.on("close", () => this.#closed());
    socket.write(encodeGreeting());
  }

  /** Of messages under way, and of one that has not come whole. */
  get bufferedBytes(): number {
    return this.#outgoing.bytes + this.#reader.partialBytes;
  }

  get open(): boolean {
    return this.#state === "open";
  }

  /** False where too much is on its way already, or it is not open. Messages of one turn leave together. */
  send(frames: readonly Uint8Array[]): boolean {
    if (this.#state !== "open" || !this.#outgoing.pushMessage(frames)) return false;
    this.#checkBuffered();
    return true;
  }

  /** The same for a message, or a command, that is in its bytes already. */
  sendBytes(bytes: Buffer): boolean {
    return this.#state === "open" && this.#outgoing.pushBytes(bytes);
  }

  /** Called once a heartbeat interval by whoever has the timer. */
  beat(): void {
    if (this.#state !== "open") return;
    this.#silentBeats = this.#receivedSinceBeat ? 0 : this.#silentBeats + 1;
    this.#receivedSinceBeat = false;
    if (this.#silentBeats === 0 || !this.#answersPing) return;
    if (this.#silentBeats > MISSED_LIMIT) {
      this.destroy(`nothing was heard for ${MISSED_LIMIT} heartbeats`);
      return;
    }
    this.sendBytes(encodeCommand(PING));
  }

  /** Whether the peer answers a PING. One that does not know PING counts as alive until its connection is lost. */
  isAlive(withinMs: number): Promise<boolean> {
    if (this.#state !== "open" || !this.#answersPing) return Promise.resolve(this.#state === "open");
    return new Promise((resolve) => {
      const settle = (alive: boolean): void => {
        clearTimeout(timer);
        this.#livenessChecks.delete(settle);
        resolve(alive);
      };
      const timer = setTimeout(settle, withinMs, false);
      this.#livenessChecks.add(settle);
      this.sendBytes(encodeCommand(PING));
    });
  }

  /** Bytes that have come already are still delivered. */
  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  /** What is queued leaves first. */
  end(): void {
    this.#outgoing.flush();
    this.#socket.end();
  }

  destroy(why: string): void {
    if (this.#state !== "closed") this.#why = why;
    this.#socket.destroy();
  }

  #received(chunk: Buffer): void {
    this.#receivedSinceBeat = true;
    for (const settle of this.#livenessChecks) settle(true);
    if (this.#state === "closed" || this.#state === "failing") return;
    try {
      if (this.#state === "greeting") this.#greet(chunk);
      else this.#reader.push(chunk, this.#take);
      this.#checkBuffered();
    } catch (cause) {
      this.#fail(asLaboroError(cause));
    }
  }

  #checkBuffered(): void {
    if (this.bufferedBytes > MUCH_BUFFERED) this.#listener.muchBuffered?.();
  }

  #greet(chunk: Buffer): void {
    const bytes = this.#greeting.length === 0 ? chunk : Buffer.concat([this.#greeting, chunk]);
    const greeting = readGreeting(bytes);
    if (greeting === undefined) {
      this.#greeting = bytes;
      return;
    }
    if (greeting.mechanism !== MECHANISM) {
      const why = `the security mechanism ${JSON.stringify(greeting.mechanism)}, where ${MECHANISM} is spoken`;
      throw new LaboroError("LABORO_BAD_TOKEN", why);
    }
    this.#answersPing = greeting.minor >= 1;
    this.#greeting = Buffer.alloc(0);
    this.#state = "handshake";
    if (!this.#options.bound) this.#command(this.#ready(Buffer.alloc(0)));
    if (bytes.length > GREETING_SIZE) this.#reader.push(bytes.subarray(GREETING_SIZE), this.#take);
  }

  #onIncoming(incoming: Incoming): void {
    if (this.#state === "closed" || this.#state === "failing") return;
    if (incoming.kind === "command") {
      this.#onCommand(incoming.body);
    } else if (this.#state !== "open") {
      throw zmtpError("a message before the end of the handshake");
    } else if (incoming.kind === "message") {
      this.#listener.message(incoming.frames);
    } else {
      this.#listener.protocolError(zmtpError(`${incoming.why} was dropped`));
      this.#listener.dropped?.(incoming.head, incoming.why);
    }
  }

  #onCommand(frame: Buffer): void {
    const { name, body } = readCommand(frame);
    if (name === "ERROR") {
      throw new LaboroError("LABORO_BAD_TOKEN", `the other end refuses: ${readError(body)}`);
    }
    if (this.#state === "handshake") {
      if (name !== "READY") throw zmtpError(`${JSON.stringify(name)} where READY is expected`);
      this.#open(body);
    } else if (name === "PING") {
      this.#answersPing = true;
      this.sendBytes(encodeCommand(pongTo(body)));
    } else if (name !== "PONG") {
      this.#listener.command?.(name, body);
    }
  }

  #open(properties: Buffer): void {
    const read = readProperties(properties);
    const socketType = read.get("socket-type")?.toString("latin1") ?? "";
    if (!this.#options.accepts.includes(socketType)) {
      this.#refuse(zmtpError(`a ${JSON.stringify(socketType)} socket cannot speak to a ${this.#options.socketType}`));
    }
    const given = read.get("identity") ?? Buffer.alloc(0);
    if (given.length > 255) throw zmtpError("an identity of more than 255 bytes");
    // The bytes are a part of what was received with them; an identity is kept for long.
    const identity = Buffer.from(given);
    if (this.#options.bound) this.#command(this.#ready(identity));
    this.#state = "open";
    clearTimeout(this.#handshakeTimer);
    this.#listener.opened({ identity, socketType });
  }

  #ready(peer: Buffer): Buffer {
    const { socketType, identity } = this.#options;
    return makeCommand(
      "READY",
      makeProperties({ "Socket-Type": Buffer.from(socketType, "latin1"), Identity: identity(peer, this.#localUrl()) }),
    );
  }

  /** This end, as the other would write it. */
  #localUrl(): string {
    const { localAddress = "", localPort = 0 } = this.#socket;
    return `tcp://${inUrl(localAddress.replace(/^::ffff:(?=\d+\.)/, ""))}:${localPort}`;
  }

  #refuse(fault: LaboroError): never {
    this.#command(makeError(fault.message));
    throw fault;
  }

  /** Of the handshake: not before its turn, and not counted. */
  #command(body: Buffer): void {
    this.#socket.write(encodeCommand(body));
  }

  #fail(fault: LaboroError): void {
    const before = this.#state;
    if (before !== "failing") {
      this.#state = "failing";
      this.#why = fault.message;
      this.#listener.protocolError(fault);
    }
    // What was said to refuse a handshake may still leave; its time is limited.
    if (before === "greeting" || before === "handshake") this.#socket.destroySoon();
    else this.#socket.destroy();
  }

  #closed(): void {
    if (this.#state === "closed") return;
    this.#state = "closed";
    clearTimeout(this.#handshakeTimer);
    this.#outgoing.clear();
    for (const settle of this.#livenessChecks) settle(false);
    this.#listener.closed(this.#why);
  }
}
