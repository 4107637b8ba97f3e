/** Messages in readable form: in traces of connections and in `laboro decode scale0`. */
import { type Message, printable, type ReceivedFrames } from "./frames.js";

/** Printable text, else hexadecimal. */
export function describeIdentity(identity: Buffer): string {
  const text = identity.toString();
  const plain =
    /^[\p{L}\p{N}\p{P}\p{S} ]+$/u.test(text) && Buffer.from(text).equals(identity) && !text.startsWith("0x");
  return plain ? text : `0x${identity.toString("hex")}`;
}

const MAX_TEXT = 200;

function describeBody(body: readonly Uint8Array[]): Record<string, unknown> {
  if (body.length === 0) return {};
  return {
    body: body.map((frame) => {
      const bytes = Buffer.from(frame.subarray(0, MAX_TEXT));
      const text = bytes.toString();
      const cut = frame.length > MAX_TEXT ? "…" : "";
      return (/^[\p{L}\p{N}\p{P}\p{S}\s]*$/u.test(text) ? text : `0x${bytes.toString("hex")}`) + cut;
    }),
  };
}

const shortened = ([name, value]: readonly [string, unknown]): readonly [string, unknown] => [
  name,
  typeof value === "string" && value.length > MAX_TEXT ? `${value.slice(0, MAX_TEXT)}…` : value,
];

export const describeMessage = ({
  command,
  parameters,
  body,
}: Message): { name: string; fields: Record<string, unknown> } => ({
  name: command,
  fields: { ...Object.fromEntries(Object.entries(parameters).map(shortened)), ...describeBody(body) },
});

export function describeFrames(frames: ReceivedFrames): { name: string; fields: Record<string, unknown> } {
  if (frames.kind === "message") return describeMessage(frames);
  if (frames.kind === "prototype") return { name: frames.word, fields: { value: printable(frames.value) } };
  return frames.kind === "unknown"
    ? { name: frames.command, fields: { unknown: true } }
    : { name: "?", fields: { malformed: frames.why } };
}
