/**
 * The server's session of a round-robin worker.
 *
 *   joining    REGISTER was answered. The worker installs its commands only then, so its first message is delayed
 *   working    it is in the worker table and gets messages while it has free slots
 *   leaving    DEREGISTER was received: it gets no new messages, and is closed when all of its messages are answered
 *   closed     deregistered, suspended, or disconnected
 *
 * Each message takes a slot. A RESPONSE, a timeout or an INCREMENT frees it. The original also sends INCREMENT after
 * the RESPONSE: that one is expected and ignored.
 */
import { asLaboroError, type ErrorCode } from "../../../base/errors.js";
import type { Core } from "../../../broker/core.js";
import { CallWorker, callWorkerProfile, type WorkerCall } from "../../../broker/sessions/call-worker.js";
import type { Peer } from "../../zeromq/index.js";
import {
  EMPTY,
  id8,
  isArgument,
  type Message,
  MQS_MORE,
  makeMessage,
  ONGOING,
  PING_ARGUMENT,
  printable,
  STREAM,
} from "../frames.js";
import { readReply, StreamReader } from "../stream.js";
import {
  ClientCall,
  ExpectedIncrements,
  ForwardedReply,
  type OutstandingMessage,
  OutstandingMessages,
  replyKey,
  SLOT_FREED,
} from "./outstanding-messages.js";
import type { CommandServices } from "./services.js";

export interface WorkerSessionContext {
  readonly core: Core;
  readonly services: CommandServices;
  readonly pool: string;
  /** The address that stands for clients of other protocols. */
  readonly ownAddress: Buffer;
  readonly joinDelayMs: number;
  /** For tasks without a time limit. */
  readonly timeoutMs: number;
}

const MAX_STREAM_BYTES = 64 * 1024 * 1024;
/** How long after a RESPONSE its INCREMENT is expected… */
const INCREMENT_TIMEOUT_MS = 10_000;
/** …and how long after a timeout, when the worker may still work on the message. */
const LATE_INCREMENT_TIMEOUT_MS = 3_600_000;
const HOST_ID = Buffer.from("laboro");

export class RoundRobinWorkerSession extends CallWorker {
  readonly #context: WorkerSessionContext;
  readonly #send: (frames: readonly Uint8Array[]) => boolean;
  readonly #onLeft: () => void;
  readonly #outstanding = new OutstandingMessages();
  readonly #expectedIncrements = new ExpectedIncrements();
  #state: "joining" | "working" | "leaving" | "closed" = "joining";
  #slots: number;
  #joinTimer: NodeJS.Timeout | undefined;
  #ids = 0;
  #messages = 0;

  /** `onLeft` is called when a deregistered worker has left. */
  constructor(
    context: WorkerSessionContext,
    peer: Peer,
    send: (frames: readonly Uint8Array[]) => boolean,
    slots: number,
    onLeft: () => void,
  ) {
    const { core, services, pool, joinDelayMs, timeoutMs } = context;
    const who = { name: printable(peer.identity, 255), address: peer.address, pool };
    super(core, callWorkerProfile("round-robin", who, services.offered, slots), timeoutMs);
    this.#context = context;
    this.#send = send;
    this.#slots = slots;
    this.#onLeft = onLeft;
    if (joinDelayMs > 0) this.#joinTimer = setTimeout(() => this.#join(), joinDelayMs);
    else this.#join();
  }

  get slots(): number {
    return this.#slots;
  }

  get freeSlots(): number {
    const { size, carriedOver } = this.#outstanding;
    return Math.max(0, this.#slots - (size - carriedOver));
  }

  /** Messages that were sent to it. */
  get messages(): number {
    return this.#messages;
  }

  get inTable(): boolean {
    return this.#state === "joining" || this.#state === "working";
  }

  /** REGISTER from a known address: its slots are overwritten, even if it still has messages. */
  register(slots: number): void {
    this.#slots = slots;
    this.#outstanding.carryOverAll();
    if (this.#state === "leaving") this.#state = "working";
    this.updateProfile();
  }

  /** Its services or its slots have changed. */
  updateProfile(): void {
    if (this.#state === "closed") return;
    const { id, services: before } = this.profile;
    const services = this.#state === "leaving" ? [] : this.#context.services.offered;
    this.profile = { ...this.profile, services, total: { slots: this.#totalSlots } };
    if (this.#state === "joining") return;
    const same = services.length === before.length && services.every((one, i) => one === before[i]);
    if (same) this.core.workerSlots(id, this.#totalSlots);
    else this.core.workerChanged(this.profile);
  }

  get #totalSlots(): number {
    return this.#slots + this.#outstanding.carriedOver;
  }

  deregister(): void {
    if (this.#state === "joining") {
      this.#end(true);
    } else if (this.#state === "working") {
      this.#state = "leaving";
      this.updateProfile();
      this.#leaveWhenDone();
    }
  }

  /** The connection was closed or heartbeats are missing: its messages are lost. */
  lost(): void {
    this.#end(false);
  }

  increment(): void {
    if (this.#expectedIncrements.take()) return;
    const one = this.#outstanding.likelyDone;
    if (one === undefined) return;
    const { done } = one.call;
    // A client of this protocol still gets a late RESPONSE. Other clients do not.
    if (one.reply === "forward") this.#finish(one, () => done(EMPTY, undefined, SLOT_FREED));
    else
      this.#finish(one, () =>
        done(Buffer.from("the worker freed its slot and gave no answer"), "LABORO_SERVICE_FAILED"),
      );
  }

  /** Returns false if it answers no message of this worker. `frames`: the frames for the client. */
  responded({ to, id, args }: Message, frames: () => readonly Uint8Array[]): boolean {
    const one = this.#outstanding.byKey(replyKey(to, id));
    if (one === undefined) return false;
    const answer = (body: Uint8Array, error?: ErrorCode, attachment?: unknown): void =>
      this.#finish(one, () => one.call.done(body, error, attachment), INCREMENT_TIMEOUT_MS);
    if (one.reply === "forward") {
      answer(EMPTY, undefined, new ForwardedReply(frames()));
      return true;
    }
    let taken: Buffer | { readonly next: Buffer };
    try {
      taken = readReply(args);
      if (one.reply !== "body") taken = one.reply.take(taken);
    } catch (cause) {
      const { code, message } = asLaboroError(cause);
      answer(Buffer.from(message), code);
      return true;
    }
    if (taken instanceof Uint8Array) answer(taken);
    else this.#requestNextPacket(one, taken.next);
    return true;
  }

  /** The next packet has its own id. The INCREMENT of the stream may come now or at the end. */
  #requestNextPacket(one: OutstandingMessage, handle: Buffer): void {
    if (one.expectsIncrement) this.#expectedIncrements.add(LATE_INCREMENT_TIMEOUT_MS, this.#slots);
    const { id, key, returnPath } = this.#nextId();
    this.#outstanding.replace(one, { ...one, key, expectsIncrement: false });
    this.#send(
      makeMessage({ command: "TRACKEXEC", id, args: [MQS_MORE, HOST_ID, handle, Buffer.from("0")], returnPath }),
    );
  }

  /** The protocol has no message for it, so the worker just gets no more messages. */
  stop(): void {
    this.deregister();
  }

  close(): void {}

  #join(): void {
    if (this.#state !== "joining") return;
    this.#state = "working";
    this.core.workerJoins(this.profile, [], this).then(
      () => {
        // It may have disconnected while the store was read.
        if (this.#state === "closed") this.core.workerDisconnected(this.profile.id, this, true);
      },
      () => this.#end(true),
    );
  }

  protected sendCall(call: WorkerCall): void {
    if (call.attachment instanceof ClientCall) {
      // Unchanged, with the address of the client appended.
      const { client, message } = call.attachment;
      const { command, id, args } = message;
      const returnPath = [...message.returnPath, client];
      const key = replyKey(returnPath.toReversed(), id);
      const tracked = command === "TRACKEXEC";
      this.#sendMessage(
        { call, key, expectsIncrement: sendsIncrement(args[0]), tracked, reply: "forward" },
        makeMessage({ command, id, args, returnPath }),
      );
      return;
    }
    const command = this.#context.services.commandOf(call.service);
    if (command === undefined) {
      call.done(Buffer.from(`no command for ${call.service}`), "LABORO_SERVICE_FAILED");
      return;
    }
    const { id, key, returnPath } = this.#nextId();
    const reply = isArgument(command, STREAM) ? new StreamReader(MAX_STREAM_BYTES) : "body";
    this.#sendMessage(
      { call, key, expectsIncrement: sendsIncrement(command), tracked: true, reply },
      makeMessage({ command: "TRACKEXEC", id, args: argumentsOf(command, call.body), returnPath }),
    );
  }

  /** For a message that does not come from a client of this protocol. */
  #nextId(): { readonly id: Buffer; readonly key: string; readonly returnPath: readonly Buffer[] } {
    const id = id8(++this.#ids);
    const returnPath = [this.#context.ownAddress];
    return { id, key: replyKey(returnPath, id), returnPath };
  }

  #sendMessage(one: OutstandingMessage, frames: readonly Uint8Array[]): void {
    this.#messages++;
    this.#outstanding.add(one);
    if (this.#send(frames)) return;
    const why = Buffer.from(`too many bytes are on their way to ${this.profile.name} already`);
    this.#finish(one, () => one.call.done(why, "LABORO_WORKER_LOST"));
  }

  protected abandonCall(name: string, then: (call: WorkerCall) => void): void {
    const one = this.#outstanding.byName(name);
    if (one !== undefined) this.#finish(one, () => then(one.call), LATE_INCREMENT_TIMEOUT_MS);
  }

  /** The slot is free. `incrementMs`: how long the INCREMENT of this message may still come. */
  #finish(one: OutstandingMessage, notify: () => void, incrementMs?: number): void {
    if (one.expectsIncrement && incrementMs !== undefined) this.#expectedIncrements.add(incrementMs, this.#slots);
    if (this.#outstanding.remove(one)) this.core.workerSlots(this.profile.id, this.#totalSlots);
    notify();
    this.#leaveWhenDone();
  }

  #leaveWhenDone(): void {
    if (this.#state === "leaving" && this.#outstanding.size === 0) this.#end(true);
  }

  #end(orderly: boolean): void {
    if (this.#state === "closed") return;
    const left = this.#state === "leaving" || this.#state === "joining";
    this.#state = "closed";
    clearTimeout(this.#joinTimer);
    this.clearTasks();
    this.#outstanding.clear();
    this.core.workerDisconnected(this.profile.id, this, orderly);
    if (left) this.#onLeft();
  }
}

/** PING has no arguments. An original copies an argument into its answer and then closes its socket. */
function argumentsOf(command: Buffer, body: Uint8Array): readonly Uint8Array[] {
  if (isArgument(command, STREAM)) return [command, HOST_ID, body];
  return body.length === 0 || isArgument(command, PING_ARGUMENT) ? [command] : [command, body];
}

/** The built-in handlers of the library send none. */
const sendsIncrement = (command: Buffer | undefined): boolean =>
  !isArgument(command, MQS_MORE) && !isArgument(command, ONGOING);
