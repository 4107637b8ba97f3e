/** Authentication at the main listener: which role a request has, by a token or by a browser's session. */
import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import type { IncomingMessage } from "node:http";
import type { TLSSocket } from "node:tls";
import { isLoopback, networkOf } from "../../base/addresses.js";
import { now as monotonicNow } from "../../base/clock.js";
import type { ListenerGuard } from "../../base/connection-guard.js";
import type { ErrorCode } from "../../base/errors.js";
import { isRole, type Role, type Tokens } from "./tokens.js";

export interface Refusal {
  readonly status: 401 | 403 | 421 | 429;
  readonly code: ErrorCode;
  readonly why: string;
  /** The refusal may be sent when this resolves. */
  readonly sendAfter: Promise<void>;
}

type AuthResult = { readonly role: Role } | Refusal;

export const isRefusal = (result: object): result is Refusal => "status" in result;
const isEncrypted = (request: IncomingMessage): boolean => (request.socket as Partial<TLSSocket>).encrypted === true;

export class Auth {
  readonly #tokens: Tokens;
  readonly #browserLogin: BrowserLogin;
  readonly #throttle = new TokenThrottle();
  readonly #guard: Pick<ListenerGuard, "authenticated">;

  constructor(tokens: Tokens, browserLogin: BrowserLogin, guard: Pick<ListenerGuard, "authenticated">) {
    this.#guard = guard;
    this.#tokens = tokens;
    this.#browserLogin = browserLogin;
  }

  /**
   * Without encryption, only loopback addresses with a loopback host name may connect. This stops DNS rebinding: a
   * foreign page whose host name resolves to this machine.
   */
  checkTransport(request: IncomingMessage): Refusal | undefined {
    if (isEncrypted(request)) return undefined;
    if (!isLoopback(request.socket.remoteAddress ?? "")) {
      return refusal(403, "LABORO_FORBIDDEN", "other machines must use https");
    }
    if (isLoopback(hostOf(request))) return undefined;
    return refusal(421, "LABORO_FORBIDDEN", "without https only localhost and 127.0.0.1 are accepted as host name");
  }

  /** By the token in the Authorization header. With `sessions`, also by the session token of a browser. */
  authenticate(request: IncomingMessage, sessions: boolean): AuthResult {
    const refused = this.checkTransport(request);
    if (refused !== undefined) return refused;
    const token = tokenIn(request);
    if (token === undefined)
      return refusal(401, "LABORO_BAD_TOKEN", "a token is needed here: Authorization: Bearer TOKEN");
    return this.#roleOf(request, token, sessions);
  }

  /** Exchanges the code of a login link, sent in place of a token, for a session. */
  login(request: IncomingMessage): BrowserSession | Refusal {
    const refused = this.checkTransport(request);
    return refused ?? this.#browserLogin.exchange(tokenIn(request) ?? "") ?? this.#refuseToken(request);
  }

  /** By a token from another place than the Authorization header. */
  authenticateToken(request: IncomingMessage, token: string): AuthResult {
    return this.checkTransport(request) ?? this.#roleOf(request, token);
  }

  /** For a caller in this process, which has no address to delay. */
  roleOfToken(token: string): Role | undefined {
    return this.#tokens.roleOf(token);
  }

  #roleOf(request: IncomingMessage, token: string, sessions = false): AuthResult {
    const role = (sessions ? this.#browserLogin.roleOf(token) : undefined) ?? this.#tokens.roleOf(token);
    if (role === undefined) return this.#refuseToken(request);
    this.#guard.authenticated(request.socket);
    return { role };
  }

  #refuseToken(request: IncomingMessage): Refusal {
    const address = request.socket.remoteAddress ?? "";
    const delay = this.#throttle.delayAfterFailure(address);
    if (delay === undefined) return refusal(429, "LABORO_BAD_TOKEN", "too many wrong tokens came from this address");
    const sendAfter = new Promise<void>((resolve) => {
      setTimeout(() => {
        this.#throttle.refusalSent(address);
        resolve();
      }, delay).unref();
    });
    return { ...refusal(401, "LABORO_BAD_TOKEN", "the token is not known here"), sendAfter };
  }
}

const refusal = (status: Refusal["status"], code: ErrorCode, why: string): Refusal => ({
  status,
  code,
  why,
  sendAfter: Promise.resolve(),
});

/** `Bearer TOKEN`, or `Basic` with the token as the user name, which is how a URL with a token is sent. */
function tokenIn(request: IncomingMessage): string | undefined {
  const [scheme = "", given = ""] = request.headers.authorization?.split(" ", 2) ?? [];
  if (/^bearer$/i.test(scheme)) return given;
  if (/^basic$/i.test(scheme)) return Buffer.from(given, "base64").toString().split(":", 1)[0] ?? "";
  return request.headers.authorization === undefined ? undefined : "";
}

/** The name in the Host header, without its port. */
function hostOf({ headers }: IncomingMessage): string {
  return /^(\[[^\]]*\]|[^:]*)(:\d+)?$/.exec(headers.host ?? "")?.[1] ?? "";
}

/**
 * Delays the refusal of wrong tokens, longer with each one from the same address. Valid tokens are never delayed,
 * because a whole cluster may share one address. Tokens have 192 bits, so the delay is not needed against guessing; it
 * limits the load.
 */
const FIRST_MS = 100;
/** Below the time after which a connection without authentication is destroyed. */
const MAX_MS = 3_200;
/** Failures are forgotten after this time without another one. */
const FORGOTTEN_MS = 60_000;
/** Addresses that are remembered; the one with the oldest failure is dropped first. */
const ADDRESSES = 1_000;
/** Delayed refusals for one address; beyond that a request is refused at once. */
const MAX_DELAYED = 16;

interface FailedLogins {
  failures: number;
  last: number;
  delayed: number;
}

export class TokenThrottle {
  readonly #offenders = new Map<string, FailedLogins>();
  readonly #now: () => number;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  get size(): number {
    return this.#offenders.size;
  }

  /** Returns the delay before the refusal; undefined if too many refusals wait already. */
  delayAfterFailure(address: string): number | undefined {
    const key = networkOf(address);
    const at = this.#now();
    const before = this.#offenders.get(key);
    const offender =
      before !== undefined && at - before.last < FORGOTTEN_MS ? before : { failures: 0, last: at, delayed: 0 };
    this.#offenders.delete(key);
    this.#offenders.set(key, offender);
    offender.last = at;
    const [oldest] = this.#offenders.keys();
    if (this.#offenders.size > ADDRESSES && oldest !== undefined) this.#offenders.delete(oldest);
    if (offender.delayed >= MAX_DELAYED) return undefined;
    offender.delayed++;
    return Math.min(MAX_MS, FIRST_MS * 2 ** Math.min(offender.failures++, 20));
  }

  refusalSent(address: string): void {
    const offender = this.#offenders.get(networkOf(address));
    if (offender !== undefined && offender.delayed > 0) offender.delayed--;
  }
}

/**
 * The login of a browser: a link with a code, valid once and for a few minutes, is exchanged for a session token. The
 * token is signed and contains its role and expiry, so the broker stores nothing and sessions survive restarts.
 *
 * It is no cookie: a browser sends cookies to every port of a host, also to servers of other users of this machine.
 */
const CODE_MS = 5 * 60_000;
const CODES = 100;
export const SESSION_MS = 12 * 3_600_000;

interface BrowserSession {
  readonly token: string;
  /** Milliseconds since 1970. */
  readonly expires: number;
}

export class BrowserLogin {
  readonly #secret: Buffer;
  readonly #codes = new Map<string, { readonly role: Role; readonly expires: number }>();
  readonly #now: () => number;

  /** The secret is derived from the admin's token: a new token invalidates all sessions. */
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
    // A longer session was made before the clock was set back.
    return isRole(role) && leftMs > 0 && leftMs <= SESSION_MS ? role : undefined;
  }

  #sign(content: string): Buffer {
    return createHmac("sha256", this.#secret).update(content).digest();
  }
}
