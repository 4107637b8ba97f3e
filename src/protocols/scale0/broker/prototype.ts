/**
 * The dialects of the prototype, on the worker port. Its workers say READY once, and live by HEARTBEAT and by giving back each PING.
 *
 *   published   READY has the services: what there is to say to such a worker is published under its identity
 *   listening   READY has the address at which the worker listens, and the services: it is answered on its own connection, and PINGed
 *               at that address, for which it says PONG
 */
import { isIPv4 } from "node:net";
import { type Dealer, openDealer, type Peer, placeOf } from "../../zeromq/index.js";
import { readServices } from "../commands.js";
import type { Heard } from "../frames.js";
import type { WorkerSession } from "./broker-worker.js";
import type { Voice } from "./voice.js";

/** Says something to all workers that listen for it. */
export type Publish = (...frames: readonly (string | Uint8Array)[]) => void;

export interface Ready {
  readonly services: readonly string[];
  readonly listensAt: string | undefined;
}

/** Workers of which it is known what they said with READY. */
const MOST_KNOWN = 10_000;

export function readReady(value: string): Ready {
  const [, listensAt, services = value] = /^([a-z]+:\/\/\S+)\s+(.*)$/s.exec(value) ?? [];
  return { services: readServices(services, "services"), listensAt };
}

export interface Sessions {
  of(peer: Peer): WorkerSession | undefined;
  begin(peer: Peer, voice: Voice): WorkerSession;
}

export class Prototypes {
  readonly #sessions: Sessions;
  readonly #publish: Publish;
  readonly #connects: boolean;
  /** What each said, for it will not say it again: one that was silent too long comes back with its next sign of life. */
  readonly #known = new Map<string, Ready>();
  readonly #dealers = new Map<string, Promise<Dealer>>();

  /** Where there are keys, a worker that has none for its own socket is not connected to. */
  constructor(sessions: Sessions, publish: Publish, keys: boolean) {
    this.#sessions = sessions;
    this.#publish = publish;
    this.#connects = !keys;
  }

  hear(peer: Peer, voice: Voice, { word, value }: Extract<Heard, { kind: "prototype" }>): void {
    if (word === "READY") {
      this.#ready(peer, voice, readReady(value));
      return;
    }
    const known = this.#known.get(peer.key);
    const session = this.#sessions.of(peer);
    if (session !== undefined) session.signOfLife();
    else if (known !== undefined) this.#enter(peer, voice, known);
    if (word !== "HEARTBEAT") return;
    // Of one that is unknown, nobody can say where it listens.
    if (known?.listensAt === undefined) this.#publish(peer.identity, "HEARTBEAT", value);
    if (known === undefined || known.listensAt !== undefined) voice.sayWord("HEARTBEAT", value);
  }

  #ready(peer: Peer, voice: Voice, ready: Ready): void {
    this.#known.delete(peer.key);
    this.#known.set(peer.key, ready);
    const [oldest] = this.#known.keys();
    if (this.#known.size > MOST_KNOWN && oldest !== undefined) this.#known.delete(oldest);
    const session = this.#sessions.of(peer);
    if (session?.reborn === true) session.forget(false);
    if (ready.listensAt === undefined) this.#publish(peer.identity, "OK");
    else voice.sayWord("OK", "");
    this.#enter(peer, voice, ready);
  }

  #enter(peer: Peer, voice: Voice, { services, listensAt }: Ready): void {
    (this.#sessions.of(peer) ?? this.#sessions.begin(peer, voice)).ready(services);
    this.#hangUp(peer.key);
    if (listensAt === undefined || !this.#connects || !isAt(listensAt, peer.address)) return;
    this.#dealers.set(peer.key, openDealer({ url: listensAt }, { message: () => {} }));
  }

  ping(time: string): void {
    this.#publish("PING", time);
    for (const dealer of this.#dealers.values()) {
      void dealer.then((open) => open.send([Buffer.from("PING"), Buffer.from(time)]));
    }
  }

  /** No worker here any more; unless it was just silent, or cut off, it is not let in again without READY. */
  gone(key: string, orderly: boolean): void {
    this.#hangUp(key);
    if (orderly) this.#known.delete(key);
  }

  #hangUp(key: string): void {
    void this.#dealers.get(key)?.then((dealer) => dealer.close());
    this.#dealers.delete(key);
  }

  close(): void {
    for (const key of [...this.#dealers.keys()]) this.#hangUp(key);
  }
}

/** On the machine that the worker came from: nobody makes a broker connect to a third. */
function isAt(url: string, address: string): boolean {
  try {
    const { host } = placeOf(url);
    return host === address || (isLoopback(host) && isLoopback(address));
  } catch {
    // Not TCP: it cannot be reached from here, and HEARTBEAT tells as much.
    return false;
  }
}

const isLoopback = (host: string): boolean =>
  host === "localhost" || host === "::1" || (isIPv4(host) && host.startsWith("127."));
