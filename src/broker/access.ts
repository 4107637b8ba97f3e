/** How to reach a broker and be let in: `access.json` in its data directory, readable by its owner only. */
import { randomBytes, timingSafeEqual } from "node:crypto";
import { chmodSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { errnoOf, LaboroError } from "../model/errors.js";

export interface Access {
  readonly url: string;
  readonly token: string;
}

const FILE = "access.json";

export const newToken = (): string => randomBytes(24).toString("base64url");

/** Written whole or not at all. */
export function writeAccess(dir: string, access: Access): void {
  const path = join(dir, FILE);
  const part = `${path}.${process.pid}`;
  writeFileSync(part, `${JSON.stringify(access, null, 2)}\n`, { mode: 0o600 });
  chmodSync(part, 0o600);
  renameSync(part, path);
}

export function readAccess(dir: string): Access {
  const path = join(dir, FILE);
  try {
    const { url, token } = JSON.parse(readFileSync(path, "utf8")) as Partial<Access>;
    if (typeof url === "string" && typeof token === "string") return { url, token };
  } catch (cause) {
    const why = errnoOf(cause) === "ENOENT" ? "no broker has been started here" : "it cannot be read";
    throw new LaboroError("LABORO_BROKER_UNREACHABLE", `${path}: ${why}`, { cause });
  }
  throw new LaboroError("LABORO_BROKER_UNREACHABLE", `${path} does not say where the broker is`);
}

/** The token of an earlier start, so that workers that outlive a broker are let in by the next. */
export function keptToken(dir: string): string {
  try {
    return readAccess(dir).token;
  } catch (cause) {
    if (cause instanceof LaboroError) return newToken();
    throw cause;
  }
}

export function tokenMatches(expected: string, given: string | undefined): boolean {
  if (given === undefined) return false;
  const a = Buffer.from(expected);
  const b = Buffer.from(given);
  return a.length === b.length && timingSafeEqual(a, b);
}
