/** Messages in readable form: in traces of connections and in `laboro decode scale0`. */
import type { DecodedMessage, Decoder } from "../decoders.js";
import { type Message, printable, type ReceivedFrames, readFrames } from "./frames.js";

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

export const describeMessage = ({ command, parameters, body }: Message): DecodedMessage => ({
  name: command,
  fields: { ...Object.fromEntries(Object.entries(parameters).map(shortened)), ...describeBody(body) },
});

export function describeFrames(frames: ReceivedFrames): DecodedMessage {
  if (frames.kind === "message") return describeMessage(frames);
  if (frames.kind === "prototype") return { name: frames.word, fields: { value: printable(frames.value) } };
  return frames.kind === "unknown"
    ? { name: frames.command, fields: { unknown: true } }
    : { name: "?", fields: { malformed: frames.why } };
}

/** `laboro decode scale0`: messages in their frames, with or without ZeroMQ's routing frame in front. */
export const decoder = (): Decoder => ({ push: (_direction, frames) => [decoded(frames)], end: () => [] });

function decoded(frames: readonly Uint8Array[]): DecodedMessage {
  const plain = described(frames);
  if (plain.note === undefined || frames.length < 2) return plain;
  const [identity = new Uint8Array(0), ...rest] = frames;
  const routed = described(rest);
  if (routed.note !== undefined) return published(frames) ?? greeting(frames) ?? plain;
  return { ...routed, fields: { peer: describeIdentity(Buffer.from(identity)), ...routed.fields } };
}

function described(frames: readonly Uint8Array[]): DecodedMessage {
  const received = readFrames(frames);
  const { name, fields } = describeFrames(received);
  if (received.kind === "malformed") return { name, fields: {}, note: received.why };
  return received.kind === "unknown" ? { name, fields: {}, note: "unknown command" } : { name, fields };
}

/** The broker's answer to a worker that listens itself. */
const greeting = ([word, value]: readonly Uint8Array[]): DecodedMessage | undefined =>
  Buffer.from(word ?? "").toString() === "OK" && value?.length === 0 ? { name: "OK", fields: {} } : undefined;

/** What the prototype's broker publishes: a worker's id, a word, and maybe a value. */
function published([topic, word, value]: readonly Uint8Array[]): DecodedMessage | undefined {
  const name = Buffer.from(word ?? "").toString();
  if (topic === undefined || (name !== "OK" && name !== "HEARTBEAT")) return undefined;
  const peer = describeIdentity(Buffer.from(topic));
  return { name, fields: value === undefined ? { peer } : { peer, value: Buffer.from(value).toString() } };
}
