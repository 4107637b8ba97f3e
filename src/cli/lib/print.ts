/**
 * Output of verbs: lines for people, or one JSON document for programs.
 *
 * Confirmation before changes that cannot be undone.
 */
import { isUtf8 } from "node:buffer";
import { badInput } from "../../base/errors.js";
import { EscapeFilter, textFor } from "./terminal/escape-filter.js";
import { escapeControls } from "./terminal/terminal.js";

/** Lines on standard output. */
export function printLines(...lines: readonly string[]): void {
  if (lines.length > 0) process.stdout.write(textFor(process.stdout, `${lines.join("\n")}\n`));
}

/** Notices that are not part of the result, on standard error. They may contain text of a peer. */
export function printNotice(...lines: readonly string[]): void {
  for (const line of lines) process.stderr.write(`laboro: ${escapeLines(line)}\n`);
}

/** The lines of a message, with control characters escaped. */
export const escapeLines = (text: string): string => text.split("\n").map(escapeControls).join("\n");

/** Writes bytes of a task or peer to a standard stream. A terminal gets no escape sequences but text styles. */
export function openOutput(stream: NodeJS.WriteStream): (bytes: Uint8Array) => void {
  const filter = stream.isTTY ? new EscapeFilter() : undefined;
  return (bytes) => void stream.write(filter?.filter(bytes) ?? bytes);
}

export function printJson(value: unknown): void {
  printLines(JSON.stringify(value, asJson, 2));
}

/** Reads the property itself, because `item` of a Buffer is already the result of Buffer.toJSON. */
function asJson(this: unknown, name: string, item: unknown): unknown {
  const own = (this as Record<string, unknown>)[name];
  return own instanceof Uint8Array ? bytesToJson(own) : item;
}

/** JSON has no bytes: UTF-8 becomes text, everything else base64. */
export function bytesToJson(bytes: Uint8Array): string | { readonly base64: string } {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return isUtf8(buffer) ? buffer.toString() : { base64: buffer.toString("base64") };
}

/** Throws LABORO_BAD_INPUT if there is no terminal to ask at. */
export function requireTerminal(verb: string): void {
  if (process.stdin.isTTY && process.stderr.isTTY) return;
  throw badInput(
    `laboro ${verb} needs a confirmation, but there is no terminal: name the jobs by number, or add --yes`,
  );
}

export async function confirm(question: string): Promise<boolean> {
  // Loaded here, because few starts ask.
  const { createInterface } = await import("node:readline/promises");
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  try {
    return /^y(es)?$/i.test((await terminal.question(`${escapeControls(question)} [y/N] `)).trim());
  } finally {
    terminal.close();
  }
}
