/** `laboro decode scale0`: messages in their frames, with or without ZeroMQ's routing frame in front. */
import type { DecodedMessage, Decoder } from "../decoders.js";
import { describeFrames, describeIdentity } from "./describe.js";
import { readFrames } from "./frames.js";

export function decoder(): Decoder {
  return { push: (_direction, frames) => [decoded(frames)], end: () => [] };
}

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
