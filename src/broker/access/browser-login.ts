/**
 * The login of a browser: a link with a code, which is valid once and for a few minutes, is exchanged for a cookie. The cookie has its role
 * and its expiry and is signed, so the broker stores nothing and the cookie stays valid over restarts.
 */
import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { now as monotonicNow } from "../../base/clock.js";
import { isRole, type Role } from "./roles.js";

const CODE_MS = 5 * 60_000;
const CODES = 100;
export const COOKIE_MS = 12 * 3_600_000;
const COOKIE = "laboro";

export class BrowserLogin {
  readonly #secret: Buffer;
  readonly #codes = new Map<string, { readonly role: Role; readonly expires: number }>();
  readonly #now: () => number;

  /** The secret is derived from the admin's token: with a new token all cookies are invalid. */
  constructor(adminToken: string, now: () => number = () => Math.round(monotonicNow())) {
    this.#secret = createHmac("sha256", adminToken).update("laboro cookie").digest();
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

  /** The header that sets the cookie; undefined if the code is invalid or expired. */
  exchange(code: string, encrypted: boolean): string | undefined {
    const found = this.#codes.get(code);
    this.#codes.delete(code);
    if (found === undefined || found.expires < this.#now()) return undefined;
    const content = `${found.role}.${this.#now() + COOKIE_MS}`;
    const value = `${content}.${this.#sign(content).toString("base64url")}`;
    const secure = encrypted ? "; Secure" : "";
    return `${COOKIE}=${value}; Path=/; HttpOnly; SameSite=Strict; Max-Age=${COOKIE_MS / 1000}${secure}`;
  }

  roleOf(cookies: string | undefined): Role | undefined {
    for (const cookie of cookies?.split(";") ?? []) {
      const [name, value = ""] = cookie.trim().split("=", 2);
      if (name !== COOKIE) continue;
      const [role, expires = "", signature = ""] = value.split(".");
      const given = Buffer.from(signature, "base64url");
      const right = this.#sign(`${role}.${expires}`);
      if (given.length !== right.length || !timingSafeEqual(given, right)) continue;
      const leftMs = Number(expires) - this.#now();
      // One that would last longer than a new one was made before the clock was set back.
      if (isRole(role) && leftMs > 0 && leftMs <= COOKIE_MS) return role;
    }
    return undefined;
  }

  #sign(content: string): Buffer {
    return createHmac("sha256", this.#secret).update(content).digest();
  }
}
