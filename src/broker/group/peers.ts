/**
 * The other brokers of the group, as a client of theirs: over our own link, with the admin's token, at their main door. A link is closed when
 * its broker is no longer among the living.
 */

import { now } from "../../base/clock.js";
import { asLaboroError, LaboroError } from "../../base/errors.js";
import type { Log } from "../../base/log.js";
import type { HeartbeatInfo } from "./heartbeat-info.js";

/** Who asks as a broker is known by this beginning of its name. */
const PEER_NAME = "broker ";
export const isPeer = (name: string): boolean => name.startsWith(PEER_NAME);

/** What all are asked is answered by those that answer in time; one that cannot be reached is not waited for that long. */
const ANSWER_MS = 2_000;
const ABSENT_MS = 100;

export interface PeerOptions {
  readonly identity: string;
  readonly token: string;
  /** Of the CA that all show who show one. */
  readonly caFingerprint: () => Promise<string | undefined>;
  readonly log: Log;
  readonly connect: ConnectPeer;
}

/** A link to another broker, as a client of it. */
export interface PeerLink {
  readonly open: boolean;
  readonly closed: boolean;
  question(make: (id: number) => PeerQuestion, signal?: AbortSignal): Promise<unknown>;
  close(why: LaboroError): void;
}

export type PeerQuestion =
  | { readonly type: "ASK"; readonly id: number; readonly operation: string; readonly input: unknown }
  | ({ readonly type: "REQUEST"; readonly id: number } & ServiceRequest);

interface ServiceRequest {
  readonly service: string;
  readonly pool: string;
  readonly body: Uint8Array;
  readonly timeoutMs: number;
  readonly retry: boolean;
}

export type ConnectPeer = (options: {
  readonly urls: readonly string[];
  readonly token: string;
  readonly caFingerprint: string | undefined;
  readonly stay: true;
  readonly name: string;
}) => PeerLink;

export type Peer = HeartbeatInfo;

interface PeerLink {
  readonly url: string;
  readonly link: PeerLink;
  /** Until then it may only be slow to open. */
  readonly patience: number;
}

export interface PeerAnswer<T> {
  readonly peer: Peer;
  readonly answer: T;
}

export class Peers {
  readonly #options: PeerOptions;
  readonly #links = new Map<string, PeerLink>();
  #known: readonly Peer[] = [];
  #closed = false;
  #ca: string | undefined;

  constructor(options: PeerOptions) {
    this.#options = options;
  }

  /** Those whose doors are open. */
  get all(): readonly Peer[] {
    return this.#known;
  }

  /** The others, as their heartbeats tell. Links to them are opened before they are needed. */
  update(peers: readonly Peer[]): void {
    this.#known = peers.filter(({ state }) => state !== "standby");
    for (const [identity, { link, url }] of this.#links) {
      const peer = this.#known.find((one) => one.identity === identity);
      if (peer !== undefined && urlOf(peer) === url) continue;
      link.close(new LaboroError("LABORO_BROKER_GONE", `broker ${identity} is no longer there`));
      this.#links.delete(identity);
    }
    for (const peer of this.#known) {
      // One that says nowhere that it can be reached is told of when it is asked.
      void this.#linkTo(peer).catch(() => {});
    }
  }

  close(): void {
    this.#closed = true;
    this.#known = [];
    this.update([]);
  }

  /** Rejects with LABORO_BROKER_GONE where that broker cannot be asked, or with what it refuses with. */
  async ask<T extends object>(peer: Peer, operation: string, input: unknown, timeoutMs = ANSWER_MS): Promise<T> {
    const link = await this.#linkTo(peer);
    const absent = !link.link.open && now() > link.patience;
    const late = AbortSignal.timeout(absent ? Math.min(timeoutMs, ABSENT_MS) : timeoutMs);
    // It is of this program and has the admin's token: what it says is taken as it is.
    return (await link.link.question((id) => ({ type: "ASK", id, operation, input }), late)) as T;
  }

  /** What each of them says to this; who says nothing in time is left out. */
  async askAll<T extends object>(operation: string, input: unknown): Promise<readonly PeerAnswer<T>[]> {
    const asked = this.#known.map(async (peer): Promise<PeerAnswer<T> | undefined> => {
      try {
        return { peer, answer: await this.ask<T>(peer, operation, input) };
      } catch (cause) {
        const { code, message } = asLaboroError(cause);
        this.#options.log.info({ code, broker: peer.name }, `another broker did not answer ${operation}: ${message}`);
        return undefined;
      }
    });
    return (await Promise.all(asked)).filter((one) => one !== undefined);
  }

  /** A request for a service of its workers; `unwanted` takes it back. */
  async request(peer: Peer, given: ServiceRequest, unwanted: AbortSignal): Promise<Uint8Array> {
    const link = await this.#linkTo(peer);
    return (await link.link.question((id) => ({ type: "REQUEST", id, ...given }), unwanted)) as Uint8Array;
  }

  async #linkTo(peer: Peer): Promise<PeerLink> {
    const url = urlOf(peer);
    const caFingerprint = url?.startsWith("https:") === true ? await this.#fingerprint() : undefined;
    const known = this.#links.get(peer.identity);
    if (known?.link.closed === false) return known;
    if (url === undefined || this.#closed) {
      throw new LaboroError("LABORO_BROKER_GONE", `broker ${peer.name} has no open door`);
    }
    const { token, identity, connect } = this.#options;
    const link = connect({ urls: [url], token, caFingerprint, stay: true, name: `${PEER_NAME}${identity}` });
    const made: PeerLink = { url, link, patience: now() + ANSWER_MS };
    this.#links.set(peer.identity, made);
    return made;
  }

  async #fingerprint(): Promise<string | undefined> {
    this.#ca ??= await this.#options.caFingerprint();
    return this.#ca;
  }
}

export const urlOf = ({ listeners: doors }: Pick<Peer, "doors">): string | undefined =>
  doors.find(({ name }) => name === "main")?.url;
