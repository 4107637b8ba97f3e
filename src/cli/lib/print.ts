/** What a verb says: lines for people, or one JSON document for programs. */

/** Lines on standard output. */
export function printLines(...lines: readonly string[]): void {
  if (lines.length > 0) process.stdout.write(`${lines.join("\n")}\n`);
}

/** Remarks that are no part of the answer, on standard error. */
export function printNotice(...lines: readonly string[]): void {
  for (const line of lines) process.stderr.write(`laboro: ${line}\n`);
}

/** Bytes that are text become text, others base64: JSON knows no bytes. */
export function printJson(value: unknown): void {
  printLines(JSON.stringify(value, asJson, 2));
}

/** Looks at the item itself: what it is given for a Buffer has been through the Buffer's own toJSON. */
function asJson(this: unknown, name: string, item: unknown): unknown {
  const own = (this as Record<string, unknown>)[name];
  return own instanceof Uint8Array ? shownBytes(own) : item;
}

function shownBytes(bytes: Uint8Array): string | { readonly base64: string } {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const text = buffer.toString();
  return Buffer.from(text).equals(buffer) ? text : { base64: buffer.toString("base64") };
}
