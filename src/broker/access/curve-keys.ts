/**
 * The keys of ZeroMQ listeners that require CURVE: `curve.json` in the data directory, readable by its owner only. It
 * contains the broker's key pair and the named public keys of the peers that may connect.
 */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type CurveKeyPair, isCurveKey } from "../../base/curve-key.js";
import { badInput, errnoOf, LaboroError, whyUnreadable } from "../../base/errors.js";
import { writeFileAtomically } from "../../base/files/durable.js";
import type { CurveKeys } from "../listeners/listener.js";

/** What a peer needs to connect: its own pair, and the broker's public key. */
interface PeerKeys extends CurveKeyPair {
  readonly serverKey: string;
}

export interface KeyRing extends CurveKeyPair {
  readonly known: Readonly<Record<string, string>>;
}

const FILE = "curve.json";

/** For `serve --curve`. Throws if no keys were made yet. */
export function readCurveKeys(dir: string): CurveKeys {
  const ring = readKeyRing(dir);
  if (ring === undefined) {
    throw badInput(`${join(dir, FILE)} does not exist: laboro keys new creates the broker's keys`);
  }
  return { publicKey: ring.publicKey, secretKey: ring.secretKey, known: Object.values(ring.known) };
}

export function readKeyRing(dir: string): KeyRing | undefined {
  const path = join(dir, FILE);
  if (!existsSync(path)) return undefined;
  const { publicKey, secretKey, known } = readJson(path);
  const pair = { publicKey: keyIn(publicKey, path), secretKey: keyIn(secretKey, path) };
  const listed = Object.entries((known ?? {}) as object).map(([name, key]) => [name, keyIn(key, path)] as const);
  return { ...pair, known: Object.fromEntries(listed) };
}

export function writeKeyRing(dir: string, ring: KeyRing): void {
  writeFileAtomically(join(dir, FILE), `${JSON.stringify(ring, null, 2)}\n`);
}

/** The file of a peer, with its secret key. */
export function readPeerKeys(path: string): PeerKeys {
  const { publicKey, secretKey, serverKey } = readJson(path);
  return {
    publicKey: keyIn(publicKey, path),
    secretKey: keyIn(secretKey, path),
    serverKey: keyIn(serverKey, path),
  };
}

function readJson(path: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(readFileSync(path, "utf8"));
    if (typeof value === "object" && value !== null) return value as Record<string, unknown>;
  } catch (cause) {
    if (errnoOf(cause) !== undefined) throw badInput(`cannot read ${path}: ${whyUnreadable(cause)}`, cause);
  }
  throw new LaboroError("LABORO_DATA_CORRUPT", `${path} holds no keys; laboro keys new writes such files`);
}

function keyIn(value: unknown, path: string): string {
  if (isCurveKey(value)) return value;
  throw new LaboroError(
    "LABORO_DATA_CORRUPT",
    `${path}: a key is 40 characters of Z85; laboro keys new writes such files`,
  );
}
