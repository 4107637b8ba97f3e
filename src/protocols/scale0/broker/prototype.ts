/**
 * The dialects of the prototype, on the worker port. Its workers send READY once, then HEARTBEAT, and return each PING.
 *
 *   published   READY has the services: messages for such a worker are published under its identity
 *   listening   READY has the address at which the worker listens, and the services: it is answered on its own connection, and PINGed
 *               at that address, which it answers with PONG
 */
import { isLoopback } from "../../../base/addresses.js";
import { keepLatest } from "../../../base/keep-latest.js";
import { type Dealer, openDealer, type Peer, parseTcpUrl } from "../../zeromq/index.js";
import { readServices } from "../commands.js";
import type { ReceivedFrames } from "../frames.js";
import type { PeerSession } from "./peer-session.js";
import type { Scale0WorkerSession } from "./worker-session.js";

/** Publishes a message to the workers that have subscribed to it. */
export type Publish = (...frames: readonly (string | Uint8Array)[]) => void;

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

export class PrototypeWorkers {
  readonly #sessions: WorkerSessions;
  readonly #publish: Publish;
  readonly #connects: boolean;
  /** The READY of each worker, which is not sent again: one that was silent too long is back with its next message. */
  readonly #readyByKey = new Map<string, ReadyMessage>();
  readonly #dealers = new Map<string, Promise<Dealer>>();

  /** Where there are keys, a worker that has none for its own socket is not connected to. */
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
    // Where an unknown worker listens is not known either.
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

  /** The session is gone; unless the worker was only silent, or disconnected, it must send READY again. */
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

/** On the machine that the worker came from: nobody makes a broker connect to another host. */
function isSameHost(url: string, address: string): boolean {
  try {
    const { host } = parseTcpUrl(url);
    return host === address || (isLoopback(host) && isLoopback(address));
  } catch {
    // Not TCP: it cannot be reached from here, and its HEARTBEATs are enough.
    return false;
  }
}
