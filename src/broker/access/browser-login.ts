/**
 * The login of a browser: a link with a code, which is valid once and for a few minutes, is exchanged for a session token. The token has its
 * role and its expiry and is signed, so the broker stores nothing and the session stays valid over restarts.
 *
 * It is no cookie: a browser sends cookies to every port of a host, so to the servers of other users of this machine.
 */
import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { now as monotonicNow } from "../../base/clock.js";
import { isRole, type Role } from "./roles.js";

const CODE_MS = 5 * 60_000;
const CODES = 100;
export const SESSION_MS = 12 * 3_600_000;

export interface BrowserSession {
  readonly token: string;
  /** Milliseconds since 1970. */
  readonly expires: number;
}

export class BrowserLogin {
  readonly #secret: Buffer;
  readonly #codes = new Map<string, { readonly role: Role; readonly expires: number }>();
  readonly #now: () => number;

  /** The secret is derived from the admin's token: with a new token all sessions are invalid. */
  constructor(adminToken: string, now: () => number = () => Math.round(monotonicNow())) {
    this.#secret = createHmac("sha256", adminToken).update("laboro session").digest();
    this.#now = now;
  }

  newCode(role: Role): { readonly code: string; readonly expires: number } {
    const code = randomBytes(18).toString("base64url");
    const expires = this.#now() + CODE_MS;
    this.#codes.set(code, { role, expires });
    const [oldest] = this.#codes.keys();
    if (this.#codes.size > CODES && oldest !== undefined) this.#codes.delete(oldest);
    return { code, expires };
  }

  /** Undefined if the code is invalid or expired. */
  exchange(code: string): BrowserSession | undefined {
    const found = this.#codes.get(code);
    this.#codes.delete(code);
    if (found === undefined || found.expires < this.#now()) return undefined;
    const expires = this.#now() + SESSION_MS;
    const content = `${found.role}.${expires}`;
    return { token: `${content}.${this.#sign(content).toString("base64url")}`, expires };
  }

  /** Undefined if the session token is invalid or expired. */
  roleOf(token: string): Role | undefined {
    const [role, expires = "", signature = ""] = token.split(".");
    const given = Buffer.from(signature, "base64url");
    const right = this.#sign(`${role}.${expires}`);
    if (given.length !== right.length || !timingSafeEqual(given, right)) return undefined;
    const leftMs = Number(expires) - this.#now();
    // One that would last longer than a new one was made before the clock was set back.
    return isRole(role) && leftMs > 0 && leftMs <= SESSION_MS ? role : undefined;
  }

  #sign(content: string): Buffer {
    return createHmac("sha256", this.#secret).update(content).digest();
  }
}
