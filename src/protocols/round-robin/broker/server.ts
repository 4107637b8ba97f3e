/**
 * The server of the round-robin queue: what becomes of each message.
 *
 * First frame not empty: it is passed on to that address, with the sender's put behind it. Empty: PING is answered here; EXEC and TRACKEXEC
 * of REGISTER, DEREGISTER and INCREMENT are about the worker table; any other EXEC or TRACKEXEC is a request, for which the core finds a
 * worker. A peer's first message decides what it gets first: one that begins with PING must get PONG before anything else.
 */
import { randomBytes } from "node:crypto";
import { now } from "../../../base/clock.js";
import { keepLatest } from "../../../base/keep-latest.js";
import type { TracedConnection } from "../../../base/traced-connections.js";
import type { ListenerContext } from "../../../broker/listeners/listener.js";
import { DEFAULT_POOL } from "../../../model/recipe.js";
import type { Peer, Router, RouterListener } from "../../zeromq/index.js";
import { bodyOf, ClientCall, ForwardedReply, failureReply, replyArguments, SLOT_FREED } from "../calls.js";
import { describeMessage, messageName } from "../describe.js";
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
  printable,
  REGISTER,
  readMessage,
  readNumber,
} from "../frames.js";
import type { HeartbeatLimits } from "./heartbeat-monitor.js";
import { replyKey } from "./outstanding-messages.js";
import { CommandServices } from "./services.js";
import { type RegisteredWorkers, type WorkerRow, WorkerTable } from "./worker-table.js";

export const PROTOCOL = "round-robin";

const TIMEOUT_MS = 300_000;
const JOIN_DELAY_MS = 100;
/** laboro's own worker greets at once when it reconnects. An original greets only on its first connection. */
const SILENT_MS = 1_000;
const MAX_SLOTS = 1_000_000;
/** Bytes of messages that wait for a worker or an answer: of all peers, and of one. */
const MAX_PENDING_BYTES = 256 * 1024 * 1024;
const MAX_PENDING_BYTES_OF_PEER = 128 * 1024 * 1024;
const MAX_STREAM_BYTES = 64 * 1024 * 1024;
/** What a request costs besides its bytes. */
const OVERHEAD_BYTES = 1_000;
/** Messages for a peer that has said nothing yet, and their bytes; the bytes for all such peers. */
const MAX_QUEUED_MESSAGES = 1_000;
const MAX_QUEUED_BYTES = 64 * 1024 * 1024;
const MAX_QUEUED_BYTES_IN_ALL = 256 * 1024 * 1024;
/** Peers that were here and are remembered. */
const MAX_GREETED = 100_000;
/** Refused requests whose worker may still answer, and the bytes of one. */
const MAX_REFUSED = 10_000;
const MAX_REFUSED_BYTES = 1_024;

interface PeerConnection {
  readonly peer: Peer;
  readonly traced: TracedConnection;
  /** What may leave only after its first message has come; undefined from then on. */
  queued: (readonly Uint8Array[])[] | undefined;
  queuedBytes: number;
  /** Of its requests that have no answer. */
  pendingBytes: number;
  /** Runs until the first message of a worker that was set aside. */
  silenceTimer?: NodeJS.Timeout;
}

export interface RoundRobinServerOptions {
  /** Called with each message, for a console; `to` is the address that it was passed on to. */
  readonly trace?: (message: Message, from: string, to?: string) => void;
  /** Between the answer to REGISTER and the first message for that worker. */
  readonly joinDelayMs?: number;
  /** When a worker whose heartbeats stop is given up. */
  readonly heartbeatLimits?: HeartbeatLimits;
}

export class RoundRobinServer implements RouterListener {
  readonly #context: ListenerContext;
  readonly #router: () => Router;
  readonly #options: RoundRobinServerOptions;
  readonly #services: CommandServices;
  readonly #pool: string;
  readonly #table: WorkerTable;
  readonly #peers = new Map<string, PeerConnection>();
  /** A peer that connects again by itself does no handshake again: it waits for its answers. */
  readonly #greeted = new Set<string>();
  readonly #ownAddress = Buffer.from(`laboro:${randomBytes(4).toString("hex")}`);
  /** By the way to the asker and the id: a RESPONSE that comes after the refusal would be a second one. */
  readonly #refused = new Set<string>();
  #pendingBytes = 0;
  #queuedBytes = 0;

  constructor(
    context: ListenerContext,
    router: () => Router,
    registered: RegisteredWorkers,
    options: RoundRobinServerOptions = {},
  ) {
    this.#context = context;
    this.#router = router;
    this.#options = options;
    const { core, settings } = context;
    this.#pool = settings.pool ?? DEFAULT_POOL;
    this.#services = new CommandServices(settings.services ?? {}, () => this.#table.updateProfiles());
    const workerContext = {
      core,
      services: this.#services,
      pool: this.#pool,
      ownAddress: this.#ownAddress,
      now,
      maxStreamBytes: MAX_STREAM_BYTES,
      joinDelayMs: options.joinDelayMs ?? JOIN_DELAY_MS,
      timeoutMs: settings.requestTimeoutMs ?? TIMEOUT_MS,
    };
    const send = (key: string, frames: readonly Uint8Array[]): boolean => this.#send(key, frames);
    this.#table = new WorkerTable(workerContext, send, registered, options.heartbeatLimits);
  }

  workers(): WorkerRow[] {
    return this.#table.rows();
  }

  close(): void {
    this.#table.close();
    for (const { traced, silenceTimer } of this.#peers.values()) {
      clearTimeout(silenceTimer);
      traced.close();
    }
    this.#peers.clear();
  }

  // Events of the socket

  joined(peer: Peer): void {
    const traced = this.#context.connections.open(PROTOCOL, peer.address);
    traced.setPeer(printable(peer.identity, 255));
    const queued = this.#greeted.has(peer.key) ? undefined : [];
    const present: PeerConnection = { peer, traced, queued, queuedBytes: 0, pendingBytes: 0 };
    const before = this.#peers.get(peer.key);
    if (before !== undefined) this.#forget(before);
    this.#peers.set(peer.key, present);
    if (!this.#table.isLost(peer)) return;
    present.silenceTimer = setTimeout(() => {
      this.#actThenFlush(present, () => this.#table.restore(peer));
    }, SILENT_MS);
  }

  left(peer: Peer): void {
    const present = this.#peers.get(peer.key);
    if (present?.peer !== peer) return;
    this.#forget(present);
    this.#peers.delete(peer.key);
    this.#table.markLost(peer);
    present.traced.close();
  }

  #forget(present: PeerConnection): void {
    clearTimeout(present.silenceTimer);
    this.#queuedBytes -= present.queuedBytes;
    present.queuedBytes = 0;
  }

  /** Somebody may be gone: a PONG that nobody asked for does no harm, and cannot be sent to one that is. */
  unknownPeerLeft(): void {
    for (const key of this.#peers.keys()) this.#send(key, makeMessage({ command: "PONG", id: id8(0) }));
  }

  message(peer: Peer, frames: readonly Buffer[]): void {
    const present = this.#peers.get(peer.key);
    if (present?.peer !== peer) return;
    present.traced.received(() => describeMessage(frames));
    this.#table.received(peer);
    const message = readMessage(frames);
    if (typeof message === "string") {
      this.#reportPeerError(peer, `a message was dropped: ${message}`);
      return;
    }
    clearTimeout(present.silenceTimer);
    this.#actThenFlush(present, () => {
      if (message.to.length > 0) {
        this.#forward(peer, message, frames);
      } else {
        this.#options.trace?.(message, printable(peer.identity, 255));
        this.#handle(peer, message);
      }
      this.#table.restore(peer);
    });
  }

  /** What waited for this peer's first message goes after what `act` says to it. */
  #actThenFlush(present: PeerConnection, act: () => void): void {
    const { queued, peer } = present;
    if (queued !== undefined) this.#greet(present);
    act();
    for (const waiting of queued ?? []) this.#send(peer.key, waiting);
  }

  #greet(present: PeerConnection): void {
    present.queued = undefined;
    this.#forget(present);
    this.#greeted.add(present.peer.key);
    keepLatest(this.#greeted, MAX_GREETED);
  }

  // Messages for the server itself

  #handle(peer: Peer, message: Message): void {
    const { command, id, args } = message;
    if (command === "PING") {
      this.#reply(peer, message, "PONG");
      this.#table.pinged(peer);
    } else if (command === "EXEC" || command === "TRACKEXEC") {
      const [what] = args;
      if (isArgument(what, REGISTER)) this.#register(peer, message);
      else if (isArgument(what, DEREGISTER)) this.#acknowledgeThen(peer, message, () => this.#table.deregister(peer));
      else if (isArgument(what, INCREMENT))
        this.#acknowledgeThen(peer, message, () => this.#table.session(peer)?.increment());
      else this.#request(peer, message);
    } else if (command !== "PONG") {
      this.#reportPeerError(peer, `${command} ${printable(id)} is for nobody`);
    }
  }

  #register(peer: Peer, message: Message): void {
    const slots = readNumber(message.args[1], MAX_SLOTS);
    if (slots !== undefined) {
      this.#acknowledgeThen(peer, message, () => this.#table.register(peer, slots));
      return;
    }
    this.#reportPeerError(peer, `REGISTER with ${printable(message.args[1] ?? EMPTY)} slots`);
    if (message.command === "TRACKEXEC") this.#reply(peer, message, "RESPONSE", [FAILURE]);
  }

  /** A TRACKEXEC is answered first: a message that follows from it must not come before. */
  #acknowledgeThen(peer: Peer, message: Message, act: () => void): void {
    if (message.command === "TRACKEXEC") this.#reply(peer, message, "RESPONSE");
    act();
  }

  // Requests

  #request(peer: Peer, given: Message): void {
    const { command, id } = given;
    const size = OVERHEAD_BYTES + id.length + given.args.reduce((sum, { length }) => sum + length, 0);
    // No worker has a command without a name, and an original would keep the slot.
    const empty = (given.args[0]?.length ?? 0) === 0;
    const present = this.#peers.get(peer.key);
    const full =
      this.#pendingBytes + size > MAX_PENDING_BYTES || (present?.pendingBytes ?? 0) + size > MAX_PENDING_BYTES_OF_PEER;
    if (empty || full) {
      const why = empty ? "it asks for nothing" : "too much waits already";
      this.#reportPeerError(peer, `${command} ${printable(id)} is refused: ${why}`);
      if (command === "TRACKEXEC") this.#reply(peer, given, "RESPONSE", [failureReply(given.args[0])]);
      return;
    }
    const message = copyOf(given);
    const [what = EMPTY, ...rest] = message.args;
    const key = replyKey([peer.identity, ...[...message.returnPath].reverse()], id);
    this.#refused.delete(key);
    this.#pendingBytes += size;
    if (present !== undefined) present.pendingBytes += size;
    const { core, peerErrors, settings } = this.#context;
    core.requests.add(
      {
        service: this.#services.serviceOf(what),
        pool: this.#pool,
        body: bodyOf(rest),
        timeoutMs: settings.requestTimeoutMs ?? TIMEOUT_MS,
        retry: false,
        attachment: new ClientCall(peer.identity, message),
      },
      (body, error, attachment) => {
        this.#pendingBytes -= size;
        if (present !== undefined) present.pendingBytes -= size;
        if (attachment === SLOT_FREED) return;
        if (attachment instanceof ForwardedReply) {
          this.#send(peer.key, attachment.frames);
        } else if (command === "TRACKEXEC") {
          if (error !== undefined) this.#refuse(key);
          this.#reply(peer, message, "RESPONSE", replyArguments(what, body, error !== undefined), [this.#ownAddress]);
        } else if (error !== undefined) {
          peerErrors.report(
            PROTOCOL,
            peer.address,
            error,
            `an EXEC was lost: ${Buffer.from(body).toString() || error}`,
          );
        }
      },
    );
  }

  #refuse(key: string): void {
    if (key.length <= MAX_REFUSED_BYTES) this.#refused.add(key);
    keepLatest(this.#refused, MAX_REFUSED);
  }

  // Messages for others

  #forward(peer: Peer, message: Message, [address = EMPTY, ...rest]: readonly Buffer[]): void {
    const { command, to, args } = message;
    const forward = (): Buffer[] => [...rest, peer.identity];
    const trace = (): void => this.#options.trace?.(message, printable(peer.identity, 255), printable(address, 255));
    if (command === "RESPONSE") {
      if (this.#table.session(peer)?.responded(message, forward) === true) {
        trace();
        return;
      }
      if (this.#refused.delete(replyKey(to, message.id))) return;
    }
    if (address.equals(this.#ownAddress)) {
      // Workers of other protocols are all behind this address: their heartbeats are the server's.
      if (command === "PING") this.#reply(peer, message, "PONG", [], [address]);
      else if (command === "TRACKEXEC") this.#reply(peer, message, "RESPONSE", [failureReply(args[0])], [address]);
      return;
    }
    if (this.#send(address.toString("latin1"), forward())) {
      trace();
      return;
    }
    const why = `${messageName(message)} for ${printable(address)}: nobody is there`;
    this.#context.peerErrors.report(PROTOCOL, peer.address, "LABORO_NO_SUCH_WORKER", why);
    // A request to one that is gone is lost, and that is said; the rest was for nobody.
    if (command === "TRACKEXEC") this.#reply(peer, message, "RESPONSE", [failureReply(args[0])], to);
  }

  /** In the place of the worker `from`, where one is given. */
  #reply(
    peer: Peer,
    { id, returnPath }: Message,
    command: "PONG" | "RESPONSE",
    args: readonly Uint8Array[] = [],
    from: readonly Buffer[] = [],
  ): void {
    this.#send(peer.key, makeMessage({ to: [...returnPath].reverse(), command, id, args, returnPath: from }));
  }

  #send(key: string, frames: readonly Uint8Array[]): boolean {
    const present = this.#peers.get(key);
    if (present === undefined) return false;
    if (present.queued !== undefined) {
      const bytes = frames.reduce((sum, { length }) => sum + length, 0);
      const full =
        present.queuedBytes + bytes > MAX_QUEUED_BYTES || this.#queuedBytes + bytes > MAX_QUEUED_BYTES_IN_ALL;
      if (full || present.queued.length >= MAX_QUEUED_MESSAGES) return false;
      present.queuedBytes += bytes;
      this.#queuedBytes += bytes;
      present.queued.push(frames);
      return true;
    }
    const sent = this.#router().send(key, frames);
    if (sent) present.traced.sent(() => describeMessage(frames));
    return sent;
  }

  #reportPeerError({ address }: Peer, why: string): void {
    this.#context.peerErrors.report(PROTOCOL, address, "LABORO_BAD_MESSAGE", why);
  }
}
