/** The worker port of a Scale0 door: who is there, and what each of them says. */
import { asLaboroError } from "../../../base/errors.js";
import type { Peer } from "../../zeromq/index.js";
import { type Command, readConnect, readPing } from "../commands.js";
import { type ReceivedFrames, type Message, readFrames } from "../frames.js";
import { Scale0WorkerSession } from "./worker-session.js";
import { type Scale0Context, pong } from "./context.js";
import { PrototypeWorkers, type Publish } from "./prototype.js";
import type { PeerSession } from "./peer-session.js";

const PROBE_DELAY_MS = 50;
/** Of a broker; those of ZeroMQ are no longer. */
const LONGEST_IDENTITY = 255;

export class WorkerConnections {
  readonly #context: Scale0Context;
  readonly #openSession: (peer: Peer) => PeerSession;
  readonly #prototypes: PrototypeWorkers;
  readonly #peerSessions = new Map<string, PeerSession>();
  readonly #sessions = new Map<string, Scale0WorkerSession>();
  /** Where workers would rather be that asked for another broker, and have not connected here yet. */
  readonly #preferredBrokers = new Map<string, string>();
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
    this.#preferredBrokers.delete(peer.key);
    this.#sessions.get(peer.key)?.disconnected();
    // An automatic identity does not come again.
    if (peer.identity[0] === 0) this.#prototypes.removed(peer.key, true);
  }

  /** A connection is over, and it is not known whose: what cannot be said to a worker tells. Once for many at a time. */
  unknownPeerLeft(): void {
    this.#probeTimer ??= setTimeout(() => {
      this.#probeTimer = undefined;
      for (const session of [...this.#sessions.values()]) session.probe();
    }, PROBE_DELAY_MS);
  }

  message(peer: Peer, frames: readonly Buffer[]): void {
    const peerSession = this.#peerSessions.get(peer.key);
    if (peerSession === undefined || peerSession.ignored) return;
    const heard = readFrames(frames);
    // Where ZeroMQ does not tell, the empty frame in front does.
    if (peer.socketType === "" && heard.kind !== "prototype" && heard.envelope.length > 0) peerSession.queueForReq();
    peerSession.received(heard);
    try {
      this.#handle(peer, peerSession, heard);
    } catch (cause) {
      const { code, message } = asLaboroError(cause);
      if (code === "LABORO_BAD_INPUT") this.#fault(peer, peerSession, 400, message);
      else this.#context.onPeerError(peer.address, message, code);
    }
    if (heard.kind === "prototype") return;
    if (this.#sessions.has(peer.key)) peerSession.replyIfUnanswered("PONG", () => pong(this.#context.core));
    else peerSession.replyIfUnanswered("FORCENEGOTIATE", () => ({ reason: "this broker does not know you" }));
  }

  #handle(peer: Peer, peerSession: PeerSession, heard: ReceivedFrames): void {
    if (heard.kind === "prototype") {
      this.#prototypes.receive(peer, peerSession, heard);
    } else if (heard.kind === "malformed") {
      this.#fault(peer, peerSession, 400, heard.why);
    } else if (heard.kind === "unknown") {
      this.#fault(peer, peerSession, 501, heard.command);
    } else {
      this.#handleMessage(peer, peerSession, heard);
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
        (this.#sessions.get(peer.key) ?? this.#openWorkerSession(peer, peerSession)).connect(connect);
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
        const brokers = this.#context.brokers.list();
        if (brokers.length === 0) peerSession.sendDisconnectError(503, "this broker is to be taken down, and knows no other");
        else peerSession.send("CHANGEBROKER", { brokers });
        const { preferred_broker: home } = parameters;
        if (typeof home === "string") this.#preferredBrokers.set(peer.key, home.slice(0, LONGEST_IDENTITY));
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
    const home = this.#preferredBrokers.get(peer.key);
    this.#preferredBrokers.delete(peer.key);
    if (home !== undefined) session.setPreferredBroker(home);
    return session;
  }

  /** It is told what is wrong, and is forgotten if it was known. */
  #fault(peer: Peer, peerSession: PeerSession, code: 400 | 501, why: string): void {
    this.#context.onPeerError(peer.address, why);
    peerSession.sendFault(code, why);
    this.#sessions.get(peer.key)?.forget(false);
  }

  /** Each second, for those of the prototype. */
  pingPrototypes(time: string): void {
    this.#prototypes.ping(time);
  }

  configChanged(): void {
    for (const session of [...this.#sessions.values()]) session.configChanged();
  }

  setDraining(draining: boolean): void {
    for (const session of [...this.#sessions.values()]) session.setDraining(draining);
  }

  /** Those that the core does not know have heard nothing of the end. */
  close(): void {
    clearTimeout(this.#probeTimer);
    for (const session of [...this.#sessions.values()]) session.close("the broker is stopping");
    this.#prototypes.close();
    for (const voice of this.#peerSessions.values()) voice.end();
  }
}

const misplaced = (command: Command, uri: string): string =>
  command === "WORKREQUEST" || command === "TASK"
    ? `${command} goes to the client port, ${uri}`
    : `${command} is what a broker says`;
