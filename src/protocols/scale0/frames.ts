/**
 * A message of Scale0 is several frames: the command, a JSON object with its parameters, and any number of frames that only the two
 * ends interpret. A REQ socket puts an envelope before it and wants the same before the answer: an empty frame, and
 * before that a number of four bytes where it is set to match answers to requests.
 */
import { badMessage } from "../../base/errors.js";
import { COMMANDS, type Command, ID_NAMES, type Parameters } from "./commands.js";
import { memberText, stringifyObject } from "./json-text.js";

export interface Message {
  readonly command: Command;
  readonly parameters: Parameters;
  readonly body: readonly Uint8Array[];
  /** There were no frames for the body: it stood among the parameters. */
  readonly inline?: true;
}

/** Of a REQ socket; empty for any other. */
export type Envelope = readonly Uint8Array[];

/** What came in, whatever it is. */
export type ReceivedFrames =
  | ({ readonly kind: "message"; readonly envelope: Envelope } & Message)
  /** Of the prototype: a word and one value as text. */
  | { readonly kind: "prototype"; readonly word: PrototypeWord; readonly value: string }
  | { readonly kind: "unknown"; readonly envelope: Envelope; readonly command: string }
  | { readonly kind: "malformed"; readonly envelope: Envelope; readonly why: string };

export const PROTOTYPE_WORDS = ["READY", "PING", "PONG", "HEARTBEAT"] as const;
export type PrototypeWord = (typeof PROTOTYPE_WORDS)[number];

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
  if (parameters === undefined) return malformed(`the parameters of ${word} are no JSON object`);
  const message = {
    kind: "message",
    envelope,
    command: known,
    parameters: withExactIds(parameters, value),
    body,
  } as const;
  return body.length === 0 && isWork(known) && isGiven(parameters.body)
    ? { ...message, body: [Buffer.from(asText(parameters.body))], inline: true }
    : message;
}

const isWork = (command: Command): boolean => /^(?:WORK|TASK)/.test(command);
const isGiven = (value: unknown): boolean => value !== undefined && value !== null;
const asText = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value));

export function writeFrames({ command, parameters, body }: Message, envelope: Envelope = []): Uint8Array[] {
  return [...envelope, Buffer.from(command), Buffer.from(stringifyObject(parameters)), ...body];
}

function envelopeOf([first, second, third]: readonly Uint8Array[]): Envelope {
  if (first === undefined || second === undefined) return [];
  if (first.length === 0) return DELIMITER;
  const numbered = first.length === NUMBER_BYTES && second.length === 0 && third !== undefined;
  // A copy: what it was cut from may be large.
  return numbered && !isWord(textOf(first)) ? [Buffer.from(first), ...DELIMITER] : [];
}

const isWord = (text: string): boolean => [...COMMANDS, ...PROTOTYPE_WORDS].some((word) => word === text);

/** For the side that connects: anything but a message is a fault of the other end. */
export function readMessage(frames: readonly Uint8Array[]): Message {
  const received = readFrames(frames);
  if (received.kind === "message") return received.command === "CONFIG" ? withVersionText(received, frames) : received;
  const why =
    received.kind === "malformed"
      ? received.why
      : `unknown command ${received.kind === "unknown" ? received.command : received.word}`;
  throw badMessage(`the broker sent something that is not Scale0: ${why}`);
}

/** Ids are given back as they came. A number of more digits than JavaScript keeps stays text. */
function withExactIds(parameters: Parameters, json: string): Parameters {
  const inexact = ID_NAMES.filter((name) => {
    const value = parameters[name];
    return typeof value === "number" && !Number.isSafeInteger(value);
  });
  if (inexact.length === 0) return parameters;
  return { ...parameters, ...Object.fromEntries(inexact.map((name) => [name, memberText(json, name)])) };
}

/** A worker gives the version back as it got it, whatever it is. */
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
    // No JSON, or nested deeper than anyone means it.
    return undefined;
  }
}

/** What the later notes call it. */
const COMMAND_ALIASES: Readonly<Record<string, Command>> = { ERROR: "DISCONNECTERROR" };

/** For an end that knows of one body only. */
export const joined = (body: readonly Uint8Array[]): Uint8Array =>
  body.length === 1 && body[0] !== undefined ? body[0] : Buffer.concat(body);
