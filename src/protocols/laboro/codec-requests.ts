/**
 * REQUEST, CALL, REPLY and RESPONSE as bytes, written and read in one pass: a busy link carries little else, and the
 * general codec takes four passes and a list per message. The bytes are the same. Messages with optional fields, a
 * large body, a bad value or another form of a number are left to the general codec.
 */
import { DEFAULT_POOL } from "../../model/recipe.js";
import type { LinkMessage } from "./messages.js";

const REQUEST = 41;
const CALL = 31;
const REPLY = 7;
const RESPONSE = 51;

/** Bytes of each message besides name and body: three heads, a type, an id of five bytes, a deadline of nine. */
const SPARE_BYTES = 24;
const MAX_BODY = 64 * 1024;
/** A longer name has another head. */
const MAX_NAME = 31;

/** The most bytes that writeRequest needs for the message; 0 if the message is left to the general codec. */
export function requestSize(message: LinkMessage): number {
  switch (message.type) {
    case "REQUEST":
      if (message.retry !== false || message.pool !== DEFAULT_POOL) return 0;
      return sizeOf(message, message.service, message.deadline);
    case "CALL":
      return sizeOf(message, message.service, message.deadline);
    case "REPLY":
    case "RESPONSE":
      return message.error === undefined ? sizeOf(message, "-", 0) : 0;
    default:
      return 0;
  }
}

function sizeOf({ id, body }: { id: number; body: Uint8Array }, service: string, deadline: number): number {
  if (id >>> 0 !== id || !(body instanceof Uint8Array) || body.length > MAX_BODY) return 0;
  if (typeof deadline !== "number" || !(deadline >= 0 && deadline < Number.POSITIVE_INFINITY)) return 0;
  return isShortName(service) ? SPARE_BYTES + service.length + body.length : 0;
}

function isShortName(text: string): boolean {
  if (typeof text !== "string" || text.length === 0 || text.length > MAX_NAME) return false;
  for (let i = 0; i < text.length; i++) if (text.charCodeAt(i) >= 0x80) return false;
  return true;
}

/** Writes a message for which requestSize returned a number. Returns its end. */
export function writeRequest(message: LinkMessage, into: Buffer, from: number): number {
  let at = from;
  if (message.type === "REPLY" || message.type === "RESPONSE") {
    into[at++] = 0x93;
    into[at++] = message.type === "REPLY" ? REPLY : RESPONSE;
    at = writeInteger(message.id, into, at);
    return writeBody(message.body, into, at);
  }
  if (message.type !== "REQUEST" && message.type !== "CALL") throw new TypeError(`${message.type} is no request`);
  const { service, deadline } = message;
  into[at++] = 0x95;
  into[at++] = message.type === "REQUEST" ? REQUEST : CALL;
  at = writeInteger(message.id, into, at);
  into[at++] = 0xa0 | service.length;
  for (let i = 0; i < service.length; i++) into[at++] = service.charCodeAt(i);
  at = writeBody(message.body, into, at);
  if (deadline >>> 0 === deadline) return writeInteger(deadline, into, at);
  into[at] = 0xcb;
  return into.writeDoubleBE(deadline, at + 1);
}

function writeInteger(value: number, into: Buffer, from: number): number {
  let at = from;
  if (value < 0x80) {
    into[at++] = value;
  } else if (value < 0x100) {
    into[at++] = 0xcc;
    into[at++] = value;
  } else if (value < 0x1_0000) {
    into[at++] = 0xcd;
    into[at++] = value >>> 8;
    into[at++] = value;
  } else {
    into[at++] = 0xce;
    into[at++] = value >>> 24;
    into[at++] = value >>> 16;
    into[at++] = value >>> 8;
    into[at++] = value;
  }
  return at;
}

function writeBody(body: Uint8Array, into: Buffer, from: number): number {
  const { length } = body;
  let at = from;
  if (length < 0x100) {
    into[at++] = 0xc4;
  } else {
    into[at++] = length < 0x1_0000 ? 0xc5 : 0xc6;
    if (length >= 0x1_0000) {
      into[at++] = length >>> 24;
      into[at++] = length >>> 16;
    }
    into[at++] = length >>> 8;
  }
  into[at++] = length;
  into.set(body, at);
  return at + length;
}

/** The messages of a frame that holds nothing but messages of this type, all in their short form; else undefined. */
export function readRequests(bytes: Uint8Array, type: number): LinkMessage[] | undefined {
  if (!Buffer.isBuffer(bytes)) return undefined;
  const head = bytes[0] ?? 0;
  const isShort = (head & 0xf0) === 0x90;
  if (!isShort && head !== 0xdc) return undefined;
  const count = isShort ? head & 0x0f : ((bytes[1] ?? 0) << 8) | (bytes[2] ?? 0);
  const messages: LinkMessage[] = [];
  const reader = new Reader(bytes, isShort ? 1 : 3);
  for (let i = 0; i < count; i++) {
    const message = reader.message(type);
    if (message === undefined) return undefined;
    messages.push(message);
  }
  return reader.at === bytes.length ? messages : undefined;
}

/** The name that was read last: most frames hold one name many times. */
let lastName = "";

/** Its readers return undefined for everything that the general codec reads, and for incomplete bytes. */
class Reader {
  readonly #bytes: Buffer;
  at: number;

  constructor(bytes: Buffer, at: number) {
    this.#bytes = bytes;
    this.at = at;
  }

  message(type: number): LinkMessage | undefined {
    const head = this.#bytes[this.at++];
    if (this.#bytes[this.at++] !== type) return undefined;
    const id = this.#integer(this.#bytes[this.at++]);
    if (id === undefined) return undefined;
    if (type === REPLY || type === RESPONSE) {
      const body = head === 0x93 ? this.#body() : undefined;
      if (body === undefined) return undefined;
      return type === REPLY ? { type: "REPLY", id, body } : { type: "RESPONSE", id, body };
    }
    const service = head === 0x95 ? this.#name() : undefined;
    const body = service === undefined ? undefined : this.#body();
    const deadline = body === undefined ? undefined : this.#amount();
    if (service === undefined || body === undefined || deadline === undefined) return undefined;
    if (type === CALL) return { type: "CALL", id, service, body, deadline };
    return { type: "REQUEST", id, service, body, deadline, pool: DEFAULT_POOL, retry: false };
  }

  #integer(token: number | undefined): number | undefined {
    if (token === undefined || token < 0x80) return token;
    const bytes = this.#bytes;
    const size = token === 0xcc ? 1 : token === 0xcd ? 2 : token === 0xce ? 4 : 0;
    if (size === 0 || this.at + size > bytes.length) return undefined;
    let value = 0;
    for (let i = 0; i < size; i++) value = value * 0x100 + (bytes[this.at++] ?? 0);
    return value;
  }

  #amount(): number | undefined {
    const token = this.#bytes[this.at++];
    if (token !== 0xcb) return this.#integer(token);
    if (this.at + 8 > this.#bytes.length) return undefined;
    const value = this.#bytes.readDoubleBE(this.at);
    this.at += 8;
    return value >= 0 && value < Number.POSITIVE_INFINITY ? value : undefined;
  }

  #name(): string | undefined {
    const token = this.#bytes[this.at++] ?? 0;
    const length = token & 0x1f;
    const from = this.at;
    if ((token & 0xe0) !== 0xa0 || length === 0 || from + length > this.#bytes.length) return undefined;
    this.at = from + length;
    if (length === lastName.length && this.#isAt(lastName, from)) return lastName;
    for (let i = from; i < this.at; i++) if ((this.#bytes[i] ?? 0) >= 0x80) return undefined;
    lastName = this.#bytes.toString("latin1", from, this.at);
    return lastName;
  }

  #isAt(text: string, from: number): boolean {
    for (let i = 0; i < text.length; i++) if (text.charCodeAt(i) !== this.#bytes[from + i]) return false;
    return true;
  }

  #body(): Buffer | undefined {
    const bytes = this.#bytes;
    const token = bytes[this.at++];
    const size = token === 0xc4 ? 1 : token === 0xc5 ? 2 : token === 0xc6 ? 4 : 0;
    if (size === 0 || this.at + size > bytes.length) return undefined;
    let length = 0;
    for (let i = 0; i < size; i++) length = length * 0x100 + (bytes[this.at++] ?? 0);
    const from = this.at;
    if (from + length > bytes.length) return undefined;
    this.at = from + length;
    return bytes.subarray(from, this.at);
  }
}
