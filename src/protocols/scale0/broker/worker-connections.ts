/** The worker port of a Scale0 listener: the connected workers and their messages. */
import { isLoopback } from "../../../base/addresses.js";
import { asLaboroError } from "../../../base/errors.js";
import { keepLatest } from "../../../base/keep-latest.js";
import { type Dealer, openDealer, type Peer, parseTcpUrl } from "../../zeromq/index.js";
import { type Command, type NeedBroker, readConnect, readNeedBroker, readPing, readServices } from "../commands.js";
import { faultOf, type Message, type ReceivedFrames, readFrames } from "../frames.js";
import { pong, type Scale0Context } from "./context.js";
import type { PeerSession } from "./peer-session.js";
import { Scale0WorkerSession } from "./worker-session.js";

/** Workers whose NEEDBROKER is remembered. */
const MAX_NEEDS = 10_000;

export class WorkerConnections {
  readonly #context: Scale0Context;
  readonly #openSession: (peer: Peer) => PeerSession;
  readonly #prototypes: PrototypeWorkers;
  readonly #peerSessions = new Map<string, PeerSession>();
  readonly #sessions = new Map<string, Scale0WorkerSession>();
  /** By identity: the NEEDBROKER of workers until their CONNECT, which may come on another connection. */
  readonly #needs = new Map<string, NeedBroker>();
  #announcedBrokers: string | undefined;

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
    // An automatic identity is not used again.
    if (peer.identity[0] === 0) this.#prototypes.removed(peer.key, true);
  }

  message(peer: Peer, frames: readonly Buffer[]): void {
    const peerSession = this.#peerSessions.get(peer.key);
    if (peerSession === undefined || peerSession.ignored) return;
    const received = readFrames(frames);
    peerSession.received(received);
    try {
      if (received.kind === "prototype") {
        this.#prototypes.receive(peer, peerSession, received);
      } else if (received.kind === "message") {
        this.#handleMessage(peer, peerSession, received);
        peerSession.resetFaults();
      } else {
        this.#fault(peerSession, ...faultOf(received));
      }
    } catch (cause) {
      const { code, message } = asLaboroError(cause);
      if (code === "LABORO_BAD_INPUT") this.#fault(peerSession, 400, message);
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
    this.#fault(peerSession, 400, why);
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
        peerSession.sendBrokers(this.#context.brokers.list());
        return;
      }
      default:
        this.#fault(peerSession, 400, misplaced(command, this.#context.brokers.self.client_uri));
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
    keepLatest(this.#needs, MAX_NEEDS);
  }

  /** The worker gets an error, and is forgotten if it was known. */
  #fault(peerSession: PeerSession, code: 400 | 501, why: string): void {
    peerSession.sendFault(code, why);
    this.#sessions.get(peerSession.peer.key)?.forget(false);
  }

  pingPrototypes(time: string): void {
    this.#prototypes.ping(time);
  }

  /** The config holds the addresses of the group's brokers. */
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

  close(): void {
    for (const session of [...this.#sessions.values()]) session.close("the broker is stopping");
    this.#prototypes.close();
    for (const peerSession of this.#peerSessions.values()) peerSession.end();
  }
}

const misplaced = (command: Command, uri: string): string =>
  command === "WORKREQUEST" || command === "TASK"
    ? `${command} goes to the client port, ${uri}`
    : `${command} is sent by brokers only`;

/**
 * The dialects of the prototype, on the worker port. Its workers send READY once, then HEARTBEAT, and return each PING.
 *
 *   published   READY has the services: messages for the worker are published under its identity
 *   listening   READY has an address and the services: the worker is answered on its connection, and PINGed at that
 *               address, where it answers PONG
 */
type Publish = (...frames: readonly (string | Uint8Array)[]) => void;

interface ReadyMessage {
  readonly services: readonly string[];
  readonly listensAt: string | undefined;
}

/** Workers whose READY is remembered. */
const MAX_KNOWN = 10_000;

function readReady(value: string): ReadyMessage {
  const [, listensAt, services = value] = /^([a-z]+:\/\/\S+)\s+(.*)$/s.exec(value) ?? [];
  return { services: readServices(services, "services"), listensAt };
}

interface WorkerSessions {
  get(peer: Peer): Scale0WorkerSession | undefined;
  open(peer: Peer, peerSession: PeerSession): Scale0WorkerSession;
}

class PrototypeWorkers {
  readonly #sessions: WorkerSessions;
  readonly #publish: Publish;
  readonly #connects: boolean;
  /** READY is sent only once. A worker that was silent too long is registered again by its next message. */
  readonly #readyByKey = new Map<string, ReadyMessage>();
  readonly #dealers = new Map<string, Promise<Dealer>>();

  /** With `keys` the broker does not connect to workers: their own sockets have no keys. */
  constructor(sessions: WorkerSessions, publish: Publish, keys: boolean) {
    this.#sessions = sessions;
    this.#publish = publish;
    this.#connects = !keys;
  }

  receive(peer: Peer, peerSession: PeerSession, { word, value }: Extract<ReceivedFrames, { kind: "prototype" }>): void {
    if (word === "READY") {
      this.#ready(peer, peerSession, readReady(value));
      return;
    }
    const known = this.#readyByKey.get(peer.key);
    const session = this.#sessions.get(peer);
    if (session !== undefined) session.heartbeat();
    else if (known !== undefined) this.#register(peer, peerSession, known);
    if (word !== "HEARTBEAT") return;
    // An unknown worker gets both, because its dialect is not known.
    if (known?.listensAt === undefined) this.#publish(peer.identity, "HEARTBEAT", value);
    if (known === undefined || known.listensAt !== undefined) peerSession.sendWord("HEARTBEAT", value);
  }

  #ready(peer: Peer, peerSession: PeerSession, ready: ReadyMessage): void {
    this.#readyByKey.delete(peer.key);
    this.#readyByKey.set(peer.key, ready);
    keepLatest(this.#readyByKey, MAX_KNOWN);
    const session = this.#sessions.get(peer);
    if (session?.isNewProcess === true) session.forget(false);
    if (ready.listensAt === undefined) this.#publish(peer.identity, "OK");
    else peerSession.sendWord("OK", "");
    this.#register(peer, peerSession, ready);
  }

  #register(peer: Peer, peerSession: PeerSession, { services, listensAt }: ReadyMessage): void {
    (this.#sessions.get(peer) ?? this.#sessions.open(peer, peerSession)).ready(services);
    this.#closeDealer(peer.key);
    if (listensAt === undefined || !this.#connects || !isSameHost(listensAt, peer.address)) return;
    this.#dealers.set(peer.key, openDealer({ url: listensAt }, { message: () => {} }));
  }

  ping(time: string): void {
    this.#publish("PING", time);
    for (const dealer of this.#dealers.values()) {
      void dealer.then((open) => open.send([Buffer.from("PING"), Buffer.from(time)]));
    }
  }

  /** The session has ended. After an orderly end the worker must send READY again. */
  removed(key: string, orderly: boolean): void {
    this.#closeDealer(key);
    if (orderly) this.#readyByKey.delete(key);
  }

  #closeDealer(key: string): void {
    void this.#dealers.get(key)?.then((dealer) => dealer.close());
    this.#dealers.delete(key);
  }

  close(): void {
    for (const key of [...this.#dealers.keys()]) this.#closeDealer(key);
  }
}

/** A worker cannot make the broker connect to another host than its own. */
function isSameHost(url: string, address: string): boolean {
  try {
    const { host } = parseTcpUrl(url);
    return host === address || (isLoopback(host) && isLoopback(address));
  } catch {
    // Not TCP: its HEARTBEATs are enough.
    return false;
  }
}
