/** A message of the link in readable form: bytes as text where they are text, long values cut. */
import { isUtf8 } from "node:buffer";
import type { TracedMessage } from "../../base/traced-connections.js";
import type { LinkMessage } from "./messages.js";

const MAX_TEXT = 200;
const MAX_ITEMS = 20;
const DEEPEST = 5;

export function describeMessage({ type, ...fields }: LinkMessage): TracedMessage {
  const shown = "secret" in fields ? { ...fields, secret: "(hidden)" } : fields;
  return { name: type, fields: readable(shown, 0) as TracedMessage["fields"] };
}

function readable(value: unknown, depth: number): unknown {
  if (typeof value === "string") return cut(value);
  if (typeof value === "number") return Math.round(value * 1000) / 1000;
  if (value instanceof Uint8Array) return bytes(value);
  if (typeof value !== "object" || value === null) return value;
  if (depth >= DEEPEST) return "…";
  if (Array.isArray(value)) {
    const shown = value.slice(0, MAX_ITEMS).map((one) => readable(one, depth + 1));
    return value.length > MAX_ITEMS ? [...shown, `… ${value.length - MAX_ITEMS} more`] : shown;
  }
  const members = Object.entries(value).slice(0, MAX_ITEMS);
  return Object.fromEntries(members.map(([name, one]) => [name, readable(one, depth + 1)]));
}

function bytes(value: Uint8Array): string {
  const start = Buffer.from(value.buffer, value.byteOffset, Math.min(value.length, MAX_TEXT));
  const text = isUtf8(start) ? start.toString() : start.toString("hex");
  return value.length > MAX_TEXT ? `${text}… (${value.length} bytes)` : text;
}

const cut = (text: string): string =>
  text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}… (${text.length} characters)` : text;
