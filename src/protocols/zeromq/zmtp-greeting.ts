/**
 * The 64 bytes with which both ends of a ZMTP 3 connection begin: signature, version, mechanism. Pure. Versions before 3 have no such
 * greeting and are refused by name.
 */
import { LaboroError } from "../../base/errors.js";
import { zmtpError } from "./zmtp-error.js";

export const GREETING_SIZE = 64;
/** Where the version is known, and a peer of an older one would wait for ever for more. */
const VERSION_AT = 10;
const MECHANISM_AT = 12;
const MECHANISM_SIZE = 20;

/** The one mechanism that is spoken here. CURVE is the `zeromq` package's. */
export const MECHANISM = "NULL";

export interface Greeting {
  readonly minor: number;
  readonly mechanism: string;
}

export function encodeGreeting(): Buffer {
  const bytes = Buffer.alloc(GREETING_SIZE);
  bytes[0] = 0xff;
  bytes[9] = 0x7f;
  bytes[VERSION_AT] = 3;
  bytes[VERSION_AT + 1] = 1;
  bytes.write(MECHANISM, MECHANISM_AT, "latin1");
  return bytes;
}

/** Undefined while it is not whole; throws as soon as it can be none. */
export function readGreeting(bytes: Buffer): Greeting | undefined {
  if (bytes.length > 0 && bytes[0] !== 0xff) throw zmtpError("the first byte is not FF");
  if (bytes.length > 9 && bytes[9] !== 0x7f) throw zmtpError("the signature does not end with 7F");
  const version = bytes[VERSION_AT] ?? 3;
  if (version < 3)
    throw new LaboroError("LABORO_VERSION", `ZMTP revision ${version}; 3.0 (ZeroMQ 4) is the oldest spoken here`);
  if (bytes.length < GREETING_SIZE) return undefined;
  const mechanism = bytes.toString("latin1", MECHANISM_AT, MECHANISM_AT + MECHANISM_SIZE).replace(/\0+$/, "");
  return { minor: bytes[VERSION_AT + 1] ?? 0, mechanism };
}
