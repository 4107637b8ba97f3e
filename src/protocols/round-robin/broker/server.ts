/**
 * The server of the round-robin queue: what becomes of each message.
 *
 * First frame not empty: it is passed on to that address, with the sender's put behind it. Empty: PING is answered here; EXEC and TRACKEXEC
 * of REGISTER, DEREGISTER and INCREMENT are about the worker table; any other EXEC or TRACKEXEC is a request, for which the core finds a
 * worker. A peer's first message decides what it gets first: one that begins with PING must hear PONG before anything else.
 */
import { randomBytes } from "node:crypto";
import { now } from "../../../base/clock.js";
import type { Conversation } from "../../../base/conversations.js";
import type { DoorContext } from "../../../broker/listeners/door.js";
import { DEFAULT_POOL } from "../../../model/recipe.js";
import type { Peer, Router } from "../../zeromq/index.js";
import { answerOf, bodyOf, ClientCall, Forwarded, refusalOf, SLOT_ONLY } from "../calls.js";
import { describe, nameOf } from "../describe.js";
import {
  copyOf,
  DEREGISTER,
  EMPTY,
  FAILURE,
  INCREMENT,
  id8,
  isArgument,
  type Message,
  makeMessage,
  REGISTER,
  readMessage,
  readNumber,
  shown,
} from "../frames.js";
import type { RegisteredWorkers } from "./registered.js";
import type { Patience } from "./rhythm.js";
import { CommandServices } from "./services.js";
import { type WorkerRow, WorkerTable } from "./worker-table.js";

export const DOOR = "round-robin";

const TIMEOUT_MS = 300_000;
const SETTLE_MS = 100;
/** A worker of ours greets at once when it connects again; an original, which did so long ago, says nothing. */
const SILENT_MS = 1_000;
const MOST_SLOTS = 1_000_000;
/** Bytes of messages that wait for a worker or an answer. */
const MOST_HELD_BYTES = 256 * 1024 * 1024;
const MOST_STREAM_BYTES = 64 * 1024 * 1024;
/** What a request costs besides its bytes. */
const OVERHEAD_BYTES = 1_000;
/** Messages for a peer that has said nothing yet. */
const MOST_EARLY = 1_000;
/** Peers that were here and are remembered. */
const MOST_GREETED = 100_000;

interface Present {
  readonly peer: Peer;
  readonly conversation: Conversation;
  /** What may leave only after its first message has come; undefined from then on. */
  early: (readonly Uint8Array[])[] | undefined;
  /** Runs until the first message of a worker that was set aside. */
  silence?: NodeJS.Timeout;
}

export interface ServerOptions {
  /** Told of each message, for a console. */
  readonly trace?: (message: Message, from: string) => void;
  /** Between the answer to REGISTER and the first message for that worker. */
  readonly settleMs?: number;
  /** With workers whose heartbeats stop. */
  readonly patience?: Patience;
}

export class RoundRobinServer {
  readonly #context: DoorContext;
  readonly #router: () => Router;
  readonly #options: ServerOptions;
  readonly #services: CommandServices;
  readonly #pool: string;
  readonly #table: WorkerTable;
  readonly #present = new Map<string, Present>();
  /** A peer that connects again by itself does no handshake again: it waits for its answers. */
  readonly #greeted = new Set<string>();
  readonly #ownAddress = Buffer.from(`laboro:${randomBytes(4).toString("hex")}`);
  #heldBytes = 0;

  constructor(context: DoorContext, router: () => Router, registered: RegisteredWorkers, options: ServerOptions = {}) {
    this.#context = context;
    this.#router = router;
    this.#options = options;
    const { core, settings } = context;
    this.#pool = settings.pool ?? DEFAULT_POOL;
    this.#services = new CommandServices(settings.services ?? {}, () => this.#table.offerAll());
    const around = {
      core,
      services: this.#services,
      pool: this.#pool,
      ownAddress: this.#ownAddress,
      now,
      streamBytes: MOST_STREAM_BYTES,
      settleMs: options.settleMs ?? SETTLE_MS,
      timeoutMs: settings.requestTimeoutMs ?? TIMEOUT_MS,
    };
    const send = (key: string, frames: readonly Uint8Array[]): boolean => this.#send(key, frames);
    this.#table = new WorkerTable(around, send, registered, options.patience);
  }

  workers(): WorkerRow[] {
    return this.#table.rows();
  }

  close(): void {
    this.#table.close();
    for (const { conversation, silence } of this.#present.values()) {
      clearTimeout(silence);
      conversation.end();
    }
    this.#present.clear();
  }

  // What the socket says

  joined(peer: Peer): void {
    const conversation = this.#context.conversations.begin(DOOR, peer.address);
    conversation.named(shown(peer.identity, 255));
    const present: Present = { peer, conversation, early: this.#greeted.has(peer.key) ? undefined : [] };
    clearTimeout(this.#present.get(peer.key)?.silence);
    this.#present.set(peer.key, present);
    if (!this.#table.isAside(peer)) return;
    present.silence = setTimeout(() => {
      this.#welcome(present, () => this.#table.back(peer));
    }, SILENT_MS);
  }

  left(peer: Peer): void {
    const present = this.#present.get(peer.key);
    if (present?.peer !== peer) return;
    clearTimeout(present.silence);
    this.#present.delete(peer.key);
    this.#table.setAside(peer);
    present.conversation.end();
  }

  /** Somebody may be gone: a PONG that nobody asked for does no harm, and cannot be sent to one that is. */
  doubted(): void {
    for (const key of this.#present.keys()) this.#send(key, makeMessage({ command: "PONG", id: id8(0) }));
  }

  message(peer: Peer, frames: readonly Buffer[]): void {
    const present = this.#present.get(peer.key);
    if (present?.peer !== peer) return;
    present.conversation.heard(() => describe(frames));
    this.#table.heard(peer);
    const message = readMessage(frames);
    if (typeof message === "string") {
      this.#complain(peer, `a message was dropped: ${message}`);
      return;
    }
    this.#options.trace?.(message, shown(peer.identity, 255));
    clearTimeout(present.silence);
    this.#welcome(present, () => {
      if (message.to.length > 0) this.#passOn(peer, message, frames);
      else this.#handle(peer, message);
      this.#table.back(peer);
    });
  }

  /** What waited for this peer's first message goes after what `act` says to it. */
  #welcome(present: Present, act: () => void): void {
    const { early, peer } = present;
    if (early !== undefined) this.#greet(present);
    act();
    for (const waiting of early ?? []) this.#send(peer.key, waiting);
  }

  #greet(present: Present): void {
    present.early = undefined;
    this.#greeted.add(present.peer.key);
    const [oldest] = this.#greeted;
    if (this.#greeted.size > MOST_GREETED && oldest !== undefined) this.#greeted.delete(oldest);
  }

  // Messages for the server itself

  #handle(peer: Peer, message: Message): void {
    const { command, id, args } = message;
    if (command === "PING") {
      this.#respond(peer, message, "PONG");
      this.#table.pinged(peer);
    } else if (command === "EXEC" || command === "TRACKEXEC") {
      const [what] = args;
      if (isArgument(what, REGISTER)) this.#register(peer, message);
      else if (isArgument(what, DEREGISTER)) this.#obey(peer, message, () => this.#table.deregister(peer));
      else if (isArgument(what, INCREMENT)) this.#obey(peer, message, () => this.#table.increment(peer));
      else this.#request(peer, message);
    } else if (command !== "PONG") {
      this.#complain(peer, `${command} ${shown(id)} is for nobody`);
    }
  }

  #register(peer: Peer, message: Message): void {
    const slots = readNumber(message.args[1], MOST_SLOTS);
    if (slots !== undefined) {
      this.#obey(peer, message, () => this.#table.register(peer, slots));
      return;
    }
    this.#complain(peer, `REGISTER with ${shown(message.args[1] ?? EMPTY)} slots`);
    if (message.command === "TRACKEXEC") this.#respond(peer, message, "RESPONSE", [FAILURE]);
  }

  /** A TRACKEXEC is answered first: a message that follows from it must not come before. */
  #obey(peer: Peer, message: Message, act: () => void): void {
    if (message.command === "TRACKEXEC") this.#respond(peer, message, "RESPONSE");
    act();
  }

  #respond(peer: Peer, { id, back }: Message, command: "PONG" | "RESPONSE", args: readonly Uint8Array[] = []): void {
    this.#send(peer.key, makeMessage({ to: [...back].reverse(), command, id, args }));
  }

  // Requests

  #request(peer: Peer, given: Message): void {
    const { command, id } = given;
    const size = OVERHEAD_BYTES + id.length + given.args.reduce((sum, { length }) => sum + length, 0);
    // No worker has a command without a name, and an original would keep the slot.
    const empty = (given.args[0]?.length ?? 0) === 0;
    if (empty || this.#heldBytes + size > MOST_HELD_BYTES) {
      const why = empty ? "it asks for nothing" : "too much waits already";
      this.#complain(peer, `${command} ${shown(id)} is refused: ${why}`);
      if (command === "TRACKEXEC") this.#respond(peer, given, "RESPONSE", [refusalOf(given.args[0])]);
      return;
    }
    const message = copyOf(given);
    const [what = EMPTY, ...rest] = message.args;
    this.#heldBytes += size;
    const { core, complaints, settings } = this.#context;
    core.request(
      {
        service: this.#services.serviceOf(what),
        pool: this.#pool,
        body: bodyOf(rest),
        timeoutMs: settings.requestTimeoutMs ?? TIMEOUT_MS,
        retry: false,
        attachment: new ClientCall(peer.identity, message),
      },
      (body, error, attachment) => {
        this.#heldBytes -= size;
        if (attachment === SLOT_ONLY) return;
        if (attachment instanceof Forwarded) {
          this.#send(peer.key, attachment.frames);
        } else if (command === "TRACKEXEC") {
          this.#answer(peer, message, "RESPONSE", [this.#ownAddress], answerOf(what, body, error !== undefined));
        } else if (error !== undefined) {
          complaints.about(DOOR, peer.address, error, `an EXEC was lost: ${Buffer.from(body).toString() || error}`);
        }
      },
    );
  }

  // Messages for others

  #passOn(peer: Peer, message: Message, [address = EMPTY, ...rest]: readonly Buffer[]): void {
    const { command, to, args } = message;
    const forward = (): Buffer[] => [...rest, peer.identity];
    if (command === "RESPONSE" && this.#table.responded(peer, message, forward)) return;
    if (address.equals(this.#ownAddress)) {
      // Workers of other protocols are all behind this address: their heartbeats are the server's.
      if (command === "PING") this.#answer(peer, message, "PONG", [address]);
      else if (command === "TRACKEXEC") this.#answer(peer, message, "RESPONSE", [address], [refusalOf(args[0])]);
      return;
    }
    if (this.#send(address.toString("latin1"), forward())) return;
    const why = `${nameOf(message)} for ${shown(address)}: nobody is there`;
    this.#context.complaints.about(DOOR, peer.address, "LABORO_NO_SUCH_WORKER", why);
    // A request to one that is gone is lost, and that is said; the rest was for nobody.
    if (command === "TRACKEXEC") this.#answer(peer, message, "RESPONSE", to, [refusalOf(args[0])]);
  }

  /** In the place of the worker `from`. */
  #answer(
    peer: Peer,
    { id, back }: Message,
    command: "PONG" | "RESPONSE",
    from: readonly Buffer[],
    args: readonly Uint8Array[] = [],
  ): void {
    this.#send(peer.key, makeMessage({ to: [...back].reverse(), command, id, args, back: from }));
  }

  #send(key: string, frames: readonly Uint8Array[]): boolean {
    const present = this.#present.get(key);
    if (present === undefined) return false;
    if (present.early !== undefined) {
      if (present.early.length >= MOST_EARLY) return false;
      present.early.push(frames);
      return true;
    }
    const sent = this.#router().send(key, frames);
    if (sent) present.conversation.said(() => describe(frames));
    return sent;
  }

  #complain({ address }: Peer, why: string): void {
    this.#context.complaints.about(DOOR, address, "LABORO_BAD_MESSAGE", why);
  }
}
