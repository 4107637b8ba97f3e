/**
 * All brokers of a group have the same tokens and the same CA, so a join URL is valid at all of them. Both are in the
 * store. The first broker stores those of its data directory, or makes them. The others copy the stored ones to their
 * data directories, for tools on their machine.
 */
import { X509Certificate } from "node:crypto";
import { LaboroError } from "../../base/errors.js";
import type { Log } from "../../base/log.js";
import type { Store } from "../../model/store.js";
import type { AgreeOnCa, CertificatePair } from "../access/certificates.js";
import {
  areTokens,
  loadOrCreateAdminToken,
  storedOrNewTokens,
  type Token,
  Tokens,
  writeTokens,
} from "../access/tokens.js";
import type { Core } from "../core.js";

const BUCKET = "access";

/** Returns the value of this key. If there is none, stores the one of `make`, unless another broker is faster. */
async function getOrCreate(core: Core, key: string, make: () => Promise<string>): Promise<string> {
  for (;;) {
    const found = await readText(core.store, key);
    if (found !== undefined) return found;
    const made = await make();
    const { stored } = await core.put(BUCKET, key, made, 0);
    if (stored) return made;
  }
}

const readText = async (store: Store, key: string): Promise<string | undefined> =>
  (await store.keyValues(BUCKET)).find((one) => one.key === key)?.value;

export const adminToken = (core: Core, dir: string, given: string | undefined): Promise<string> =>
  getOrCreate(core, "admin", async () => given ?? loadOrCreateAdminToken(dir));

export async function sharedTokens(core: Core, dir: string, admin: string, log: Log): Promise<Tokens> {
  const own = storedOrNewTokens(dir);
  const text = await getOrCreate(core, "tokens", async () => JSON.stringify(own));
  const shared: unknown = JSON.parse(text);
  if (!areTokens(shared)) throw new LaboroError("LABORO_DATA_CORRUPT", "the tokens in the store are invalid");
  if (!sameTokens(own, shared)) {
    log.info({}, "the tokens in the data directory are replaced by those of the group");
    writeTokens(dir, shared);
  }
  return new Tokens([{ role: "admin", token: admin }, ...shared]);
}

const sameTokens = (a: readonly Token[], b: readonly Token[]): boolean => JSON.stringify(a) === JSON.stringify(b);

export const sharedCa =
  (core: Core): AgreeOnCa =>
  async (own) =>
    JSON.parse(await getOrCreate(core, "ca", async () => JSON.stringify(await own()))) as CertificatePair;

/** The fingerprint of the group's CA; undefined if none was made yet. */
export async function sharedFingerprint(store: Store): Promise<string | undefined> {
  const text = await readText(store, "ca");
  if (text === undefined) return undefined;
  const { cert } = JSON.parse(text) as CertificatePair;
  return new X509Certificate(cert).fingerprint256.replaceAll(":", "").toLowerCase();
}
