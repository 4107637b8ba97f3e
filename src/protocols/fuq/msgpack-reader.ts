/**
 * Reads msgpack field by field, as far as fuq uses it. Nothing is built for what a peer only claims: a length lies within the bytes that
 * came, what nobody asked for is walked over without recursion, and text that is not UTF-8 stays bytes. What follows the value is ignored.
 */
import { isUtf8 } from "node:buffer";
import { badMessage, type LaboroError } from "../../base/errors.js";
import type { Bytes } from "../../model/recipe.js";

const NIL = 0xc0;
/** Longer keys are nobody's field names. */
const MAX_KEY = 64;

/** From 0xc0 on: the bytes after the token that hold the number itself, or the length of what follows. */
const HEADS = [0, 0, 0, 0, 1, 2, 4, 1, 2, 4, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 0, 0, 0, 0, 0, 1, 2, 4, 2, 4, 2, 4] as const;

type Readers = Readonly<Record<string, (from: MsgpackReader, key: string) => unknown>>;
type Fields<R extends Readers> = { readonly [K in keyof R]?: Exclude<ReturnType<R[K]>, undefined> };

export class MsgpackReader {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  /** True where a nil stood here; it is then behind us. */
  nil(): boolean {
    if (this.#peek() !== NIL) return false;
    this.#at++;
    return true;
  }

  atList(): boolean {
    const token = this.#peek();
    return (token >= 0x90 && token < 0xa0) || token === 0xdc || token === 0xdd;
  }

  /** A whole number of any width; nil is 0. */
  integer(what: string): number {
    const token = this.#next();
    if (token < 0x80) return token;
    if (token >= 0xe0) return token - 0x100;
    if (token === NIL) return 0;
    const head = HEADS[token - 0xc0] ?? 0;
    const isSigned = token >= 0xd0 && token <= 0xd3;
    if (!isSigned && (token < 0xcc || token > 0xcf)) throw this.#unlike(what, token, "a whole number");
    const at = this.#skipBytes(head);
    if (head < 8) return isSigned ? this.#bytes.readIntBE(at, head) : this.#bytes.readUIntBE(at, head);
    const value = isSigned ? this.#bytes.readBigInt64BE(at) : this.#bytes.readBigUInt64BE(at);
    if (value > Number.MAX_SAFE_INTEGER || value < Number.MIN_SAFE_INTEGER)
      throw badMessage(`${what} is ${value}, beyond 2^53`);
    return Number(value);
  }

  flag(what: string): boolean {
    const token = this.#next();
    if (token === 0xc3) return true;
    if (token === 0xc2 || token === NIL) return false;
    throw this.#unlike(what, token, "true or false");
  }

  /** Text, or bytes where it is not UTF-8; nil is empty. */
  text(what: string): Bytes {
    const token = this.#next();
    if (token === NIL) return "";
    const length = this.#textLength(token);
    if (length === undefined) throw this.#unlike(what, token, "text");
    const at = this.#skipBytes(length);
    const bytes = this.#bytes.subarray(at, at + length);
    return isUtf8(bytes) ? bytes.toString() : new Uint8Array(bytes);
  }

  /** Undefined where there is nil. */
  list<T>(what: string, most: number, readItem: (from: this) => T): T[] | undefined {
    const length = this.#itemCount(what, "a list", 0x90, 0xdc);
    if (length === undefined) return undefined;
    if (length > most) throw badMessage(`${what} has ${length} items, expected at most ${most}`);
    this.#mustHold(length);
    return Array.from({ length }, () => readItem(this));
  }

  /** The fields that are there, of those that have a reader; others are walked over. Undefined where there is nil. */
  struct<R extends Readers>(what: string, readers: R): Fields<R> | undefined {
    const length = this.#itemCount(what, "a map", 0x80, 0xde);
    if (length === undefined) return undefined;
    this.#mustHold(length * 2);
    const fields: Record<string, unknown> = {};
    for (let i = 0; i < length; i++) {
      const key = this.#key();
      const read = key !== undefined && Object.hasOwn(readers, key) ? readers[key] : undefined;
      if (key === undefined || read === undefined) this.#skip();
      else fields[key] = read(this, key);
    }
    return fields as Fields<R>;
  }

  /** How many items a list or map has, by the token of its smallest form and the first of its two longer ones; undefined for nil. */
  #itemCount(what: string, expected: string, short: number, long: number): number | undefined {
    const token = this.#next();
    if (token === NIL) return undefined;
    if (token >= short && token < short + 0x10) return token & 0x0f;
    if (token !== long && token !== long + 1) throw this.#unlike(what, token, expected);
    return this.#length(token);
  }

  /** A key that may be a field's; undefined for any other. */
  #key(): string | undefined {
    const start = this.#at;
    const length = this.#textLength(this.#next());
    if (length === undefined || length > MAX_KEY) {
      this.#at = start;
      this.#skip();
      return undefined;
    }
    const at = this.#skipBytes(length);
    return this.#bytes.toString("latin1", at, at + length);
  }

  /** Walks over one value with all that is in it. */
  #skip(): void {
    let left = 1;
    while (left > 0) {
      left--;
      const token = this.#next();
      if (token < 0x80 || token >= 0xe0) continue;
      if (token < 0x90) left += (token & 0x0f) * 2;
      else if (token < 0xa0) left += token & 0x0f;
      else if (token < 0xc0) this.#skipBytes(token & 0x1f);
      else if (token === 0xc1) throw badMessage(`byte ${this.#at - 1} is 0xc1, which is no msgpack`);
      else if (token >= 0xde) left += this.#length(token) * 2;
      else if (token >= 0xdc) left += this.#length(token);
      else if (token >= 0xd4 && token <= 0xd8) this.#skipBytes(1 + 2 ** (token - 0xd4));
      else if (token >= 0xc7 && token <= 0xc9) this.#skipBytes(1 + this.#length(token));
      else if ((token >= 0xc4 && token <= 0xc6) || token >= 0xd9) this.#skipBytes(this.#length(token));
      else this.#skipBytes(HEADS[token - 0xc0] ?? 0);
      this.#mustHold(left);
    }
  }

  /** How long the text or bytes of this token are; undefined where it is neither. */
  #textLength(token: number): number | undefined {
    if (token >= 0xa0 && token < 0xc0) return token & 0x1f;
    const isLong = (token >= 0xd9 && token <= 0xdb) || (token >= 0xc4 && token <= 0xc6);
    return isLong ? this.#length(token) : undefined;
  }

  #length(token: number): number {
    const head = HEADS[token - 0xc0] ?? 0;
    return this.#bytes.readUIntBE(this.#skipBytes(head), head);
  }

  #peek(): number {
    const token = this.#bytes[this.#at];
    if (token === undefined) throw badMessage(`it ends at byte ${this.#at}, in the middle of a value`);
    return token;
  }

  #next(): number {
    const token = this.#peek();
    this.#at++;
    return token;
  }

  /** Where the bytes began that are now behind us. */
  #skipBytes(count: number): number {
    const at = this.#at;
    if (count > this.#bytes.length - at)
      throw badMessage(`${count} bytes are claimed at byte ${at}, ${this.#bytes.length - at} are left`);
    this.#at += count;
    return at;
  }

  /** A value takes a byte at least. */
  #mustHold(values: number): void {
    const left = this.#bytes.length - this.#at;
    if (values > left) throw badMessage(`${values} values are claimed at byte ${this.#at}, ${left} bytes are left`);
  }

  #unlike(what: string, token: number, expected: string): LaboroError {
    return badMessage(`${what} begins with 0x${token.toString(16)} at byte ${this.#at - 1}, expected ${expected}`);
  }
}
