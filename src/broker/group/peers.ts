/**
 * Links to the other brokers of the group: this broker is a client of their main listeners, with the admin's token. A
 * link is closed when its broker is no longer alive. Requests for services that only workers of other brokers offer are
 * forwarded over these links.
 */
import { now } from "../../base/clock.js";
import { asLaboroError, LaboroError } from "../../base/errors.js";
import type { Log } from "../../base/log.js";
import { describeError } from "../../model/task-definition.js";
import type { Reply, RequestForwarder, ServiceRequest } from "../pending-requests.js";
import type { HeartbeatInfo } from "./membership.js";

/** The name of a client that is a broker starts with this. */
const PEER_NAME = "broker ";
export const isPeer = (name: string): boolean => name.startsWith(PEER_NAME);

/** The time for an answer; shorter for a broker that cannot be reached. */
const ANSWER_MS = 2_000;
const UNREACHABLE_MS = 100;

interface PeerOptions {
  readonly identity: string;
  readonly token: string;
  /** The fingerprint of the CA that all brokers of the group share. */
  readonly caFingerprint: () => Promise<string | undefined>;
  readonly log: Log;
  readonly connect: ConnectPeer;
}

/** A client link to another broker. */
interface PeerLink {
  readonly open: boolean;
  readonly closed: boolean;
  sendAndWait(
    message: PeerMessage,
    options: { readonly timeoutMs: number; readonly signal?: AbortSignal },
  ): Promise<unknown>;
  close(why: LaboroError): void;
}

type PeerMessage =
  | { readonly type: "OPERATION"; readonly operation: string; readonly input: unknown }
  | ({ readonly type: "REQUEST" } & PeerRequest);

type PeerRequest = Pick<ServiceRequest, "service" | "pool" | "body" | "retry">;

export type ConnectPeer = (options: {
  readonly urls: readonly string[];
  readonly token: string;
  readonly caFingerprint: string | undefined;
  readonly pinned: true;
  readonly name: string;
}) => PeerLink;

export type Peer = HeartbeatInfo;

interface OpenLink {
  readonly url: string;
  readonly link: PeerLink;
  /** After this time without a connection the broker counts as unreachable. */
  readonly connectDeadline: number;
}

interface PeerAnswer<T> {
  readonly peer: Peer;
  readonly answer: T;
}

export class Peers {
  readonly #options: PeerOptions;
  readonly #links = new Map<string, OpenLink>();
  #known: readonly Peer[] = [];
  #closed = false;
  #ca: string | undefined;

  constructor(options: PeerOptions) {
    this.#options = options;
  }

  /** The brokers whose listeners are open. */
  get all(): readonly Peer[] {
    return this.#known;
  }

  /** Sets the other brokers, from their heartbeats. Links to them are opened before they are needed. */
  update(peers: readonly Peer[]): void {
    this.#known = peers.filter(({ state }) => state !== "standby");
    for (const [identity, { link, url }] of this.#links) {
      const peer = this.#known.find((one) => one.identity === identity);
      if (peer !== undefined && urlOf(peer) === url) continue;
      link.close(new LaboroError("LABORO_BROKER_GONE", `broker ${identity} is no longer there`));
      this.#links.delete(identity);
    }
    for (const peer of this.#known) {
      // A broker without an address fails when it is used.
      void this.#linkTo(peer).catch(() => {});
    }
  }

  close(): void {
    this.#closed = true;
    this.#known = [];
    this.update([]);
  }

  /** Rejects with LABORO_BROKER_GONE if that broker cannot be reached, or with its own refusal. */
  async ask<T extends object>(peer: Peer, operation: string, input: unknown, timeoutMs = ANSWER_MS): Promise<T> {
    const { link, connectDeadline } = await this.#linkTo(peer);
    const unreachable = !link.open && now() > connectDeadline;
    const options = { timeoutMs: unreachable ? Math.min(timeoutMs, UNREACHABLE_MS) : timeoutMs };
    // A broker has the admin's token: its answers are trusted.
    return (await link.sendAndWait({ type: "OPERATION", operation, input }, options)) as T;
  }

  /** The answers of all; a broker that does not answer in time is left out. */
  async askAll<T extends object>(operation: string, input: unknown): Promise<readonly PeerAnswer<T>[]> {
    const answers = this.#known.map(async (peer): Promise<PeerAnswer<T> | undefined> => {
      try {
        return { peer, answer: await this.ask<T>(peer, operation, input) };
      } catch (cause) {
        const { code, message } = asLaboroError(cause);
        this.#options.log.info({ code, broker: peer.name }, `another broker did not answer ${operation}: ${message}`);
        return undefined;
      }
    });
    return (await Promise.all(answers)).filter((one) => one !== undefined);
  }

  /** Forwards a request to a service of that broker's workers. `signal` cancels it. */
  async request(
    peer: Peer,
    request: PeerRequest,
    options: { readonly timeoutMs: number; readonly signal: AbortSignal },
  ): Promise<Uint8Array> {
    const { link } = await this.#linkTo(peer);
    return (await link.sendAndWait({ type: "REQUEST", ...request }, options)) as Uint8Array;
  }

  async #linkTo(peer: Peer): Promise<OpenLink> {
    const url = urlOf(peer);
    const caFingerprint = url?.startsWith("https:") === true ? await this.#fingerprint() : undefined;
    const known = this.#links.get(peer.identity);
    if (known?.link.closed === false) return known;
    if (url === undefined || this.#closed) {
      throw new LaboroError("LABORO_BROKER_GONE", `broker ${peer.name} has no open main listener`);
    }
    const { token, identity, connect } = this.#options;
    const link = connect({ urls: [url], token, caFingerprint, pinned: true, name: `${PEER_NAME}${identity}` });
    const opened: OpenLink = { url, link, connectDeadline: now() + ANSWER_MS };
    this.#links.set(peer.identity, opened);
    return opened;
  }

  async #fingerprint(): Promise<string | undefined> {
    this.#ca ??= await this.#options.caFingerprint();
    return this.#ca;
  }
}

export const urlOf = ({ listeners }: Pick<Peer, "listeners">): string | undefined =>
  listeners.find(({ name }) => name === "main")?.url;

/** A forwarded request is not forwarded again. */
export class PeerForwarder implements RequestForwarder {
  readonly #peers: Peers;
  /** Reads the heartbeats again: another broker may offer the service now. */
  readonly #refresh: () => void;
  #turns = 0;

  constructor(peers: Peers, refresh: () => void) {
    this.#peers = peers;
    this.#refresh = refresh;
  }

  canServe(service: string, pool: string): boolean {
    const found = this.#offering(service, pool).length > 0;
    if (!found) this.#refresh();
    return found;
  }

  forward(request: ServiceRequest, reply: Reply): () => void {
    const cancelled = new AbortController();
    void this.#forward(request, cancelled.signal).then(
      (body) => reply(body, undefined),
      (cause: unknown) => {
        const { code, message } = asLaboroError(cause);
        const thrown = code === "LABORO_SERVICE_FAILED" ? (cause as LaboroError).cause : undefined;
        reply(Buffer.from(message), code, thrown && Buffer.from(JSON.stringify(describeError(thrown))));
      },
    );
    return () => cancelled.abort();
  }

  async #forward({ service, pool, body, timeoutMs, retry }: ServiceRequest, signal: AbortSignal): Promise<Uint8Array> {
    const offering = this.#offering(service, pool);
    const peer = offering[this.#turns++ % Math.max(1, offering.length)];
    if (peer === undefined) throw new Error(`no broker offers ${service}`);
    return this.#peers.request(peer, { service, pool, body, retry }, { timeoutMs, signal });
  }

  #offering(service: string, pool: string): readonly Peer[] {
    return this.#peers.all.filter(({ state, services }) => {
      return state === "open" && services.some((one) => one.service === service && one.pool === pool);
    });
  }
}
