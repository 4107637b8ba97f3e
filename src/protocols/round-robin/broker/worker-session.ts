/**
 * A worker of the round-robin queue, at the server.
 *
 *   settling   REGISTER was answered; the worker installs its commands only then, so it gets its first message a moment later
 *   working    it is in the worker table: it gets messages while it has slots
 *   leaving    DEREGISTER has come: nothing new; it goes when what it has is answered
 *   closed     deregistered, set aside, or its connection is gone
 *
 * A slot is taken by each message that goes to the worker, and freed by the RESPONSE, by a time-out, or by INCREMENT. The original sends
 * INCREMENT after the RESPONSE too: that one is owed, and swallowed when it comes.
 */
import { randomUUID } from "node:crypto";
import { asLaboroError, LaboroError } from "../../../base/errors.js";
import type { Core, WorkerPort } from "../../../broker/core.js";
import { CallTasks } from "../../../broker/sessions/call-tasks.js";
import type { TasksOf, WorkerProfile } from "../../../dispatch/index.js";
import { type RequestId, SessionId, WorkerId } from "../../../model/ids.js";
import type { Entries, Job } from "../../../model/job.js";
import { ClientCall, Forwarded, readAnswer, SLOT_ONLY } from "../calls.js";
import {
  EMPTY,
  id8,
  isArgument,
  type Message,
  MQS_MORE,
  makeMessage,
  ONGOING,
  PING_ARGUMENT,
  STREAM,
  shown,
} from "../frames.js";
import { StreamReader } from "../stream.js";
import { type Outstanding, OutstandingMessages, replyKey } from "./outstanding.js";
import { OwedIncrements } from "./owed.js";
import type { CommandServices } from "./services.js";

export interface WorkerSurroundings {
  readonly core: Core;
  readonly services: CommandServices;
  readonly pool: string;
  /** The address from which messages of others than round-robin clients come. */
  readonly ownAddress: Buffer;
  readonly now: () => number;
  /** Bytes of a stream that is put together here. */
  readonly streamBytes: number;
  readonly settleMs: number;
  /** For tasks without a time limit of their own. */
  readonly timeoutMs: number;
}

export interface WorkerPeer {
  readonly identity: Buffer;
  readonly address: string;
  send(frames: readonly Uint8Array[]): boolean;
}

/** How long after a RESPONSE its INCREMENT is waited for… */
const OWED_MS = 10_000;
/** …and how long after a time-out, when the worker may still be at it. */
const OWED_LATE_MS = 3_600_000;
const HOST_ID = Buffer.from("laboro");

export class WorkerSession implements WorkerPort {
  readonly #around: WorkerSurroundings;
  readonly #peer: WorkerPeer;
  readonly #left: () => void;
  readonly #outstanding = new OutstandingMessages();
  readonly #tasks: CallTasks;
  readonly #owed: OwedIncrements;
  #state: "settling" | "working" | "leaving" | "closed" = "settling";
  #slots: number;
  #profile: WorkerProfile;
  #settling: NodeJS.Timeout | undefined;
  #ids = 0;
  #handled = 0;

  /** `left` is called when a worker that was leaving has gone. */
  constructor(around: WorkerSurroundings, peer: WorkerPeer, slots: number, left: () => void) {
    this.#around = around;
    this.#peer = peer;
    this.#slots = slots;
    this.#left = left;
    this.#owed = new OwedIncrements(around.now);
    this.#profile = profileOf(around, peer, slots);
    this.#tasks = new CallTasks(around.core, this.#profile.id, around.timeoutMs);
    if (around.settleMs > 0) this.#settling = setTimeout(() => this.#join(), around.settleMs);
    else this.#join();
  }

  get slots(): number {
    return this.#slots;
  }

  get free(): number {
    const { size, carried } = this.#outstanding;
    return Math.max(0, this.#slots - (size - carried));
  }

  /** Messages that it has been given so far. */
  get handled(): number {
    return this.#handled;
  }

  get inTable(): boolean {
    return this.#state === "settling" || this.#state === "working";
  }

  /** REGISTER from an address that is known: its slots are overwritten, whatever it still has. */
  register(slots: number): void {
    this.#slots = slots;
    this.#outstanding.carryAll();
    if (this.#state === "leaving") this.#state = "working";
    this.offer();
  }

  /** What it offers, or how much of it, has changed. */
  offer(): void {
    if (this.#state === "closed") return;
    const services = this.#state === "leaving" ? [] : this.#around.services.offered;
    this.#profile = { ...this.#profile, services, total: { slots: this.#slots + this.#outstanding.carried } };
    if (this.#state !== "settling") this.#around.core.workerChanged(this.#profile);
  }

  deregister(): void {
    if (this.#state === "settling") {
      this.#end(true);
    } else if (this.#state === "working") {
      this.#state = "leaving";
      this.offer();
      this.#leaveWhenDone();
    }
  }

  /** Its connection or its heartbeats are gone: what it has is lost. */
  lost(): void {
    this.#end(false);
  }

  increment(): void {
    if (this.#owed.take()) return;
    const one = this.#outstanding.likelyDone;
    if (one === undefined) return;
    const why = Buffer.from("the worker was done with it and gave no answer");
    // A client of this protocol may still get its RESPONSE, which is passed on then; for anyone else it would come too late.
    if (one.own === undefined) this.#over(one, () => one.done(EMPTY, undefined, SLOT_ONLY));
    else this.#over(one, () => one.done(why, "LABORO_SERVICE_FAILED"));
  }

  /** False where it answers none of the messages that the worker has: then it is only passed on. `frames` are what the asker would get. */
  responded({ to, id, args }: Message, frames: () => readonly Uint8Array[]): boolean {
    const one = this.#outstanding.answeredBy(replyKey(to, id));
    if (one === undefined) return false;
    if (one.own === undefined) this.#answered(one, () => one.done(EMPTY, undefined, new Forwarded(frames())));
    else if (one.own.stream === undefined) this.#read(one, () => readAnswer(args));
    else this.#streamed(one, one.own.stream, args);
    return true;
  }

  // What the core says

  tasks(job: Job, tasks: TasksOf, entries: Entries | undefined): void {
    this.#tasks.begin(
      job,
      tasks,
      entries,
      ({ name, service, body, done }) => this.#ask(name, service, body, done),
      (name) => this.#expire(name, "no answer came before the time limit"),
    );
  }

  /** What was handed out is under way: there is no stock to take back. */
  retract(): void {}

  cancel(tasks: readonly TasksOf[]): void {
    for (const name of this.#tasks.among(tasks)) {
      const one = this.#outstanding.named(name);
      if (one !== undefined) this.#abandon(one, () => this.#tasks.giveBack(name));
    }
  }

  call(request: RequestId, service: string, body: Uint8Array, _timeoutMs: number, attachment?: unknown): void {
    const name = `request ${request}`;
    const done: Outstanding["done"] = (answer, error, attached) =>
      this.#around.core.workerReplied(this.#profile.id, request, answer, error, attached);
    if (attachment instanceof ClientCall) this.#pass(name, attachment, done);
    else this.#ask(name, service, body, done);
  }

  uncall(request: RequestId): void {
    this.#expire(`request ${request}`, "nobody waits for it any more");
  }

  drain(): void {}

  /** The protocol has no word for it; it is no longer given anything. */
  stop(): void {
    this.deregister();
  }

  close(): void {}

  #join(): void {
    if (this.#state !== "settling") return;
    this.#state = "working";
    const { core } = this.#around;
    core.workerJoins(this.#profile, [], this).then(
      () => {
        // Where the store had to be asked first, it may have gone meanwhile.
        if (this.#state === "closed") core.workerGone(this.#profile.id, this, true);
      },
      () => this.#end(true),
    );
  }

  /** As the client sent it, with the client's address behind it. */
  #pass(name: string, { client, message }: ClientCall, done: Outstanding["done"]): void {
    const { command, id, args, back } = message;
    const way = [...back, client];
    const key = replyKey([...way].reverse(), id);
    const one = { name, key, increments: sendsIncrement(args[0]), tracked: command === "TRACKEXEC", done };
    this.#give(one, makeMessage({ command, id, args, back: way }));
  }

  /** For somebody who knows nothing of frames. */
  #ask(name: string, service: string, body: Uint8Array, done: Outstanding["done"]): void {
    const { services, ownAddress, streamBytes } = this.#around;
    const command = services.commandOf(service);
    if (command === undefined) {
      done(Buffer.from(`no command for ${service}`), "LABORO_SERVICE_FAILED");
      return;
    }
    const streamed = isArgument(command, STREAM);
    const id = id8(++this.#ids);
    const own = streamed ? { stream: new StreamReader(streamBytes) } : {};
    const key = replyKey([ownAddress], id);
    const one = { name, key, increments: sendsIncrement(command), tracked: true, own, done };
    this.#give(one, makeMessage({ command: "TRACKEXEC", id, args: argsOf(command, body), back: [ownAddress] }));
  }

  #give(one: Outstanding, frames: readonly Uint8Array[]): void {
    this.#handled++;
    this.#outstanding.enter(one);
    if (this.#peer.send(frames)) return;
    const why = Buffer.from(`too much is on its way to ${this.#profile.name} already`);
    this.#over(one, () => one.done(why, "LABORO_WORKER_LOST"));
  }

  #streamed(one: Outstanding, stream: StreamReader, args: readonly Buffer[]): void {
    let taken: Buffer | { readonly next: Buffer };
    try {
      taken = stream.take(readAnswer(args));
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
    const { ownAddress } = this.#around;
    const id = id8(++this.#ids);
    if (one.increments) this.#owed.add(OWED_LATE_MS, this.#slots);
    this.#outstanding.replace(one, { ...one, key: replyKey([ownAddress], id), increments: false });
    const more = [MQS_MORE, HOST_ID, taken.next, Buffer.from("0")];
    this.#peer.send(makeMessage({ command: "TRACKEXEC", id, args: more, back: [ownAddress] }));
  }

  #read(one: Outstanding, read: () => Buffer): void {
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

  #answered(one: Outstanding, told: () => void): void {
    if (one.increments) this.#owed.add(OWED_MS, this.#slots);
    this.#over(one, told);
  }

  /** Its time is over; the worker may still be at it. */
  #expire(name: string, why: string): void {
    const one = this.#outstanding.named(name);
    if (one !== undefined) this.#abandon(one, () => one.done(Buffer.from(why), "LABORO_DEADLINE"));
  }

  #abandon(one: Outstanding, told: () => void): void {
    if (one.increments) this.#owed.add(OWED_LATE_MS, this.#slots);
    this.#over(one, told);
  }

  /** The worker is done with it, as far as the broker is concerned. */
  #over(one: Outstanding, told: () => void): void {
    if (this.#outstanding.remove(one)) this.offer();
    told();
    this.#leaveWhenDone();
  }

  #leaveWhenDone(): void {
    if (this.#state === "leaving" && this.#outstanding.size === 0) this.#end(true);
  }

  #end(orderly: boolean): void {
    if (this.#state === "closed") return;
    const leaving = this.#state === "leaving" || this.#state === "settling";
    this.#state = "closed";
    clearTimeout(this.#settling);
    this.#tasks.clear();
    this.#outstanding.clear();
    this.#around.core.workerGone(this.#profile.id, this, orderly);
    if (leaving) this.#left();
  }
}

function profileOf(
  { services, pool }: WorkerSurroundings,
  { identity, address }: WorkerPeer,
  slots: number,
): WorkerProfile {
  const name = shown(identity, 255);
  return {
    id: WorkerId(`round-robin:${name}`),
    session: SessionId(randomUUID()),
    name,
    protocol: "round-robin",
    pool,
    tags: [],
    services: services.offered,
    total: { slots },
    reserveRequests: 0,
    resumable: false,
    stocks: false,
    runs: ["call"],
    address,
  };
}

/** PING has no arguments: an original that gets one puts it into the head of its answer, and closes its socket over that. */
function argsOf(command: Buffer, body: Uint8Array): readonly Uint8Array[] {
  if (isArgument(command, STREAM)) return [command, HOST_ID, body];
  return body.length === 0 || isArgument(command, PING_ARGUMENT) ? [command] : [command, body];
}

/** Handlers of the library itself send none. */
const sendsIncrement = (command: Buffer | undefined): boolean =>
  !isArgument(command, MQS_MORE) && !isArgument(command, ONGOING);
