/**
 * How ZMTP 3.1 begins and is controlled. Pure. The greeting is the 64 bytes with which both ends begin: signature, version, mechanism.
 * Versions before 3 have no such greeting and are refused by name. A command is a name, and what follows it: READY carries properties,
 * PING a time to live and a context.
 */
import { LaboroError } from "../../base/errors.js";
import { zmtpError } from "./zmtp-frames.js";

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

export interface Command {
  readonly name: string;
  readonly body: Buffer;
}

/** Names are compared without regard to case. */
export type Properties = ReadonlyMap<string, Buffer>;

/** A context of PING longer than this is not echoed in full. */
const MAX_CONTEXT = 16;
const MAX_PROPERTIES = 100;

export function readCommand(frame: Buffer): Command {
  const length = frame[0] ?? 0;
  if (length === 0 || frame.length < 1 + length) throw zmtpError("a command without a name");
  return { name: frame.toString("latin1", 1, 1 + length), body: frame.subarray(1 + length) };
}

export const makeCommand = (name: string, body: Uint8Array = new Uint8Array(0)): Buffer =>
  Buffer.concat([Buffer.from([name.length]), Buffer.from(name, "latin1"), body]);

export function readProperties(body: Buffer): Properties {
  const found = new Map<string, Buffer>();
  let at = 0;
  while (at < body.length) {
    const nameEnd = at + 1 + (body[at] as number);
    if (nameEnd + 4 > body.length) throw zmtpError("properties that end in the middle");
    const end = nameEnd + 4 + body.readUInt32BE(nameEnd);
    if (end > body.length) throw zmtpError("a property longer than its command");
    if (found.size >= MAX_PROPERTIES) throw zmtpError(`more than ${MAX_PROPERTIES} properties`);
    found.set(body.toString("latin1", at + 1, nameEnd).toLowerCase(), body.subarray(nameEnd + 4, end));
    at = end;
  }
  return found;
}

export function makeProperties(properties: Readonly<Record<string, Uint8Array>>): Buffer {
  const parts: Uint8Array[] = [];
  for (const [name, value] of Object.entries(properties)) {
    const length = Buffer.alloc(4);
    length.writeUInt32BE(value.length);
    parts.push(Buffer.from([name.length]), Buffer.from(name, "latin1"), length, value);
  }
  return Buffer.concat(parts);
}

/** The answer to a PING: its context. */
export const pongTo = (ping: Buffer): Buffer => makeCommand("PONG", ping.subarray(2, 2 + MAX_CONTEXT));

/**
 * A PING with a TTL of 0: the peer need not hang up when nothing follows. A TTL would have to be kept by further PINGs, also to a peer
 * that is heard; libzmq sends none by default.
 */
export const PING = makeCommand("PING", Buffer.alloc(2));

/** Why the peer is refused. */
export function makeError(why: string): Buffer {
  const reason = Buffer.from(why, "latin1").subarray(0, 255);
  return makeCommand("ERROR", Buffer.concat([Buffer.from([reason.length]), reason]));
}

export const readError = (body: Buffer): string => body.toString("latin1", 1, 1 + (body[0] ?? 0));
