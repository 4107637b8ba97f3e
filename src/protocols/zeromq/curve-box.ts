/** The boxes of CurveZMQ (RFC 26): X25519 of Node, XSalsa20 and Poly1305 of @noble/ciphers. */
import { createPrivateKey, createPublicKey, diffieHellman, generateKeyPairSync, type KeyObject } from "node:crypto";
import { hsalsa, xsalsa20poly1305 } from "@noble/ciphers/salsa.js";
import { zmtpError } from "./zmtp-codec.js";

export const KEY_SIZE = 32;
export const TAG_SIZE = 16;

export interface KeyPair {
  readonly publicKey: Buffer;
  readonly secretKey: KeyObject;
}

/** A key of 32 bytes has these before it in DER. */
const PUBLIC_DER = Buffer.from("302a300506032b656e032100", "hex");
const SECRET_DER = Buffer.from("302e020100300506032b656e04220420", "hex");

export const keyPair = (publicKey: Buffer, secret: Buffer): KeyPair => ({
  publicKey,
  secretKey: createPrivateKey({ key: Buffer.concat([SECRET_DER, secret]), format: "der", type: "pkcs8" }),
});

export function newKeyPair(): KeyPair {
  const { publicKey, privateKey } = generateKeyPairSync("x25519");
  return {
    publicKey: publicKey.export({ format: "der", type: "spki" }).subarray(PUBLIC_DER.length),
    secretKey: privateKey,
  };
}

const SIGMA = new Uint32Array(new TextEncoder().encode("expand 32-byte k").buffer);

/** What both ends derive from their own secret key and the other's public one. */
export function sharedKey(secretKey: KeyObject, peer: Buffer): Uint8Array {
  const publicKey = createPublicKey({ key: Buffer.concat([PUBLIC_DER, peer]), format: "der", type: "spki" });
  let secret: Buffer;
  try {
    secret = diffieHellman({ privateKey: secretKey, publicKey });
  } catch (cause) {
    // A few keys give the same secret with all others.
    throw Object.assign(zmtpError("a key that no one can have"), { cause });
  }
  const words = new Uint32Array(KEY_SIZE / 4);
  new Uint8Array(words.buffer).set(secret);
  const derived = new Uint32Array(KEY_SIZE / 4);
  hsalsa(SIGMA, words, new Uint32Array(4), derived);
  return new Uint8Array(derived.buffer);
}

/** `nonce`: 24 bytes that were never used with this key. */
export const seal = (key: Uint8Array, nonce: Uint8Array, plain: Uint8Array): Uint8Array =>
  xsalsa20poly1305(key, nonce).encrypt(plain);

/** Undefined if it was made with other keys, or altered. */
export function unseal(key: Uint8Array, nonce: Uint8Array, box: Uint8Array): Buffer | undefined {
  if (box.length < TAG_SIZE) return undefined;
  try {
    const plain = xsalsa20poly1305(key, nonce).decrypt(box);
    return Buffer.from(plain.buffer, plain.byteOffset, plain.length);
  } catch {
    return undefined;
  }
}
