/** Commands of ZMTP 3.1: a name, and what follows it. Pure. READY carries properties, PING a time to live and a context. */
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
