/** Messages as a person reads them: in traces of connections and in `laboro decode scale0`. */
import { type ReceivedFrames, type Message, printable } from "./frames.js";

/** Text where it is some that a person can read, and hexadecimal otherwise. */
export function shownIdentity(identity: Buffer): string {
  const text = identity.toString();
  const plain =
    /^[\p{L}\p{N}\p{P}\p{S} ]+$/u.test(text) && Buffer.from(text).equals(identity) && !text.startsWith("0x");
  return plain ? text : `0x${identity.toString("hex")}`;
}

const LONGEST_SHOWN = 200;

function shownBody(body: readonly Uint8Array[]): Record<string, unknown> {
  if (body.length === 0) return {};
  return {
    body: body.map((frame) => {
      const bytes = Buffer.from(frame.subarray(0, LONGEST_SHOWN));
      const text = bytes.toString();
      const cut = frame.length > LONGEST_SHOWN ? "…" : "";
      return (/^[\p{L}\p{N}\p{P}\p{S}\s]*$/u.test(text) ? text : `0x${bytes.toString("hex")}`) + cut;
    }),
  };
}

const shortened = ([name, value]: readonly [string, unknown]): readonly [string, unknown] => [
  name,
  typeof value === "string" && value.length > LONGEST_SHOWN ? `${value.slice(0, LONGEST_SHOWN)}…` : value,
];

export const shown = ({ command, parameters, body }: Message): { name: string; fields: Record<string, unknown> } => ({
  name: command,
  fields: { ...Object.fromEntries(Object.entries(parameters).map(shortened)), ...shownBody(body) },
});

export function shownHeard(heard: ReceivedFrames): { name: string; fields: Record<string, unknown> } {
  if (heard.kind === "message") return shown(heard);
  if (heard.kind === "prototype") return { name: heard.word, fields: { value: printable(heard.value) } };
  return heard.kind === "unknown"
    ? { name: heard.command, fields: { unknown: true } }
    : { name: "?", fields: { malformed: heard.why } };
}
