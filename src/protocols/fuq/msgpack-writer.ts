/**
 * Writes msgpack as the original's library does: the smallest form of each integer, of each length, maps in the order of their fields.
 * Written here because those bytes are the protocol's, and a general packer may choose others.
 */
import type { Bytes } from "../../model/recipe.js";

type Value = null | boolean | number | Bytes | readonly Value[] | { readonly [field: string]: Value };

export function packMsgpack(value: Value): Buffer {
  const parts: Uint8Array[] = [];
  pack(value, parts);
  return Buffer.concat(parts);
}

function pack(value: Value, parts: Uint8Array[]): void {
  if (value === null) parts.push(Buffer.of(0xc0));
  else if (typeof value === "boolean") parts.push(Buffer.of(value ? 0xc3 : 0xc2));
  else if (typeof value === "number") parts.push(integer(value));
  else if (typeof value === "string" || value instanceof Uint8Array) {
    const bytes = typeof value === "string" ? Buffer.from(value) : value;
    parts.push(textHead(bytes.length), bytes);
  } else if (isList(value)) {
    parts.push(listHead(value.length));
    for (const one of value) pack(one, parts);
  } else {
    const fields = Object.entries(value);
    // No struct of fuq has more than the 15 fields of the smallest form.
    parts.push(Buffer.of(0x80 | fields.length));
    for (const field of fields) for (const one of field) pack(one, parts);
  }
}

const isList = (value: Value): value is readonly Value[] => Array.isArray(value);

function integer(value: number): Buffer {
  if (value >= 0) {
    if (value < 0x80) return Buffer.of(value);
    if (value < 0x100) return number(0xcc, value, 1);
    if (value < 0x1_0000) return number(0xcd, value, 2);
    return value < 0x1_0000_0000 ? number(0xce, value, 4) : long(0xcf, value);
  }
  if (value >= -0x20) return Buffer.of(value & 0xff);
  if (value >= -0x80) return number(0xd0, value + 0x100, 1);
  if (value >= -0x8000) return number(0xd1, value + 0x1_0000, 2);
  return value >= -0x8000_0000 ? number(0xd2, value + 0x1_0000_0000, 4) : long(0xd3, value);
}

function textHead(length: number): Buffer {
  if (length < 0x20) return Buffer.of(0xa0 | length);
  if (length < 0x100) return number(0xd9, length, 1);
  return length < 0x1_0000 ? number(0xda, length, 2) : number(0xdb, length, 4);
}

function listHead(length: number): Buffer {
  if (length < 0x10) return Buffer.of(0x90 | length);
  return length < 0x1_0000 ? number(0xdc, length, 2) : number(0xdd, length, 4);
}

function number(token: number, value: number, width: number): Buffer {
  const bytes = Buffer.alloc(1 + width, token);
  bytes.writeUIntBE(value, 1, width);
  return bytes;
}

function long(token: number, value: number): Buffer {
  const bytes = Buffer.alloc(9, token);
  bytes.writeBigUInt64BE(BigInt.asUintN(64, BigInt(value)), 1);
  return bytes;
}
