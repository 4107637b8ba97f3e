/** The worker port of a Scale0 listener: the connected workers and their messages. */
import { asLaboroError } from "../../../base/errors.js";
import type { Peer } from "../../zeromq/index.js";
import { type Command, disconnectText, type NeedBroker, readConnect, readNeedBroker, readPing } from "../commands.js";
import { type Message, type ReceivedFrames, readFrames } from "../frames.js";
import { pong, type Scale0Context } from "./context.js";
import type { PeerSession } from "./peer-session.js";
import { PrototypeWorkers, type Publish } from "./prototype.js";
import { Scale0WorkerSession } from "./worker-session.js";

const PROBE_DELAY_MS = 50;
/** Workers whose NEEDBROKER is remembered. */
const MAX_NEEDS = 10_000;

export class WorkerConnections {
  readonly #context: Scale0Context;
  readonly #openSession: (peer: Peer) => PeerSession;
  readonly #prototypes: PrototypeWorkers;
  readonly #peerSessions = new Map<string, PeerSession>();
  readonly #sessions = new Map<string, Scale0WorkerSession>();
  /** By identity: the NEEDBROKER of workers that have not connected here since. They may do so on another connection. */
  readonly #needs = new Map<string, NeedBroker>();
  #announcedBrokers: string | undefined;
  #probeTimer: NodeJS.Timeout | undefined;

  constructor(context: Scale0Context, openSession: (peer: Peer) => PeerSession, publish: Publish) {
    this.#context = context;
    this.#openSession = openSession;
    const sessions = {
      get: (peer: Peer) => this.#sessions.get(peer.key),
      open: (peer: Peer, peerSession: PeerSession) => this.#openWorkerSession(peer, peerSession),
    };
    this.#prototypes = new PrototypeWorkers(sessions, publish, context.requiresKeys);
  }

  joined(peer: Peer): void {
    const peerSession = this.#openSession(peer);
    if (peer.socketType === "REQ") peerSession.queueForReq();
    this.#peerSessions.set(peer.key, peerSession);
    this.#sessions.get(peer.key)?.reconnected(peerSession);
  }

  left(peer: Peer): void {
    this.#peerSessions.get(peer.key)?.end();
    this.#peerSessions.delete(peer.key);
    this.#sessions.get(peer.key)?.disconnected();
    // An automatic identity does not come again.
    if (peer.identity[0] === 0) this.#prototypes.removed(peer.key, true);
  }

  /** A connection is over, and it is not known whose: a message that cannot be sent shows it. Once for many at a time. */
  unknownPeerLeft(): void {
    this.#probeTimer ??= setTimeout(() => {
      this.#probeTimer = undefined;
      for (const session of [...this.#sessions.values()]) session.probe();
    }, PROBE_DELAY_MS);
  }

  message(peer: Peer, frames: readonly Buffer[]): void {
    const peerSession = this.#peerSessions.get(peer.key);
    if (peerSession === undefined || peerSession.ignored) return;
    const received = readFrames(frames);
    // Where ZeroMQ does not report the socket type, the empty frame in front shows it.
    if (peer.socketType === "" && received.kind !== "prototype" && received.envelope.length > 0)
      peerSession.queueForReq();
    peerSession.received(received);
    try {
      this.#handle(peer, peerSession, received);
    } catch (cause) {
      const { code, message } = asLaboroError(cause);
      if (code === "LABORO_BAD_INPUT") this.#fault(peer, peerSession, 400, message);
      else this.#context.onPeerError(peer.address, message, code);
    }
    if (received.kind === "prototype") return;
    if (this.#sessions.has(peer.key)) peerSession.replyIfUnanswered("PONG", () => pong(this.#context.core));
    else peerSession.replyIfUnanswered("FORCENEGOTIATE", () => ({ reason: "this broker does not know you" }));
  }

  /** A message over the limit. */
  dropped(peer: Peer, head: readonly Buffer[], why: string): void {
    const peerSession = this.#peerSessions.get(peer.key);
    if (peerSession === undefined || peerSession.ignored) return;
    peerSession.received(readFrames(head));
    this.#fault(peer, peerSession, 400, why);
  }

  #handle(peer: Peer, peerSession: PeerSession, received: ReceivedFrames): void {
    if (received.kind === "prototype") {
      this.#prototypes.receive(peer, peerSession, received);
    } else if (received.kind === "malformed") {
      this.#fault(peer, peerSession, 400, received.why);
    } else if (received.kind === "unknown") {
      this.#fault(peer, peerSession, 501, JSON.stringify(received.command));
    } else {
      this.#handleMessage(peer, peerSession, received);
      peerSession.resetFaults();
    }
  }

  #handleMessage(peer: Peer, peerSession: PeerSession, message: Message): void {
    const { command, parameters } = message;
    const session = this.#sessions.get(peer.key);
    switch (command) {
      case "CONNECT": {
        const connect = readConnect(parameters);
        this.#prototypes.removed(peer.key, true);
        if (session?.isNewProcess === true) session.forget(false);
        const need = this.#needs.get(peerSession.name);
        this.#needs.delete(peerSession.name);
        const known = this.#sessions.get(peer.key) ?? this.#openWorkerSession(peer, peerSession);
        known.connect({ ...connect, services: connect.services ?? need?.services });
        if (need?.preferredBroker !== undefined) known.setPreferredBroker(need.preferredBroker);
        return;
      }
      case "PING": {
        const ping = readPing(parameters);
        if (session !== undefined) session.ping(ping);
        else peerSession.send("FORCENEGOTIATE", { reason: "this broker does not know you" });
        return;
      }
      case "WORKREPLY":
      case "TASKREPLY":
        session?.reply(message);
        return;
      case "NEEDBROKER": {
        const need = readNeedBroker(parameters);
        this.#remember(need.identity ?? peerSession.name, need);
        const brokers = this.#context.brokers.list();
        if (brokers.length === 0)
          peerSession.sendDisconnectError(503, "this broker is to be taken down, and knows no other");
        else peerSession.send("CHANGEBROKER", { brokers });
        return;
      }
      default:
        this.#fault(peer, peerSession, 400, misplaced(command, this.#context.brokers.self.client_uri));
    }
  }

  #openWorkerSession(peer: Peer, peerSession: PeerSession): Scale0WorkerSession {
    const session: Scale0WorkerSession = new Scale0WorkerSession(this.#context, peerSession, (orderly) => {
      if (this.#sessions.get(peer.key) !== session) return;
      this.#sessions.delete(peer.key);
      this.#prototypes.removed(peer.key, orderly);
    });
    this.#sessions.set(peer.key, session);
    return session;
  }

  #remember(identity: string, need: NeedBroker): void {
    this.#needs.delete(identity);
    this.#needs.set(identity, need);
    const [oldest] = this.#needs.keys();
    if (this.#needs.size > MAX_NEEDS && oldest !== undefined) this.#needs.delete(oldest);
  }

  /** It gets an error, and is forgotten if it was known. */
  #fault(peer: Peer, peerSession: PeerSession, code: 400 | 501, why: string): void {
    this.#context.onPeerError(peer.address, disconnectText(code, why));
    peerSession.sendFault(code, why);
    this.#sessions.get(peer.key)?.forget(false);
  }

  /** Each second, for those of the prototype. */
  pingPrototypes(time: string): void {
    this.#prototypes.ping(time);
  }

  /** The brokers of the group may have changed: the config has their addresses. */
  brokersChanged(): void {
    const announced = JSON.stringify(this.#context.brokers.list());
    if (announced === this.#announcedBrokers) return;
    this.#announcedBrokers = announced;
    for (const session of [...this.#sessions.values()]) session.sendConfig();
  }

  configChanged(): void {
    for (const session of [...this.#sessions.values()]) session.configChanged();
  }

  setDraining(draining: boolean): void {
    for (const session of [...this.#sessions.values()]) session.setDraining(draining);
  }

  /** Also those that the core does not know. */
  close(): void {
    clearTimeout(this.#probeTimer);
    for (const session of [...this.#sessions.values()]) session.close("the broker is stopping");
    this.#prototypes.close();
    for (const peerSession of this.#peerSessions.values()) peerSession.end();
  }
}

const misplaced = (command: Command, uri: string): string =>
  command === "WORKREQUEST" || command === "TASK"
    ? `${command} goes to the client port, ${uri}`
    : `${command} is sent by brokers only`;
