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

/** How a message with a variable tail is recognised: its prefix, what may follow so far, and the whole of it. */
export interface VariableMessage {
  readonly prefix: string;
  /** Whether more of the same could still make it a message. */
  readonly partialPattern: RegExp;
  readonly parse: (text: string) => RunexpMessage | undefined;
}

const SIZE = "(\\d{1,15})";

/** Greedy from the end: a name may hold blanks, sizes and the word success. */
const LABORO = new RegExp(`^LABORO ([^\\n]+) (\\.[^ \\n]+) ${SIZE}$`);
const REZULTO = new RegExp(`^REZULTO ([^\\n]+) (success|failure) ${SIZE}$`);

export const VARIABLE_MESSAGES: Readonly<Partial<Record<MessageType, VariableMessage>>> = {
  SALUTON: {
    prefix: "SALUTON; MI ",
    partialPattern: /^[-_a-zA-Z0-9]*$/,
    parse: (text) => {
      const host = text.slice("SALUTON; MI ".length);
      return HOST_PATTERN.test(host) ? { type: "SALUTON", host } : undefined;
    },
  },
  VERSIO: {
    prefix: "VERSIO ",
    partialPattern: /^[\d.]*$/,
    parse: (text) => {
      const [, version] = /^VERSIO (\d+(?:\.\d+)?)$/.exec(text) ?? [];
      return version === undefined ? undefined : { type: "VERSIO", version };
    },
  },
  ALIGI: {
    prefix: "ALIGI ",
    partialPattern: /^\S*$/,
    parse: (text) => {
      const group = text.slice("ALIGI ".length);
      return GROUP_PATTERN.test(group) ? { type: "ALIGI", group } : undefined;
    },
  },
  LABORO: {
    prefix: "LABORO ",
    partialPattern: /^[^\n]*$/,
    parse: (text) => {
      const [, name, kind, size] = LABORO.exec(text) ?? [];
      if (name === undefined || kind === undefined) return undefined;
      return { type: "LABORO", name, kind, size: Number(size) };
    },
  },
  REZULTO: {
    prefix: "REZULTO ",
    partialPattern: /^[^\n]*$/,
    parse: (text) => {
      const [, name, status, size] = REZULTO.exec(text) ?? [];
      if (name === undefined || (status !== "success" && status !== "failure")) return undefined;
      return { type: "REZULTO", name, status, size: Number(size) };
    },
  },
};

/** A message in readable form: names as text where they are UTF-8. */
export function fieldsOf(message: RunexpMessage): Record<string, unknown> {
  const { type: _, ...fields } = message;
  return "name" in fields ? { ...fields, name: displayName(fields.name) } : fields;
}

/** A name of bytes, as text. */
export const displayName = (name: string): string => Buffer.from(name, "latin1").toString();
