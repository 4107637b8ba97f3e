/** Answers as JSON. Bytes become text if they are UTF-8, otherwise `{"base64": …}`. */
import { isUtf8 } from "node:buffer";

export const jsonOf = (value: object): string => JSON.stringify(plain(value));

export function plain(value: unknown): unknown {
  if (value instanceof Uint8Array) {
    const bytes = Buffer.from(value.buffer, value.byteOffset, value.length);
    return isUtf8(bytes) ? bytes.toString() : { base64: bytes.toString("base64") };
  }
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, plain(member)]));
}
