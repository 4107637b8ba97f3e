/** What a verb says: lines for people, or one JSON document for programs. */

/** Lines on standard output. */
export function say(...lines: readonly string[]): void {
  if (lines.length > 0) process.stdout.write(`${lines.join("\n")}\n`);
}

/** Remarks that are no part of the answer, on standard error. */
export function remark(...lines: readonly string[]): void {
  for (const line of lines) process.stderr.write(`laboro: ${line}\n`);
}

/** Bytes that are text become text, others base64: JSON knows no bytes. */
export function sayJson(value: unknown): void {
  say(JSON.stringify(value, (_name, item: unknown) => (item instanceof Uint8Array ? shownBytes(item) : item), 2));
}

function shownBytes(bytes: Uint8Array): string | { readonly base64: string } {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const text = buffer.toString();
  return Buffer.from(text).equals(buffer) ? text : { base64: buffer.toString("base64") };
}
