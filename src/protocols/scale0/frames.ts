/**
 * A message of Scale0 is several frames: the command, a JSON object with the parameters, and body frames that only the
 * two ends read. A REQ socket puts an envelope before it and needs the same before the answer: an empty frame, and
 * before that a number of four bytes if it matches answers to requests.
 */
import { badMessage } from "../../base/errors.js";
import type { DecodedMessage, Decoder } from "../decoders.js";
import { COMMANDS, type Command, ID_NAMES, memberText, type Parameters, stringifyObject } from "./commands.js";

export interface Message {
  readonly command: Command;
  readonly parameters: Parameters;
  readonly body: readonly Uint8Array[];
  /** The body came among the parameters, not in frames. */
  readonly inline?: true;
}

/** Of a REQ socket; empty for any other. */
export type Envelope = readonly Uint8Array[];

export type ReceivedFrames =
  | ({ readonly kind: "message"; readonly envelope: Envelope } & Message)
  /** Of the prototype: a word and one value as text. */
  | { readonly kind: "prototype"; readonly word: PrototypeWord; readonly value: string }
  | { readonly kind: "unknown"; readonly envelope: Envelope; readonly command: string }
  | { readonly kind: "malformed"; readonly envelope: Envelope; readonly why: string };

const PROTOTYPE_WORDS = ["READY", "PING", "PONG", "HEARTBEAT"] as const;
type PrototypeWord = (typeof PROTOTYPE_WORDS)[number];

/** Bytes of the parameters; a CONFIG repeats the config in them. */
const PARAMETER_BYTES = 1024 * 1024;
const COMMAND_BYTES = 64;

export const DELIMITER: Envelope = [Buffer.alloc(0)];
const NUMBER_BYTES = 4;

export function readFrames(frames: readonly Uint8Array[]): ReceivedFrames {
  const envelope = envelopeOf(frames);
  const [first, second, ...body] = envelope.length === 0 ? frames : frames.slice(envelope.length);
  const malformed = (why: string): ReceivedFrames => ({ kind: "malformed", envelope, why });
  if (first === undefined || first.length === 0) return malformed("no command");
  if (first.length > COMMAND_BYTES) return malformed(`a command of ${first.length} bytes`);
  const word = textOf(first);
  const known = COMMANDS.find((command) => command === (COMMAND_ALIASES[word] ?? word));
  const value = second === undefined ? undefined : textOf(second.subarray(0, PARAMETER_BYTES + 1));
  const prototypeWord = PROTOTYPE_WORDS.find((one) => one === word);
  if (prototypeWord !== undefined && value !== undefined && body.length === 0 && !/^\s*\{/.test(value))
    return { kind: "prototype", word: prototypeWord, value };
  if (known === undefined) return { kind: "unknown", envelope, command: printable(word) };
  if (second === undefined || value === undefined) return malformed(`${word} without parameters`);
  if (second.length > PARAMETER_BYTES) return malformed(`${second.length} bytes of parameters`);
  const parameters = objectIn(value);
  if (parameters === undefined) return malformed(`the parameters of ${word} are not a JSON object`);
  const exact = withExactIds(parameters, value);
  const message = { kind: "message", envelope, command: known, parameters: exact, body } as const;
  const inline = body.length === 0 && /^(?:WORK|TASK)/.test(known) ? (parameters.body ?? undefined) : undefined;
  if (inline === undefined) return message;
  const text = typeof inline === "string" ? inline : JSON.stringify(inline);
  return { ...message, body: [Buffer.from(text)], inline: true };
}

export function writeFrames({ command, parameters, body }: Message, envelope: Envelope = []): Uint8Array[] {
  return [...envelope, Buffer.from(command), Buffer.from(stringifyObject(parameters)), ...body];
}

function envelopeOf([first, second, third]: readonly Uint8Array[]): Envelope {
  if (first === undefined || second === undefined) return [];
  if (first.length === 0) return DELIMITER;
  const numbered = first.length === NUMBER_BYTES && second.length === 0 && third !== undefined;
  // A copy, because the frame is a view into a larger chunk.
  return numbered && !isWord(textOf(first)) ? [Buffer.from(first), ...DELIMITER] : [];
}

const isWord = (text: string): boolean => [...COMMANDS, ...PROTOTYPE_WORDS].some((word) => word === text);

/** The code and reason for frames that are not a message. */
export const faultOf = (received: Exclude<ReceivedFrames, Message>): readonly [400 | 501, string] => {
  if (received.kind === "malformed") return [400, received.why];
  if (received.kind === "prototype" && received.word === "PING")
    return [400, "the parameters of PING are not a JSON object"];
  return [
    501,
    received.kind === "unknown" ? JSON.stringify(received.command) : `${received.word} goes to the worker port`,
  ];
};

/** For workers and clients: anything but a message is a fault of the broker. */
export function readMessage(frames: readonly Uint8Array[]): Message {
  const received = readFrames(frames);
  if (received.kind === "message") return received.command === "CONFIG" ? withVersionText(received, frames) : received;
  const why =
    received.kind === "malformed"
      ? received.why
      : `unknown command ${received.kind === "unknown" ? received.command : received.word}`;
  throw badMessage(`the broker sent something that is not Scale0: ${why}`);
}

/** Ids are returned unchanged: a number with more digits than JavaScript keeps stays text. */
function withExactIds(parameters: Parameters, json: string): Parameters {
  const inexact = ID_NAMES.filter((name) => {
    const value = parameters[name];
    return typeof value === "number" && !Number.isSafeInteger(value);
  });
  if (inexact.length === 0) return parameters;
  return { ...parameters, ...Object.fromEntries(inexact.map((name) => [name, memberText(json, name)])) };
}

/** A worker returns the version as it got it. */
function withVersionText(message: Message & { readonly envelope: Envelope }, frames: readonly Uint8Array[]): Message {
  const json = textOf(frames[message.envelope.length + 1] ?? new Uint8Array(0));
  const config_version = memberText(json, "config_version") ?? memberText(json, "configversion");
  return { ...message, parameters: { ...message.parameters, config_version } };
}

const textOf = (bytes: Uint8Array): string => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString();

export const printable = (text: string): string =>
  // biome-ignore lint/suspicious/noControlCharactersInRegex: those are what is left out
  text.slice(0, COMMAND_BYTES).replaceAll(/[\u0000-\u001f\u007f-\u009f\ufffd]/g, "?");

function objectIn(text: string): Parameters | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Parameters) : undefined;
  } catch {
    return undefined;
  }
}

/** The word of the later notes. */
const COMMAND_ALIASES: Readonly<Record<string, Command>> = { ERROR: "DISCONNECTERROR" };

/** As one body. */
export const joined = (body: readonly Uint8Array[]): Uint8Array =>
  body.length === 1 && body[0] !== undefined ? body[0] : Buffer.concat(body);

// Readable form, for traces of connections and `laboro decode scale0`

/** Printable text, else hexadecimal. */
export function describeIdentity(identity: Buffer): string {
  const text = identity.toString();
  const plain =
    /^[\p{L}\p{N}\p{P}\p{S} ]+$/u.test(text) && Buffer.from(text).equals(identity) && !text.startsWith("0x");
  return plain ? text : `0x${identity.toString("hex")}`;
}

const MAX_TEXT = 200;

function describeBody(frame: Uint8Array): string {
  const bytes = Buffer.from(frame.subarray(0, MAX_TEXT));
  const text = bytes.toString();
  const shown = /^[\p{L}\p{N}\p{P}\p{S}\s]*$/u.test(text) ? text : `0x${bytes.toString("hex")}`;
  return frame.length > MAX_TEXT ? `${shown}…` : shown;
}

const shortened = ([name, value]: readonly [string, unknown]): readonly [string, unknown] => [
  name,
  typeof value === "string" && value.length > MAX_TEXT ? `${value.slice(0, MAX_TEXT)}…` : value,
];

export const describeMessage = ({ command, parameters, body }: Message): DecodedMessage => ({
  name: command,
  fields: {
    ...Object.fromEntries(Object.entries(parameters).map(shortened)),
    ...(body.length === 0 ? {} : { body: body.map(describeBody) }),
  },
});

export function describeFrames(frames: ReceivedFrames): DecodedMessage {
  if (frames.kind === "message") return describeMessage(frames);
  if (frames.kind === "prototype") return { name: frames.word, fields: { value: printable(frames.value) } };
  return frames.kind === "unknown"
    ? { name: frames.command, fields: { unknown: true } }
    : { name: "?", fields: { malformed: frames.why } };
}

/** With or without ZeroMQ's routing frame in front. */
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

/** A publication of the prototype's broker: a worker's id, a word, and maybe a value. */
function published([topic, word, value]: readonly Uint8Array[]): DecodedMessage | undefined {
  const name = Buffer.from(word ?? "").toString();
  if (topic === undefined || (name !== "OK" && name !== "HEARTBEAT")) return undefined;
  const peer = describeIdentity(Buffer.from(topic));
  return { name, fields: value === undefined ? { peer } : { peer, value: Buffer.from(value).toString() } };
}
