/**
 * The messages of runexp 1.3. None has a terminator; the names and numbers in them are bytes, carried here as text with one
 * character a byte (latin1), so that a file name of any encoding comes back as it went.
 */

export const PROTOCOL_VERSION = "1.3";
/** The group of those that name none. */
export const DEFAULT_GROUP = "__defaulte__";
export const DEFAULT_RUNEXP_PORT = 5433;

/** What a host may be called. */
export const HOST_PATTERN = /^[-_a-zA-Z0-9]+$/;
/** What a group may be called. */
export const GROUP_PATTERN = /^\S+$/;

export type Status = "success" | "failure";

/** Messages that are a word and nothing else. */
type WordMessage<T> = T extends string ? { readonly type: T } : never;

/** Its data follows when the other side has sent PRETA. */
interface DataMessage<T> {
  readonly type: T;
  readonly name: string;
  readonly size: number;
}

export type FromRunner =
  | { readonly type: "SALUTON"; readonly host: string }
  | (DataMessage<"REZULTO"> & { readonly status: Status })
  | WordMessage<"KOMPRENAS" | "JES" | "PETO" | "PRETA" | "FINO ANKAU">;

export type FromManager =
  | { readonly type: "VERSIO"; readonly version: string }
  | { readonly type: "ALIGI"; readonly group: string }
  | (DataMessage<"LABORO"> & { readonly kind: string })
  | WordMessage<"FINO" | "ATENDI" | "ELIRI" | "PRETA" | "RICEVIS">;

/** The answers to PETO other than a job. */
export type NoJobReply = "FINO" | "ATENDI" | "ELIRI";

export type RunexpMessage = FromRunner | FromManager;
export type MessageType = RunexpMessage["type"];

/** A message without its data may be so long; the name of a file can be 4,096 bytes. */
export const MAX_MESSAGE = 8_192;

export function encode(message: RunexpMessage): Buffer {
  return Buffer.from(textOf(message), "latin1");
}

function textOf(message: RunexpMessage): string {
  switch (message.type) {
    case "SALUTON":
      return `SALUTON; MI ${message.host}`;
    case "VERSIO":
      return `VERSIO ${message.version}`;
    case "ALIGI":
      return `ALIGI ${message.group}`;
    case "LABORO":
      return `LABORO ${message.name} ${message.kind} ${message.size}`;
    case "REZULTO":
      return `REZULTO ${message.name} ${message.status} ${message.size}`;
    default:
      return message.type;
  }
}

/** How a message with a variable tail is recognised. */
export interface VariableMessage {
  readonly prefix: string;
  /** What may follow so far: whether more of the same could still make it a message. */
  readonly partialPattern: RegExp;
  /** The whole of it; the named groups are its fields. */
  readonly pattern: RegExp;
}

/** Greedy from the end: a name may hold blanks, sizes and the word success. */
export const VARIABLE_MESSAGES: Readonly<Partial<Record<MessageType, VariableMessage>>> = {
  SALUTON: {
    prefix: "SALUTON; MI ",
    partialPattern: /^[-_a-zA-Z0-9]*$/,
    pattern: /^SALUTON; MI (?<host>[-_a-zA-Z0-9]+)$/,
  },
  VERSIO: { prefix: "VERSIO ", partialPattern: /^[\d.]*$/, pattern: /^VERSIO (?<version>\d+(?:\.\d+)?)$/ },
  ALIGI: { prefix: "ALIGI ", partialPattern: /^\S*$/, pattern: /^ALIGI (?<group>\S+)$/ },
  LABORO: {
    prefix: "LABORO ",
    partialPattern: /^[^\n]*$/,
    pattern: /^LABORO (?<name>[^\n]+) (?<kind>\.[^ \n]+) (?<size>\d{1,15})$/,
  },
  REZULTO: {
    prefix: "REZULTO ",
    partialPattern: /^[^\n]*$/,
    pattern: /^REZULTO (?<name>[^\n]+) (?<status>success|failure) (?<size>\d{1,15})$/,
  },
};

/** Undefined where it is not whole. */
export function parseVariable(
  type: MessageType,
  { pattern }: VariableMessage,
  text: string,
): RunexpMessage | undefined {
  const fields = pattern.exec(text)?.groups;
  if (fields === undefined) return undefined;
  const size = fields.size === undefined ? {} : { size: Number(fields.size) };
  return { type, ...fields, ...size } as RunexpMessage;
}

/** A message in readable form: names as text where they are UTF-8. */
export function fieldsOf(message: RunexpMessage): Record<string, unknown> {
  const { type: _, ...fields } = message;
  return "name" in fields ? { ...fields, name: displayName(fields.name) } : fields;
}

/** A name or path of bytes, for a person. */
export const displayName = (name: string): string => bytesOf(name).toString();
/** The same for the file system. */
export const bytesOf = (name: string): Buffer => Buffer.from(name, "latin1");
/** A name or path that a person gave, as bytes. */
export const toLatin1 = (text: string): string => Buffer.from(text).toString("latin1");
