/**
 * Workers that have sent /hello: their names and cookies. Both outlive the broker. Only the digest of a cookie is
 * stored, so that a reader of the store cannot impersonate a worker.
 */
import { createHash, randomBytes } from "node:crypto";
import { now } from "../../../../base/clock.js";
import type { Core } from "../../../../broker/core.js";
import { WorkerId } from "../../../../model/ids.js";
import { HttpError } from "./json-http.js";

/** What a worker reports about itself. `uniqueName` is assigned by the foreman. */
export interface NodeInfo {
  readonly node: string;
  readonly pid: number;
  readonly uniqueName: string;
  readonly tags: readonly string[];
  readonly nproc: number;
}

export interface FuqNode {
  readonly id: WorkerId;
  readonly info: NodeInfo;
  /** It was asked to stop, and is stopped whenever it connects. */
  stopping: boolean;
  /** It waits forever for a lost reply. It must be restarted, under another name. */
  stuck?: boolean;
}

interface NodeRecord extends FuqNode {
  info: NodeInfo;
  digest: string;
  expires: number;
}

type StoredNode = Pick<NodeRecord, "info" | "digest" | "expires">;

const AREA = "fuq-cookie";
const SESSION_AREA = "fuq-session";
const COOKIE = "fuq_foreman_auth";
const DAY = 86_400_000;
const COOKIE_MS = 14 * DAY;
const MAX_COOKIE = 128;
/** Above it the idle node that would expire first is removed. */
const MAX_NODES = 10_000;
/** How often the store is read for unknown cookies. Another broker may have issued them. */
const RELOAD_MS = 1_000;

export class Nodes {
  readonly #core: Core;
  readonly #byName = new Map<string, NodeRecord>();
  readonly #byDigest = new Map<string, NodeRecord>();
  #loading: Promise<void> | undefined;
  #loadedAt = Number.NEGATIVE_INFINITY;
  #session: Promise<string> | undefined;

  constructor(core: Core) {
    this.#core = core;
  }

  /** The name of the foreman. It is stored with its data. */
  session(): Promise<string> {
    this.#session ??= (async () => {
      await this.#core.put(SESSION_AREA, "session", newSecret(), 0);
      const [found] = await this.#core.keptTexts(SESSION_AREA);
      if (found === undefined) throw new Error("the session of fuq's foreman was not stored");
      return found.value;
    })();
    return this.#session;
  }

  async all(): Promise<readonly FuqNode[]> {
    await this.#load();
    return [...this.#byName.values()].filter(({ expires }) => expires > now());
  }

  async findByName(uniqueName: string): Promise<FuqNode | undefined> {
    await this.#load();
    return this.#byName.get(uniqueName);
  }

  /** A worker that brings no name gets a unique one. */
  async register(given: NodeInfo): Promise<{ readonly node: FuqNode; readonly cookie: string }> {
    await this.#load();
    await this.#evict();
    const base = `${given.node}:${given.pid}`;
    const own = given.uniqueName !== "" && given.uniqueName !== given.node;
    const cookie = newSecret();
    for (let number = own ? 0 : 1; ; number++) {
      const uniqueName = number === 0 ? given.uniqueName : `${base}:${number}`;
      const known = newNode({ ...given, uniqueName }, digestOf(cookie));
      // Version 0: another broker may have given the same name a moment ago.
      if (!this.#byName.has(uniqueName) && (await this.#save(known, 0))) return { node: known, cookie };
    }
  }

  /** A new cookie for a worker that has one. */
  async renew(cookie: string, given: NodeInfo): Promise<{ readonly node: FuqNode; readonly cookie: string }> {
    const known = await this.#find(cookie);
    const same = known?.info.node === given.node && known.info.uniqueName === given.uniqueName;
    if (known === undefined || !same) throw new HttpError(403);
    const renewed = newSecret();
    this.#byDigest.delete(known.digest);
    Object.assign(known, { info: given, digest: digestOf(renewed), expires: now() + COOKIE_MS });
    await this.#save(known);
    return { node: known, cookie: renewed };
  }

  /** The cookie is in a header or in the body of the request. Throws 401 without one, 403 if it is not known. */
  async findByCookie(header: string | undefined, inBody = ""): Promise<FuqNode> {
    const cookie = cookieIn(header) ?? (inBody === "" ? undefined : inBody);
    if (cookie === undefined) throw new HttpError(401, "missing session cookie");
    if (cookie.length > MAX_COOKIE) throw new HttpError(401, "cannot validate cookie");
    const known = await this.#find(cookie);
    if (known === undefined) throw new HttpError(403, "cannot validate cookie");
    // A worker renews nothing while it is connected. The cookie must still be valid when it reconnects.
    if (known.expires - now() < COOKIE_MS - DAY) {
      known.expires = now() + COOKIE_MS;
      await this.#save(known);
    }
    return known;
  }

  async #find(cookie: string): Promise<NodeRecord | undefined> {
    const digest = digestOf(cookie);
    if (!this.#byDigest.has(digest)) await this.#load(true);
    const known = this.#byDigest.get(digest);
    return known !== undefined && known.expires > now() ? known : undefined;
  }

  async #save(known: NodeRecord, version?: number): Promise<boolean> {
    const { info, digest, expires } = known;
    const value = JSON.stringify({ info, digest, expires } satisfies StoredNode);
    const { stored } = await this.#core.put(AREA, info.uniqueName, value, version);
    if (stored) this.#remember(known);
    return stored;
  }

  #remember(known: NodeRecord): void {
    const before = this.#byName.get(known.info.uniqueName);
    if (before !== undefined) this.#byDigest.delete(before.digest);
    this.#byName.set(known.info.uniqueName, known);
    this.#byDigest.set(known.digest, known);
  }

  /** Loads once. `again` loads once more, if other brokers share the store and it was not read just now. */
  async #load(again = false): Promise<void> {
    const stale = again && this.#core.group !== undefined && now() - this.#loadedAt > RELOAD_MS;
    if (this.#loading === undefined || stale) {
      this.#loadedAt = now();
      this.#loading = this.#read();
    }
    await this.#loading;
  }

  async #read(): Promise<void> {
    for (const { key, value } of await this.#core.keptTexts(AREA)) {
      const { info, digest, expires } = JSON.parse(value) as StoredNode;
      const known = this.#byName.get(key) ?? newNode(info, digest);
      this.#byDigest.delete(known.digest);
      this.#remember(Object.assign(known, { info, digest, expires }));
    }
  }

  async #evict(): Promise<void> {
    const ended = [...this.#byName.values()].filter(({ expires }) => expires <= now());
    for (const known of ended) await this.#forget(known);
    if (this.#byName.size < MAX_NODES) return;
    const idle = [...this.#byName.values()].filter(({ id }) => this.#core.worker(id) === undefined);
    const [oldest] = idle.sort((a, b) => a.expires - b.expires);
    if (oldest === undefined) throw new HttpError(500);
    await this.#forget(oldest);
  }

  async #forget(known: NodeRecord): Promise<void> {
    this.#byName.delete(known.info.uniqueName);
    this.#byDigest.delete(known.digest);
    await this.#core.put(AREA, known.info.uniqueName, null);
  }
}

const newNode = (info: NodeInfo, digest: string): NodeRecord => ({
  id: WorkerId(`fuq:${info.uniqueName}`),
  info,
  digest,
  expires: now() + COOKIE_MS,
  stopping: false,
});

/** 22 characters of base64, as the original's cookies have. */
const newSecret = (): string => randomBytes(16).toString("base64").slice(0, 22);

const digestOf = (cookie: string): string => createHash("sha256").update(cookie).digest("base64");

export function setCookie(cookie: string): string {
  const expires = new Date(now() + COOKIE_MS).toUTCString();
  return `${COOKIE}=${cookie}; Path=/; Expires=${expires}; HttpOnly`;
}

function cookieIn(header: string | undefined): string | undefined {
  for (const one of header?.split(";") ?? []) {
    const [name, ...rest] = one.trim().split("=");
    if (name === COOKIE) return rest.join("=").replace(/^"(.*)"$/, "$1");
  }
  return undefined;
}
