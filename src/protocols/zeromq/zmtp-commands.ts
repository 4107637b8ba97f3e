/**
 * Commands of ZMTP 3.1: a name, and what follows it. Pure. READY and INITIATE carry properties, HELLO a name and a password, PING a time
 * to live and a context.
 */

import type { PlainCredentials } from "./types.js";
import { zmtpError } from "./zmtp-error.js";

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

/** The body of PLAIN's HELLO. */
export function readHello(body: Buffer): PlainCredentials {
  const nameEnd = 1 + (body[0] ?? 0);
  const end = nameEnd + 1 + (body[nameEnd] ?? 0);
  if (nameEnd >= body.length || end !== body.length)
    throw zmtpError("a HELLO that does not hold a name and a password");
  return { username: body.toString("utf8", 1, nameEnd), password: body.toString("utf8", nameEnd + 1, end) };
}

/** The answer to a PING: its context. */
export const pongTo = (ping: Buffer): Buffer => makeCommand("PONG", ping.subarray(2, 2 + MAX_CONTEXT));

/** `ttlMs`: the peer may give us up after so long without a sign. */
export function makePing(ttlMs: number): Buffer {
  const ttl = Buffer.alloc(2);
  ttl.writeUInt16BE(Math.min(0xffff, Math.ceil(ttlMs / 100)));
  return makeCommand("PING", ttl);
}

/** Why the peer is refused, as PLAIN and NULL have it. */
export function makeError(why: string): Buffer {
  const reason = Buffer.from(why, "latin1").subarray(0, 255);
  return makeCommand("ERROR", Buffer.concat([Buffer.from([reason.length]), reason]));
}

export const readError = (body: Buffer): string => body.toString("latin1", 1, 1 + (body[0] ?? 0));
