/**
 * The base of both sides of a connection. It takes messages from the reader as long as the state changes. A nested call
 * leaves the rest to the outer loop, so that the stack does not grow with the messages.
 */

/**
 * The messages of runexp 1.3. None has a terminator. Names are bytes, kept as text with one character per byte
 * (latin1), so that a file name of any encoding comes back unchanged.
 */
export const PROTOCOL_VERSION = "1.3";
export const DEFAULT_GROUP = "__defaulte__";
export const DEFAULT_RUNEXP_PORT = 5433;

export const HOST_PATTERN = /^[-_a-zA-Z0-9]+$/;
export const GROUP_PATTERN = /^\S+$/;

export type Status = "success" | "failure";

type WordMessage<T> = T extends string ? { readonly type: T } : never;

/** The data follows after PRETA of the other side. */
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

/** Bytes of a message without its data; a file name can have 4,096. */
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

interface VariableMessage {
  readonly prefix: string;
  /** Matches the tail so far if more bytes could complete it. */
  readonly partialPattern: RegExp;
  /** Matches the whole message; the named groups are its fields. */
  readonly pattern: RegExp;
}

/** Greedy: a name may contain blanks, sizes and the word success. */
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

/** Undefined if it is incomplete. */
function parseVariable(type: MessageType, { pattern }: VariableMessage, text: string): RunexpMessage | undefined {
  const fields = pattern.exec(text)?.groups;
  if (fields === undefined) return undefined;
  const size = fields.size === undefined ? {} : { size: Number(fields.size) };
  return { type, ...fields, ...size } as RunexpMessage;
}

/** The fields in readable form. */
export function fieldsOf(message: RunexpMessage): Record<string, unknown> {
  const { type: _, ...fields } = message;
  return "name" in fields ? { ...fields, name: displayName(fields.name) } : fields;
}

/** A name or path of bytes as text. */
export const displayName = (name: string): string => bytesOf(name).toString();
/** A name or path of bytes for the filesystem. */
export const bytesOf = (name: string): Buffer => Buffer.from(name, "latin1");
/** A name or path that a user gave, as text with one character per byte. */
export const toLatin1 = (text: string): string => Buffer.from(text).toString("latin1");

/** A message in several chunks is complete after this silence. */
export const QUIET_MS = 20;

type ReadResult<M extends RunexpMessage = RunexpMessage> =
  | { readonly kind: "message"; readonly message: M; readonly bytes: number }
  | { readonly kind: "partial" }
  /** It is a complete message if nothing arrives for QUIET_MS. */
  | { readonly kind: "needs-quiet" }
  /** None of the expected messages, whatever follows. */
  | { readonly kind: "wrong"; readonly text: string };

const PARTIAL: ReadResult<never> = { kind: "partial" };
const NEEDS_QUIET: ReadResult<never> = { kind: "needs-quiet" };

/**
 * Splits one direction of a stream into messages, which have no delimiters. The caller says which messages are possible
 * now. A fixed message is taken as soon as it is complete, data by its length. Nothing follows a message with a
 * variable tail, because its sender waits for the answer. So it is taken
 *
 *   at once            if it arrived in one chunk and matches the grammar
 *   after QUIET_MS     if it arrived in several chunks: another could still belong to it
 *
 * One case is ambiguous: a chunk that looks like a complete message and is not, `LABORO a .sh 1` and then `0`. There is
 * no clock here: the caller calls `quietElapsed`.
 */
export class MessageReader {
  #buffer: Buffer = Buffer.alloc(0);
  /** Where the latest chunk begins; 0 if nothing older is left. */
  #lastChunkStart = 0;
  #quiet = false;

  get length(): number {
    return this.#buffer.length;
  }

  push(piece: Uint8Array): void {
    this.#lastChunkStart = this.#buffer.length;
    this.#buffer = this.#lastChunkStart === 0 ? Buffer.from(piece) : Buffer.concat([this.#buffer, piece]);
    this.#quiet = false;
  }

  quietElapsed(): void {
    this.#quiet = true;
  }

  take<T extends MessageType>(expected: readonly T[]): ReadResult<Extract<RunexpMessage, { type: T }>> {
    type M = Extract<RunexpMessage, { type: T }>;
    if (this.#buffer.length === 0) return PARTIAL;
    const text = this.#buffer.toString("latin1", 0, MAX_MESSAGE + 1);
    let possible: ReadResult<M> | undefined;
    for (const type of expected) {
      const tailed = VARIABLE_MESSAGES[type];
      if (tailed === undefined) {
        if (text.startsWith(type)) return this.#taken({ type } as unknown as M, type.length);
        if (type.startsWith(text)) possible = PARTIAL;
      } else if (tailed.prefix.startsWith(text)) {
        possible = PARTIAL;
      } else if (text.startsWith(tailed.prefix) && tailed.partialPattern.test(text.slice(tailed.prefix.length))) {
        const message = text.length > MAX_MESSAGE ? undefined : (parseVariable(type, tailed, text) as M | undefined);
        if (message === undefined) possible = text.length > MAX_MESSAGE ? undefined : PARTIAL;
        else if (this.#lastChunkStart > 0 && !this.#quiet) possible = NEEDS_QUIET;
        else return this.#taken(message, this.#buffer.length);
      }
    }
    return possible ?? { kind: "wrong", text: JSON.stringify(text.length > 60 ? `${text.slice(0, 60)}…` : text) };
  }

  takeData(most: number): Buffer {
    const data = this.#buffer.subarray(0, most);
    this.#skip(data.length);
    return data;
  }

  #taken<M extends RunexpMessage>(message: M, bytes: number): ReadResult<M> {
    this.#skip(bytes);
    return { kind: "message", message, bytes };
  }

  #skip(bytes: number): void {
    this.#buffer = this.#buffer.subarray(bytes);
    this.#lastChunkStart = Math.max(0, this.#lastChunkStart - bytes);
  }
}

/** Not a state of the specification: the peer has left, or it violated the protocol. */
export interface Closed {
  readonly name: "closed";
}

export interface ReadCallbacks<Received extends RunexpMessage> {
  received(message: Received, bytes: number): void;
  /** The peer sent something unexpected: close the connection. Nothing follows. */
  protocolError(reason: string): void;
  /** Call `quietElapsed` if nothing comes for QUIET_MS. */
  startQuietTimer(): void;
}

export abstract class StateMachine<State extends { readonly name: string }, Received extends RunexpMessage> {
  protected current: State | Closed;
  protected readonly reader = new MessageReader();
  readonly #callbacks: ReadCallbacks<Received>;
  /** For the reason of an error. */
  readonly #peer: string;
  #running = false;

  constructor(first: State, callbacks: ReadCallbacks<Received>, peer: string) {
    this.current = first;
    this.#callbacks = callbacks;
    this.#peer = peer;
  }

  /** Takes the next message that this state allows. */
  protected abstract step(state: State | Closed): void;

  get state(): State | Closed {
    return this.current;
  }

  push(bytes: Uint8Array): void {
    if (this.current.name === "closed") return;
    this.reader.push(bytes);
    this.read();
  }

  quietElapsed(): void {
    if (this.current.name === "closed") return;
    this.reader.quietElapsed();
    this.read();
  }

  protected read(): void {
    if (this.#running) return;
    this.#running = true;
    try {
      for (let before: State | Closed | undefined; before !== this.current; ) {
        before = this.current;
        this.step(before);
      }
    } finally {
      this.#running = false;
    }
  }

  /** The next message; undefined if it is not complete yet. */
  protected take<T extends Received["type"]>(expected: readonly T[]): Extract<Received, { type: T }> | undefined {
    const taken = this.reader.take(expected) as ReadResult<Extract<Received, { type: T }>>;
    if (taken.kind === "message") {
      this.#callbacks.received(taken.message, taken.bytes);
      return taken.message;
    }
    if (taken.kind === "needs-quiet") this.#callbacks.startQuietTimer();
    if (taken.kind === "wrong") this.fail(`expected ${expected.join(" or ")}, ${this.#peer} sent ${taken.text}`);
    return undefined;
  }

  protected fail(reason: string): void {
    this.current = { name: "closed" };
    this.#callbacks.protocolError(reason);
  }
}
