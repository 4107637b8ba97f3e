/** Tokens and their roles: `tokens.json`, readable by its owner only. The admin's token is in `access.json`. */
import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { errnoOf, LaboroError } from "../../base/errors.js";
import { writeFileAtomically } from "../../base/files/durable.js";

export const ROLES = ["admin", "client", "worker", "read", "fuq"] as const;
/** What the holder of a token may do. */
export type Role = (typeof ROLES)[number];

/** The role that an operation requires; `any` is any known token. */
export type RequiredRole = "any" | "read" | "client" | "worker" | "admin";

const ALLOWED: Readonly<Record<RequiredRole, readonly Role[]>> = {
  any: ROLES,
  read: ["read", "client", "fuq", "admin"],
  client: ["client", "fuq", "admin"],
  worker: ["worker", "fuq", "admin"],
  admin: ["admin"],
};

export const roleAllows = (role: Role, needed: RequiredRole): boolean => ALLOWED[needed].includes(role);

/** The file in the data directory of `laboro serve` that has a token for it. */
const FILE_WITH: Readonly<Record<RequiredRole, string>> = {
  any: "client.url",
  read: "client.url",
  client: "client.url",
  worker: "join.url",
  admin: "access.json",
};

/** Throws LABORO_FORBIDDEN. The text fits into the reason of a close frame: 123 bytes with the code. */
export function requireRole(role: Role, needed: RequiredRole, what: string): void {
  if (roleAllows(role, needed)) return;
  const text = `${what} needs the role ${needed}, this token has ${role}: use that in ${FILE_WITH[needed]}`;
  throw new LaboroError("LABORO_FORBIDDEN", text);
}

export const isRole = (value: unknown): value is Role => ROLES.some((role) => role === value);

export interface Token {
  readonly role: Role;
  readonly token: string;
}

const FILE = "tokens.json";
const GENERATED_ROLES: readonly Role[] = ["client", "worker", "read", "fuq"];
const SHORTEST = 16;

const newToken = (): string => randomBytes(24).toString("base64url");

export class Tokens {
  readonly #known: readonly (Token & { readonly digest: Buffer })[];

  constructor(tokens: readonly Token[]) {
    this.#known = tokens.map((one) => ({ ...one, digest: digestOf(one.token) }));
  }

  /** In constant time. */
  roleOf(given: string): Role | undefined {
    const digest = digestOf(given);
    let found: Role | undefined;
    for (const one of this.#known) if (timingSafeEqual(one.digest, digest)) found ??= one.role;
    return found;
  }

  ofRole(role: Role): string | undefined {
    return this.#known.find((one) => one.role === role)?.token;
  }
}

const digestOf = (token: string): Buffer => createHash("sha256").update(token).digest();

/** The tokens of earlier starts, so that they stay valid over restarts; new ones if there are none. */
export const loadOrCreateTokens = (dir: string, admin: string): Tokens =>
  new Tokens([{ role: "admin", token: admin }, ...storedOrNewTokens(dir)]);

/** Without the admin's token. */
export const storedOrNewTokens = (dir: string): readonly Token[] => storedTokens(dir) ?? makeTokens(dir);

function makeTokens(dir: string): readonly Token[] {
  const tokens = GENERATED_ROLES.map((role) => ({ role, token: newToken() }));
  writeTokens(dir, tokens);
  return tokens;
}

export const writeTokens = (dir: string, tokens: readonly Token[]): void =>
  writeFileAtomically(join(dir, FILE), `${JSON.stringify(tokens, null, 2)}\n`);

export function storedTokens(dir: string): readonly Token[] | undefined {
  const path = join(dir, FILE);
  let tokens: unknown;
  try {
    tokens = JSON.parse(readFileSync(path, "utf8"));
  } catch (cause) {
    if (errnoOf(cause) === "ENOENT") return undefined;
    throw new LaboroError("LABORO_DATA_CORRUPT", `${path} cannot be read: ${String(cause)}`, { cause });
  }
  if (areTokens(tokens)) return tokens;
  throw new LaboroError(
    "LABORO_DATA_CORRUPT",
    `${path}: expected a list of {"role", "token"}, tokens of ${SHORTEST} characters or more`,
  );
}

export const areTokens = (value: unknown): value is readonly Token[] => Array.isArray(value) && value.every(isToken);

function isToken(value: unknown): value is Token {
  if (typeof value !== "object" || value === null) return false;
  const { role, token } = value as Partial<Token>;
  return isRole(role) && typeof token === "string" && token.length >= SHORTEST;
}

/** The address and the admin token of a broker: `access.json` in its data directory, readable by its owner only. */

export interface Access {
  readonly url: string;
  readonly token: string;
  /** SHA-256 of the CA's certificate, if the URL is https. */
  readonly ca?: string;
}

const ACCESS_FILE = "access.json";

export function writeAccess(dir: string, access: Access): void {
  writeFileAtomically(join(dir, ACCESS_FILE), `${JSON.stringify(access, null, 2)}\n`);
}

/** The token of an earlier start, so that it stays valid over restarts; a new one if there was none. */
export function loadOrCreateAdminToken(dir: string): string {
  const path = join(dir, ACCESS_FILE);
  try {
    const found = JSON.parse(readFileSync(path, "utf8")) as Partial<Access> | null;
    if (typeof found?.token === "string" && found.token !== "") return found.token;
  } catch (cause) {
    if (errnoOf(cause) === "ENOENT") return newToken();
    if (errnoOf(cause) !== undefined) throw cause;
  }
  throw new LaboroError("LABORO_DATA_CORRUPT", `${path} has no token; remove it, and the broker creates a new one`);
}
