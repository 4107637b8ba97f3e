/**
 * A worker of the round-robin queue, at the server.
 *
 *   joining    REGISTER was answered; the worker installs its commands only then, so it gets its first message a moment later
 *   working    it is in the worker table: it gets messages while it has slots
 *   leaving    DEREGISTER has come: nothing new; it goes when what it has is answered
 *   closed     deregistered, set aside, or its connection is gone
 *
 * A slot is taken by each message that goes to the worker, and freed by the RESPONSE, by a timeout, or by INCREMENT. The original sends
 * INCREMENT after the RESPONSE too: that one is expected, and ignored when it comes.
 */
import { asLaboroError, LaboroError } from "../../../base/errors.js";
import type { Core, WorkerPort } from "../../../broker/core.js";
import { CallTasks, callWorkerProfile } from "../../../broker/sessions/call-tasks.js";
import type { AttemptRange, WorkerProfile } from "../../../dispatch/index.js";
import type { RequestId } from "../../../model/ids.js";
import type { Entries, Job } from "../../../model/job.js";
import type { Peer } from "../../zeromq/index.js";
import { ClientCall, ForwardedReply, readReply, SLOT_FREED } from "../calls.js";
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
import { StreamReader } from "../stream.js";
import { ExpectedIncrements, type OutstandingMessage, OutstandingMessages, replyKey } from "./outstanding-messages.js";
import type { CommandServices } from "./services.js";

export interface WorkerSessionContext {
  readonly core: Core;
  readonly services: CommandServices;
  readonly pool: string;
  /** The address from which messages of others than round-robin clients come. */
  readonly ownAddress: Buffer;
  readonly now: () => number;
  /** Bytes of a stream that is put together here. */
  readonly maxStreamBytes: number;
  readonly joinDelayMs: number;
  /** For tasks without a time limit of their own. */
  readonly timeoutMs: number;
}

/** How long after a RESPONSE its INCREMENT is waited for… */
const INCREMENT_TIMEOUT_MS = 10_000;
/** …and how long after a timeout, when the worker may still work on it. */
const LATE_INCREMENT_TIMEOUT_MS = 3_600_000;
const HOST_ID = Buffer.from("laboro");

export class RoundRobinWorkerSession implements WorkerPort {
  readonly #context: WorkerSessionContext;
  readonly #send: (frames: readonly Uint8Array[]) => boolean;
  readonly #onLeft: () => void;
  readonly #outstanding = new OutstandingMessages();
  readonly #tasks: CallTasks;
  readonly #expectedIncrements: ExpectedIncrements;
  #state: "joining" | "working" | "leaving" | "closed" = "joining";
  #slots: number;
  #profile: WorkerProfile;
  #joinTimer: NodeJS.Timeout | undefined;
  #ids = 0;
  #messages = 0;

  /** `onLeft` is called when a worker that was leaving has gone. */
  constructor(
    context: WorkerSessionContext,
    peer: Peer,
    send: (frames: readonly Uint8Array[]) => boolean,
    slots: number,
    onLeft: () => void,
  ) {
    this.#context = context;
    this.#send = send;
    this.#slots = slots;
    this.#onLeft = onLeft;
    this.#expectedIncrements = new ExpectedIncrements(context.now);
    const { services, pool } = context;
    const who = { name: printable(peer.identity, 255), address: peer.address, pool };
    this.#profile = callWorkerProfile("round-robin", who, services.offered, slots);
    this.#tasks = new CallTasks(context.core, this.#profile.id, context.timeoutMs);
    if (context.joinDelayMs > 0) this.#joinTimer = setTimeout(() => this.#join(), context.joinDelayMs);
    else this.#join();
  }

  get slots(): number {
    return this.#slots;
  }

  get freeSlots(): number {
    const { size, carriedOver } = this.#outstanding;
    return Math.max(0, this.#slots - (size - carriedOver));
  }

  /** Messages that it has been given so far. */
  get messages(): number {
    return this.#messages;
  }

  get inTable(): boolean {
    return this.#state === "joining" || this.#state === "working";
  }

  /** REGISTER from an address that is known: its slots are overwritten, whatever it still has. */
  register(slots: number): void {
    this.#slots = slots;
    this.#outstanding.carryOverAll();
    if (this.#state === "leaving") this.#state = "working";
    this.updateProfile();
  }

  /** What it offers, or how much of it, has changed. */
  updateProfile(): void {
    if (this.#state === "closed") return;
    const services = this.#state === "leaving" ? [] : this.#context.services.offered;
    this.#profile = { ...this.#profile, services, total: { slots: this.#totalSlots } };
    if (this.#state !== "joining") this.#context.core.workerChanged(this.#profile);
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

  /** Its connection or its heartbeats are gone: what it has is lost. */
  lost(): void {
    this.#end(false);
  }

  increment(): void {
    if (this.#expectedIncrements.take()) return;
    const one = this.#outstanding.likelyDone;
    if (one === undefined) return;
    const why = Buffer.from("the worker was done with it and gave no answer");
    // A client of this protocol may still get its RESPONSE, which is passed on then; for anyone else it would come too late.
    if (one.otherProtocol === undefined) this.#finish(one, () => one.done(EMPTY, undefined, SLOT_FREED));
    else this.#finish(one, () => one.done(why, "LABORO_SERVICE_FAILED"));
  }

  /** False where it answers none of the messages that the worker has: then it is only passed on. `frames` are what the asker would get. */
  responded({ to, id, args }: Message, frames: () => readonly Uint8Array[]): boolean {
    const one = this.#outstanding.byReplyKey(replyKey(to, id));
    if (one === undefined) return false;
    if (one.otherProtocol === undefined)
      this.#answered(one, () => one.done(EMPTY, undefined, new ForwardedReply(frames())));
    else if (one.otherProtocol.stream === undefined) this.#read(one, () => readReply(args));
    else this.#streamed(one, one.otherProtocol.stream, args);
    return true;
  }

  // Calls of the core

  assign(job: Job, tasks: AttemptRange, entries: Entries | undefined): void {
    this.#tasks.begin(
      job,
      tasks,
      entries,
      ({ name, service, body, done }) => this.#sendRequest(name, service, body, done),
      (name) => this.#expire(name, "no answer came before the time limit"),
    );
  }

  /** Assigned tasks are sent at once: there are no prefetched tasks to take back. */
  retract(): void {}

  cancel(tasks: readonly AttemptRange[]): void {
    for (const name of this.#tasks.runningIn(tasks)) {
      const one = this.#outstanding.byName(name);
      if (one !== undefined) this.#abandon(one, () => this.#tasks.returnTask(name));
    }
  }

  call(request: RequestId, service: string, body: Uint8Array, _timeoutMs: number, attachment?: unknown): void {
    const name = `request ${request}`;
    const done: OutstandingMessage["done"] = (answer, error, attached) =>
      this.#context.core.requests.replied(this.#profile.id, request, answer, error, attached);
    if (attachment instanceof ClientCall) this.#forward(name, attachment, done);
    else this.#sendRequest(name, service, body, done);
  }

  cancelCall(request: RequestId): void {
    this.#expire(`request ${request}`, "nobody waits for it any more");
  }

  drain(): void {}

  /** The protocol has no word for it; it is no longer given anything. */
  stop(): void {
    this.deregister();
  }

  close(): void {}

  #join(): void {
    if (this.#state !== "joining") return;
    this.#state = "working";
    const { core } = this.#context;
    core.workerJoins(this.#profile, [], this).then(
      () => {
        // Where the store had to be asked first, it may have gone meanwhile.
        if (this.#state === "closed") core.workerDisconnected(this.#profile.id, this, true);
      },
      () => this.#end(true),
    );
  }

  /** As the client sent it, with the client's address behind it. */
  #forward(name: string, { client, message }: ClientCall, done: OutstandingMessage["done"]): void {
    const { command, id, args, returnPath } = message;
    const path = [...returnPath, client];
    const key = replyKey([...path].reverse(), id);
    const one = { name, key, expectsIncrement: sendsIncrement(args[0]), tracked: command === "TRACKEXEC", done };
    this.#sendMessage(one, makeMessage({ command, id, args, returnPath: path }));
  }

  /** For somebody who knows nothing of frames. */
  #sendRequest(name: string, service: string, body: Uint8Array, done: OutstandingMessage["done"]): void {
    const { services, ownAddress, maxStreamBytes } = this.#context;
    const command = services.commandOf(service);
    if (command === undefined) {
      done(Buffer.from(`no command for ${service}`), "LABORO_SERVICE_FAILED");
      return;
    }
    const streamed = isArgument(command, STREAM);
    const id = id8(++this.#ids);
    const otherProtocol = streamed ? { stream: new StreamReader(maxStreamBytes) } : {};
    const key = replyKey([ownAddress], id);
    const one = { name, key, expectsIncrement: sendsIncrement(command), tracked: true, otherProtocol, done };
    this.#sendMessage(
      one,
      makeMessage({ command: "TRACKEXEC", id, args: argsOf(command, body), returnPath: [ownAddress] }),
    );
  }

  #sendMessage(one: OutstandingMessage, frames: readonly Uint8Array[]): void {
    this.#messages++;
    this.#outstanding.add(one);
    if (this.#send(frames)) return;
    const why = Buffer.from(`too much is on its way to ${this.#profile.name} already`);
    this.#finish(one, () => one.done(why, "LABORO_WORKER_LOST"));
  }

  #streamed(one: OutstandingMessage, stream: StreamReader, args: readonly Buffer[]): void {
    let taken: Buffer | { readonly next: Buffer };
    try {
      taken = stream.take(readReply(args));
    } catch (cause) {
      this.#read(one, () => {
        throw cause;
      });
      return;
    }
    if (taken instanceof Uint8Array) {
      const data = taken;
      this.#read(one, () => data);
      return;
    }
    // The next packet is asked for under an id of its own, of this worker, whose INCREMENT may come now or at the end.
    const { ownAddress } = this.#context;
    const id = id8(++this.#ids);
    if (one.expectsIncrement) this.#expectedIncrements.add(LATE_INCREMENT_TIMEOUT_MS, this.#slots);
    this.#outstanding.replace(one, { ...one, key: replyKey([ownAddress], id), expectsIncrement: false });
    const more = [MQS_MORE, HOST_ID, taken.next, Buffer.from("0")];
    this.#send(makeMessage({ command: "TRACKEXEC", id, args: more, returnPath: [ownAddress] }));
  }

  #read(one: OutstandingMessage, read: () => Buffer): void {
    this.#answered(one, () => {
      try {
        one.done(read(), undefined);
      } catch (cause) {
        if (!(cause instanceof LaboroError)) throw cause;
        const { code, message } = asLaboroError(cause);
        one.done(Buffer.from(message), code);
      }
    });
  }

  #answered(one: OutstandingMessage, notify: () => void): void {
    if (one.expectsIncrement) this.#expectedIncrements.add(INCREMENT_TIMEOUT_MS, this.#slots);
    this.#finish(one, notify);
  }

  /** Its time is over; the worker may still work on it. */
  #expire(name: string, why: string): void {
    const one = this.#outstanding.byName(name);
    if (one !== undefined) this.#abandon(one, () => one.done(Buffer.from(why), "LABORO_DEADLINE"));
  }

  #abandon(one: OutstandingMessage, notify: () => void): void {
    if (one.expectsIncrement) this.#expectedIncrements.add(LATE_INCREMENT_TIMEOUT_MS, this.#slots);
    this.#finish(one, notify);
  }

  /** The worker is done with it, as far as the broker is concerned. */
  #finish(one: OutstandingMessage, notify: () => void): void {
    if (this.#outstanding.remove(one)) this.#context.core.workerSlots(this.#profile.id, this.#totalSlots);
    notify();
    this.#leaveWhenDone();
  }

  #leaveWhenDone(): void {
    if (this.#state === "leaving" && this.#outstanding.size === 0) this.#end(true);
  }

  #end(orderly: boolean): void {
    if (this.#state === "closed") return;
    const leaving = this.#state === "leaving" || this.#state === "joining";
    this.#state = "closed";
    clearTimeout(this.#joinTimer);
    this.#tasks.clear();
    this.#outstanding.clear();
    this.#context.core.workerDisconnected(this.#profile.id, this, orderly);
    if (leaving) this.#onLeft();
  }
}

/** PING has no arguments: an original that gets one puts it into the head of its answer, and closes its socket over that. */
function argsOf(command: Buffer, body: Uint8Array): readonly Uint8Array[] {
  if (isArgument(command, STREAM)) return [command, HOST_ID, body];
  return body.length === 0 || isArgument(command, PING_ARGUMENT) ? [command] : [command, body];
}

/** Handlers of the library itself send none. */
const sendsIncrement = (command: Buffer | undefined): boolean =>
  !isArgument(command, MQS_MORE) && !isArgument(command, ONGOING);
