/**
 * The server of the round-robin queue. A message that begins with an address is forwarded there, with the sender's
 * address appended. Other messages are for the server: it answers PING; REGISTER, DEREGISTER and INCREMENT change the
 * worker table; any other EXEC or TRACKEXEC is a request, for which the core finds a worker.
 *
 *   new        a peer has connected and sent nothing. Messages to it are queued, because a peer that begins with PING
 *              must get PONG before anything else
 *   greeted    its first message was received. The queue is sent after the answer
 */
import { randomBytes } from "node:crypto";
import { keepLatest } from "../../../base/keep-latest.js";
import type { TracedConnection } from "../../../base/traced-connections.js";
import type { ListenerContext } from "../../../broker/listeners/listener.js";
import { DEFAULT_POOL } from "../../../model/recipe.js";
import type { Peer, Router, RouterListener } from "../../zeromq/index.js";
import {
  bodyOf,
  copyOf,
  DEREGISTER,
  describeMessage,
  EMPTY,
  FAILURE,
  failureReply,
  INCREMENT,
  isArgument,
  type Message,
  makeMessage,
  messageName,
  printable,
  REGISTER,
  readMessage,
  readNumber,
  replyArguments,
} from "../frames.js";
import { ClientCall, ForwardedReply, replyKey, SLOT_FREED } from "./outstanding-messages.js";
import { CommandServices, storeCommand } from "./services.js";
import { type HeartbeatLimits, type RegisteredWorkers, type WorkerRow, WorkerTable } from "./worker-table.js";

export const PROTOCOL = "round-robin";

const TIMEOUT_MS = 300_000;
const JOIN_DELAY_MS = 100;
/** laboro's own worker PINGs at once when it reconnects. An original PINGs only on its first connection. */
const SILENT_MS = 1_000;
const MAX_SLOTS = 1_000_000;
/** Bytes of requests without an answer: of all peers, and of one. */
const MAX_PENDING_BYTES = 256 * 1024 * 1024;
const MAX_PENDING_BYTES_OF_PEER = 128 * 1024 * 1024;
/** Memory of a request besides its bytes. */
const OVERHEAD_BYTES = 1_000;
/** Messages for a new peer, and their bytes; bytes for all new peers. */
const MAX_QUEUED_MESSAGES = 1_000;
const MAX_QUEUED_BYTES = 64 * 1024 * 1024;
const MAX_QUEUED_BYTES_IN_ALL = 256 * 1024 * 1024;
const MAX_GREETED = 100_000;
/** Refused requests whose worker may still answer, and the bytes of one key. */
const MAX_REFUSED = 10_000;
const MAX_REFUSED_BYTES = 1_024;

interface PeerConnection {
  readonly peer: Peer;
  readonly traced: TracedConnection;
  /** Undefined from its first message on. */
  queued: (readonly Uint8Array[])[] | undefined;
  queuedBytes: number;
  pendingBytes: number;
  /** For a suspended worker, until its first message. */
  silenceTimer?: NodeJS.Timeout;
}

export interface RoundRobinServerOptions {
  /** Called with each message, for a console; `to` is where it was forwarded. */
  readonly trace?: (message: Message, from: string, to?: string) => void;
  /** Delay between the answer to REGISTER and the first message for that worker. */
  readonly joinDelayMs?: number;
  readonly heartbeatLimits?: HeartbeatLimits;
}

export class RoundRobinServer implements RouterListener {
  readonly #context: ListenerContext;
  readonly #router: () => Router;
  readonly #options: RoundRobinServerOptions;
  readonly #services: CommandServices;
  readonly #pool: string;
  readonly #timeoutMs: number;
  readonly #table: WorkerTable;
  readonly #peers = new Map<string, PeerConnection>();
  /** Peers that have sent a message. After a reconnect a peer may wait for answers and send nothing. */
  readonly #greeted = new Set<string>();
  readonly #ownAddress = Buffer.from(`laboro:${randomBytes(4).toString("hex")}`);
  /** Keys of refused requests: a RESPONSE after the refusal would be a second one. */
  readonly #refused = new Set<string>();
  #pendingBytes = 0;
  #queuedBytes = 0;

  constructor(
    context: ListenerContext,
    router: () => Router,
    registered: RegisteredWorkers,
    commands: readonly Buffer[],
    options: RoundRobinServerOptions = {},
  ) {
    this.#context = context;
    this.#router = router;
    this.#options = options;
    const { core, settings } = context;
    this.#pool = settings.pool ?? DEFAULT_POOL;
    this.#services = new CommandServices(settings.services ?? {}, commands, (command) => {
      storeCommand(core, context.log, command);
      this.#table.updateProfiles();
    });
    this.#timeoutMs = settings.requestTimeoutMs ?? TIMEOUT_MS;
    this.#table = new WorkerTable(
      {
        core,
        services: this.#services,
        pool: this.#pool,
        ownAddress: this.#ownAddress,
        joinDelayMs: options.joinDelayMs ?? JOIN_DELAY_MS,
        timeoutMs: this.#timeoutMs,
      },
      (key, frames) => this.#send(key, frames),
      registered,
      options.heartbeatLimits,
    );
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

  /** The peer is greeted. Queued messages are sent after those that `act` sends. */
  #actThenFlush(present: PeerConnection, act: () => void): void {
    const { queued, peer } = present;
    if (queued !== undefined) {
      present.queued = undefined;
      this.#forget(present);
      this.#greeted.add(peer.key);
      keepLatest(this.#greeted, MAX_GREETED);
    }
    act();
    for (const waiting of queued ?? []) this.#send(peer.key, waiting);
  }

  // Messages for the server itself

  #handle(peer: Peer, message: Message): void {
    const { command, id, args } = message;
    if (command === "PING") {
      this.#reply(peer, message, "PONG");
      this.#table.pinged(peer);
    } else if (command === "EXEC" || command === "TRACKEXEC") {
      const forTable = [REGISTER, DEREGISTER, INCREMENT].some((one) => isArgument(args[0], one));
      if (forTable) this.#changeTable(peer, message);
      else this.#request(peer, message);
    } else if (command !== "PONG") {
      this.#reportPeerError(peer, `${command} ${printable(id)} has no address`);
    }
  }

  /** A TRACKEXEC is answered first, before any message that results from the change. */
  #changeTable(peer: Peer, message: Message): void {
    const [what, argument] = message.args;
    const slots = isArgument(what, REGISTER) ? readNumber(argument, MAX_SLOTS) : 0;
    if (slots === undefined)
      this.#reportPeerError(peer, `REGISTER with ${printable(argument ?? EMPTY)} slots: expected 0 to ${MAX_SLOTS}`);
    if (message.command === "TRACKEXEC") this.#reply(peer, message, "RESPONSE", slots === undefined ? [FAILURE] : []);
    if (slots === undefined) return;
    if (isArgument(what, REGISTER)) this.#table.register(peer, slots);
    else if (isArgument(what, DEREGISTER)) this.#table.deregister(peer);
    else this.#table.session(peer)?.increment();
  }

  // Requests

  #request(peer: Peer, given: Message): void {
    const { command, id } = given;
    const size = OVERHEAD_BYTES + id.length + sizeOf(given.args);
    // No worker has an empty command, and an original would never free the slot.
    const empty = (given.args[0]?.length ?? 0) === 0;
    const present = this.#peers.get(peer.key);
    const full =
      this.#pendingBytes + size > MAX_PENDING_BYTES || (present?.pendingBytes ?? 0) + size > MAX_PENDING_BYTES_OF_PEER;
    if (empty || full) {
      const why = empty ? "it names no command" : "too many bytes of requests have no answer";
      this.#reportPeerError(peer, `${command} ${printable(id)} is refused: ${why}`);
      if (command === "TRACKEXEC") this.#reply(peer, given, "RESPONSE", [failureReply(given.args[0])]);
      return;
    }
    const message = copyOf(given);
    const [what = EMPTY, ...rest] = message.args;
    const key = replyKey([peer.identity, ...message.returnPath.toReversed()], id);
    this.#refused.delete(key);
    this.#pendingBytes += size;
    if (present !== undefined) present.pendingBytes += size;
    const { core, peerErrors } = this.#context;
    core.requests.add(
      {
        service: this.#services.serviceOf(what),
        pool: this.#pool,
        body: bodyOf(rest),
        timeoutMs: this.#timeoutMs,
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
          const why = Buffer.from(body).toString() || error;
          peerErrors.report(PROTOCOL, peer.address, error, `an EXEC was lost: ${why}`);
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
      // This address stands for the workers of other protocols, and the server answers their heartbeats.
      if (command === "PING") this.#reply(peer, message, "PONG", [], [address]);
      else if (command === "TRACKEXEC") this.#reply(peer, message, "RESPONSE", [failureReply(args[0])], [address]);
      return;
    }
    if (this.#send(address.toString("latin1"), forward())) {
      trace();
      return;
    }
    const why = `${messageName(message)} for ${printable(address)}: no such peer is connected`;
    this.#context.peerErrors.report(PROTOCOL, peer.address, "LABORO_NO_SUCH_WORKER", why);
    if (command === "TRACKEXEC") this.#reply(peer, message, "RESPONSE", [failureReply(args[0])], to);
  }

  /** `from`: the worker for which the server answers. */
  #reply(
    peer: Peer,
    { id, returnPath }: Message,
    command: "PONG" | "RESPONSE",
    args: readonly Uint8Array[] = [],
    from: readonly Buffer[] = [],
  ): void {
    this.#send(peer.key, makeMessage({ to: returnPath.toReversed(), command, id, args, returnPath: from }));
  }

  #send(key: string, frames: readonly Uint8Array[]): boolean {
    const present = this.#peers.get(key);
    if (present === undefined) return false;
    if (present.queued !== undefined) {
      const bytes = sizeOf(frames);
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

const sizeOf = (frames: readonly Uint8Array[]): number => frames.reduce((sum, { length }) => sum + length, 0);
