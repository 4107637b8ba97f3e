/**
 * Who is let in is the same at every broker of a group, and so is the CA that they show: a join URL of one is good at all. Both are kept in the
 * store. The first broker puts there what it has in its data directory, or makes them; the others take what is there, and write it to
 * theirs for the tools on their machine.
 */
import { X509Certificate } from "node:crypto";
import { LaboroError } from "../../base/errors.js";
import type { Log } from "../../base/log.js";
import type { Store } from "../../model/store.js";
import { loadOrCreateAdminToken } from "../access/access-file.js";
import type { AgreeOnCa, CertificatePair } from "../access/certificates.js";
import { areTokens, type Token, Tokens, storedOrNewTokens, writeTokens } from "../access/tokens.js";
import type { Core } from "../core.js";

const AREA = "access";

/** What is under this key; where nothing is, what `make` gives, unless another broker is faster. */
async function getOrCreate(core: Core, key: string, make: () => Promise<string>): Promise<string> {
  for (;;) {
    const found = await readText(core.store, key);
    if (found !== undefined) return found;
    const made = await make();
    const { stored: kept } = await core.keep(AREA, key, made, 0);
    if (kept) return made;
  }
}

const readText = async (store: Store, key: string): Promise<string | undefined> =>
  (await store.keyValues(AREA)).find((one) => one.key === key)?.value;

export const adminToken = (core: Core, dir: string, given: string | undefined): Promise<string> =>
  getOrCreate(core, "admin", async () => given ?? loadOrCreateAdminToken(dir));

export async function sharedTokens(core: Core, dir: string, admin: string, log: Log): Promise<Tokens> {
  const own = storedOrNewTokens(dir);
  const text = await getOrCreate(core, "tokens", async () => JSON.stringify(own));
  const shared: unknown = JSON.parse(text);
  if (!areTokens(shared)) throw new LaboroError("LABORO_DATA_CORRUPT", "the tokens in the store are none");
  if (!sameTokens(own, shared)) {
    log.info({}, "the tokens of the group take the place of those in the data directory");
    writeTokens(dir, shared);
  }
  return new Tokens([{ role: "admin", token: admin }, ...shared]);
}

const sameTokens = (a: readonly Token[], b: readonly Token[]): boolean => JSON.stringify(a) === JSON.stringify(b);

export const sharedCa =
  (core: Core): AgreeOnCa =>
  async (own) =>
    JSON.parse(await getOrCreate(core, "ca", async () => JSON.stringify(await own()))) as CertificatePair;

/** Of the CA that the brokers have agreed on, if they have: none has shown one otherwise. */
export async function sharedFingerprint(store: Store): Promise<string | undefined> {
  const text = await readText(store, "ca");
  if (text === undefined) return undefined;
  const { cert } = JSON.parse(text) as CertificatePair;
  return new X509Certificate(cert).fingerprint256.replaceAll(":", "").toLowerCase();
}
