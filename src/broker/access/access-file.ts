/** The address and the admin token of a broker: `access.json` in its data directory, readable by its owner only. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { errnoOf, LaboroError } from "../../base/errors.js";
import { writePrivate } from "../../base/private-file.js";
import { newToken } from "./tokens.js";

export interface Access {
  readonly url: string;
  /** The admin's. */
  readonly token: string;
  /** SHA-256 of the CA's certificate, where the URL is https. */
  readonly ca?: string;
}

const FILE = "access.json";

export function writeAccess(dir: string, access: Access): void {
  writePrivate(join(dir, FILE), `${JSON.stringify(access, null, 2)}\n`);
}

export function readAccess(dir: string): Access {
  const path = join(dir, FILE);
  try {
    const { url, token, ca } = JSON.parse(readFileSync(path, "utf8")) as Partial<Access>;
    if (typeof url === "string" && typeof token === "string") {
      return typeof ca === "string" ? { url, token, ca } : { url, token };
    }
  } catch (cause) {
    const why = errnoOf(cause) === "ENOENT" ? "no broker has been started here" : "it cannot be read";
    throw new LaboroError("LABORO_BROKER_UNREACHABLE", `${path}: ${why}`, { cause });
  }
  throw new LaboroError("LABORO_BROKER_UNREACHABLE", `${path} does not say where the broker is`);
}

/** The token of an earlier start, so that it stays valid over restarts. */
export function loadOrCreateAdminToken(dir: string): string {
  try {
    return readAccess(dir).token;
  } catch (cause) {
    if (cause instanceof LaboroError) return newToken();
    throw cause;
  }
}
