/**
 * The messages of runexp 1.3. None has a terminator; the names and numbers in them are bytes, carried here as text with one
 * character a byte (latin1), so that a file name of any encoding comes back as it went.
 */

export const PROTOCOL_VERSION = "1.3";
/** The group of those that name none. */
export const DEFAULT_GROUP = "__defaulte__";
export const DEFAULT_RUNEXP_PORT = 5433;

/** What a host may be called. */
export const HOST = /^[-_a-zA-Z0-9]+$/;
/** What a group may be called. */
export const GROUP = /^\S+$/;

export type Status = "success" | "failure";

/** Messages that are a word and nothing else. */
type Plain<T> = T extends string ? { readonly type: T } : never;

export type FromRunner =
  | { readonly type: "SALUTON"; readonly host: string }
  | { readonly type: "REZULTO"; readonly name: string; readonly status: Status; readonly size: number }
  | Plain<"KOMPRENAS" | "JES" | "PETO" | "PRETA" | "FINO ANKAU">;

export type FromManager =
  | { readonly type: "VERSIO"; readonly version: string }
  | { readonly type: "ALIGI"; readonly group: string }
  | { readonly type: "LABORO"; readonly name: string; readonly kind: string; readonly size: number }
  | Plain<"FINO" | "ATENDI" | "ELIRI" | "PRETA" | "RICEVIS">;

export type RunexpMessage = FromRunner | FromManager;
export type MessageType = RunexpMessage["type"];

/** A message without its data may be so long; the name of a file can be 4,096 bytes. */
export const LONGEST_MESSAGE = 8_192;

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

/** How a message with a variable tail is told: what it begins with, what may follow so far, and the whole of it. */
interface Tailed {
  readonly head: string;
  /** Whether more of the same could still make it a message. */
  readonly soFar: RegExp;
  readonly read: (text: string) => RunexpMessage | undefined;
}

const SIZE = "(\\d{1,15})";

/** Greedy from the end: a name may hold blanks, sizes and the word success. */
const LABORO = new RegExp(`^LABORO ([^\\n]+) (\\.[^ \\n]+) ${SIZE}$`);
const REZULTO = new RegExp(`^REZULTO ([^\\n]+) (success|failure) ${SIZE}$`);

export const TAILED: Readonly<Partial<Record<MessageType, Tailed>>> = {
  SALUTON: {
    head: "SALUTON; MI ",
    soFar: /^[-_a-zA-Z0-9]*$/,
    read: (text) => {
      const host = text.slice("SALUTON; MI ".length);
      return HOST.test(host) ? { type: "SALUTON", host } : undefined;
    },
  },
  VERSIO: {
    head: "VERSIO ",
    soFar: /^[\d.]*$/,
    read: (text) => {
      const [, version] = /^VERSIO (\d+(?:\.\d+)?)$/.exec(text) ?? [];
      return version === undefined ? undefined : { type: "VERSIO", version };
    },
  },
  ALIGI: {
    head: "ALIGI ",
    soFar: /^\S*$/,
    read: (text) => {
      const group = text.slice("ALIGI ".length);
      return GROUP.test(group) ? { type: "ALIGI", group } : undefined;
    },
  },
  LABORO: {
    head: "LABORO ",
    soFar: /^[^\n]*$/,
    read: (text) => {
      const [, name, kind, size] = LABORO.exec(text) ?? [];
      if (name === undefined || kind === undefined) return undefined;
      return { type: "LABORO", name, kind, size: Number(size) };
    },
  },
  REZULTO: {
    head: "REZULTO ",
    soFar: /^[^\n]*$/,
    read: (text) => {
      const [, name, status, size] = REZULTO.exec(text) ?? [];
      if (name === undefined || (status !== "success" && status !== "failure")) return undefined;
      return { type: "REZULTO", name, status, size: Number(size) };
    },
  },
};

/** A message as a person would read it: names as text where they are UTF-8. */
export function fieldsOf(message: RunexpMessage): Record<string, unknown> {
  const { type: _, ...fields } = message;
  return "name" in fields ? { ...fields, name: shownName(fields.name) } : fields;
}

/** A name of bytes, as text. */
export const shownName = (name: string): string => Buffer.from(name, "latin1").toString();
