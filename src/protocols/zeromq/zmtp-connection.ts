/**
 * One end of a ZMTP 3 connection over TCP (RFC 23, 37).
 *
 *   greeting    waits for the 64 bytes of the peer
 *   handshake   commands of the mechanism, until the properties of the peer are known
 *   open        messages, and PING when nothing was received for a while
 *   failing     the peer broke the rules; what it sends is ignored
 *   closed      reported once
 *
 * The bound side sends its properties last: then it knows the peer, and can choose its own identity for it.
 */
import type { Socket } from "node:net";
import { inUrl } from "../../base/addresses.js";
import { asLaboroError, LaboroError } from "../../base/errors.js";
import { type FrameCipher, type MakeMechanism, type Mechanism, nullMechanism } from "./mechanism.js";
import type { Limits } from "./types.js";
import {
  encodeCommand,
  encodeGreeting,
  FrameReader,
  GREETING_SIZE,
  type Incoming,
  makeError,
  makeProperties,
  messageSize,
  PING,
  pongTo,
  readCommand,
  readError,
  readGreeting,
  readProperties,
  writeMessage,
  zmtpError,
} from "./zmtp-codec.js";

export interface ZmtpConnectionOptions {
  readonly socketType: string;
  /** Socket types that may be at the other end. */
  readonly accepts: readonly string[];
  readonly bound: boolean;
  /** NULL if absent. */
  readonly mechanism?: MakeMechanism | undefined;
  readonly identity: (peer: Buffer, localUrl: string) => Uint8Array;
  readonly limits: Limits;
}

export interface ConnectionListener {
  opened(peer: { readonly identity: Buffer; readonly socketType: string }): void;
  message(frames: readonly Buffer[]): void;
  /** A message over a limit, with its first frames. */
  dropped?(head: readonly Buffer[], why: string): void;
  /** SUBSCRIBE and CANCEL. */
  command?(name: string, body: Buffer): void;
  /** The peer broke a rule. Unless `closed` follows, only that message is lost. */
  protocolError(fault: LaboroError): void;
  closed(why: string): void;
  /** Called with each chunk or message while more than a megabyte is buffered. */
  muchBuffered?(): void;
}

const MUCH_BUFFERED = 1024 * 1024;
/** More queued bytes than this are written before the end of the turn. */
const FLUSH_BYTES = 1024 * 1024;
/** What encryption adds to a frame, at most. */
const SEALED_BYTES = 64;
const HANDSHAKE_MS = 10_000;
const MISSED_LIMIT = 3;
const KEEP_ALIVE_MS = 10_000;

export class ZmtpConnection {
  readonly #socket: Socket;
  readonly #options: ZmtpConnectionOptions;
  readonly #listener: ConnectionListener;
  readonly #mechanism: Mechanism;
  readonly #reader: FrameReader;
  /** Reads the frames of the wire, in which others are encrypted. */
  readonly #sealedReader: FrameReader;
  #cipher: FrameCipher | undefined;
  /** Messages, and bytes of encoded ones. Those of one turn of the event loop are written together. */
  #queue: (readonly Uint8Array[] | Buffer)[] = [];
  #queuedBytes = 0;
  #flushScheduled = false;
  readonly #handshakeTimer: NodeJS.Timeout;
  #state: "greeting" | "handshake" | "open" | "failing" | "closed" = "greeting";
  #greeting: Buffer = Buffer.alloc(0);
  /** The peer speaks 3.1, or has sent a PING itself. */
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
    this.#mechanism = (options.mechanism ?? nullMechanism)(() => this.#properties(Buffer.alloc(0)));
    this.#reader = new FrameReader(options.limits);
    this.#sealedReader = new FrameReader({ frames: 1, messageBytes: options.limits.messageBytes + SEALED_BYTES });
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
    const { name: mechanism, isServer } = this.#mechanism;
    socket.write(encodeGreeting({ mechanism, isServer }));
  }

  /** Of messages to the peer, and of an incomplete one from it. */
  get bufferedBytes(): number {
    return this.#outgoingBytes + this.#reader.partialBytes + this.#sealedReader.partialBytes;
  }

  get #outgoingBytes(): number {
    return this.#queuedBytes + this.#socket.writableLength;
  }

  get open(): boolean {
    return this.#state === "open";
  }

  /** False if it is not open, or too much is queued already. */
  send(frames: readonly Uint8Array[]): boolean {
    if (!this.#push(frames, messageSize(frames))) return false;
    this.#checkBuffered();
    return true;
  }

  /** The same for an encoded message or command. */
  sendBytes(bytes: Buffer): boolean {
    return this.#push(bytes, bytes.length);
  }

  #push(what: readonly Uint8Array[] | Buffer, size: number): boolean {
    if (this.#state !== "open" || this.#outgoingBytes + size > this.#options.limits.queueBytes) return false;
    this.#queue.push(what);
    this.#queuedBytes += size;
    if (this.#queuedBytes > FLUSH_BYTES) this.#flush();
    else if (!this.#flushScheduled) {
      this.#flushScheduled = true;
      process.nextTick(() => {
        this.#flushScheduled = false;
        this.#flush();
      });
    }
    return true;
  }

  #flush(): void {
    if (this.#queuedBytes === 0) return;
    const bytes = Buffer.allocUnsafe(this.#queuedBytes);
    let at = 0;
    for (const one of this.#queue) {
      if (one instanceof Uint8Array) at += one.copy(bytes, at);
      else at = writeMessage(bytes, at, one);
    }
    this.#queue = [];
    this.#queuedBytes = 0;
    this.#socket.write(this.#cipher?.seal(bytes) ?? bytes);
  }

  /** To be called once a heartbeat interval. */
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

  /** Whether the peer answers a PING. One that does not know PING is alive until its connection is lost. */
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

  /** Queued messages leave first. */
  end(): void {
    this.#flush();
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
      else this.#read(chunk);
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
    const { name, isServer } = this.#mechanism;
    if (greeting.mechanism !== name) {
      const why = `the security mechanism ${JSON.stringify(greeting.mechanism)}, expected ${name}`;
      throw new LaboroError("LABORO_BAD_TOKEN", why);
    }
    if (isServer && greeting.isServer) throw zmtpError(`two servers of ${name}`);
    this.#answersPing = greeting.minor >= 1;
    this.#greeting = Buffer.alloc(0);
    this.#state = "handshake";
    if (!this.#options.bound) this.#command(this.#mechanism.begin?.());
    if (bytes.length > GREETING_SIZE) this.#read(bytes.subarray(GREETING_SIZE));
  }

  #read(chunk: Buffer): void {
    if (this.#mechanism.name === "NULL") this.#reader.push(chunk, this.#onIncoming);
    else this.#sealedReader.push(chunk, this.#onSealed);
  }

  readonly #onSealed = (incoming: Incoming): void => {
    if (this.#state !== "open") this.#onIncoming(incoming);
    else if (incoming.kind === "dropped") throw zmtpError(incoming.why);
    else {
      const body = incoming.kind === "command" ? incoming.body : (incoming.frames[0] as Buffer);
      this.#reader.push((this.#cipher as FrameCipher).open(body), this.#onIncoming);
    }
  };

  readonly #onIncoming = (incoming: Incoming): void => {
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
  };

  #onCommand(frame: Buffer): void {
    const { name, body } = readCommand(frame);
    if (name === "ERROR") {
      throw new LaboroError("LABORO_BAD_TOKEN", `the peer refused the connection: ${readError(body)}`);
    }
    if (this.#state === "handshake") {
      const { reply, refused, peer } = this.#mechanism.receive(name, body);
      this.#command(reply);
      if (refused !== undefined) throw refused;
      if (peer !== undefined) this.#open(peer);
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
      const fault = zmtpError(`a ${JSON.stringify(socketType)} socket cannot speak to a ${this.#options.socketType}`);
      this.#command(makeError(fault.message));
      throw fault;
    }
    const given = read.get("identity") ?? Buffer.alloc(0);
    if (given.length > 255) throw zmtpError("an identity of more than 255 bytes");
    // A copy: the bytes are a view into a chunk, and an identity is kept for long.
    const identity = Buffer.from(given);
    if (this.#options.bound) this.#command(this.#mechanism.finish?.(this.#properties(identity)));
    this.#cipher = this.#mechanism.cipher;
    this.#state = "open";
    clearTimeout(this.#handshakeTimer);
    this.#listener.opened({ identity, socketType });
  }

  #properties(peer: Buffer): Buffer {
    const { socketType, identity } = this.#options;
    const { localAddress = "", localPort = 0 } = this.#socket;
    const localUrl = `tcp://${inUrl(localAddress.replace(/^::ffff:(?=\d+\.)/, ""))}:${localPort}`;
    return makeProperties({ "Socket-Type": Buffer.from(socketType, "latin1"), Identity: identity(peer, localUrl) });
  }

  /** Of the handshake: written at once. */
  #command(body: Buffer | undefined): void {
    if (body !== undefined) this.#socket.write(encodeCommand(body));
  }

  #fail(fault: LaboroError): void {
    const before = this.#state;
    if (before !== "failing") {
      this.#state = "failing";
      this.#why = fault.message;
      this.#listener.protocolError(fault);
    }
    // The ERROR of a refused handshake may still leave. Its time is limited.
    if (before === "greeting" || before === "handshake") this.#socket.destroySoon();
    else this.#socket.destroy();
  }

  #closed(): void {
    if (this.#state === "closed") return;
    // ZeroMQ does not say which mechanism it has when it finds another one in our greeting.
    if (this.#state === "greeting" && this.#greeting.length > 0) {
      const why = `it left in the middle of its greeting: its security mechanism may be other than ${this.#mechanism.name}`;
      this.#listener.protocolError(new LaboroError("LABORO_BAD_TOKEN", why));
    }
    // A server of CURVE says nothing to a peer that does not have its key.
    if (this.#state === "handshake") this.#why += `, in the handshake of ${this.#mechanism.name}`;
    this.#state = "closed";
    clearTimeout(this.#handshakeTimer);
    this.#queue = [];
    this.#queuedBytes = 0;
    for (const settle of this.#livenessChecks) settle(false);
    this.#listener.closed(this.#why);
  }
}
