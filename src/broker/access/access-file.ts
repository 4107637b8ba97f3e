/** The address and the admin token of a broker: `access.json` in its data directory, readable by its owner only. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { errnoOf, LaboroError } from "../../base/errors.js";
import { writeFileAtomically } from "../../base/files/durable.js";
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
  writeFileAtomically(join(dir, FILE), `${JSON.stringify(access, null, 2)}\n`);
}

/** The token of an earlier start, so that it stays valid over restarts; a new one if there was none. */
export function loadOrCreateAdminToken(dir: string): string {
  const path = join(dir, FILE);
  try {
    const found = JSON.parse(readFileSync(path, "utf8")) as Partial<Access> | null;
    if (typeof found?.token === "string" && found.token !== "") return found.token;
  } catch (cause) {
    if (errnoOf(cause) === "ENOENT") return newToken();
    if (errnoOf(cause) !== undefined) throw cause;
  }
  throw new LaboroError("LABORO_DATA_CORRUPT", `${path} has no token; remove it, and the broker makes a new one`);
}
