/** Messages of both versions in readable form, for traces and `laboro decode`. Fields have their names on the wire. */
import type { TracedMessage } from "../../base/traced-connections.js";
import type { DecodedMessage, Decoder } from "../decoders.js";
import {
  DESCRIPTION,
  decodeMessage,
  decodeMessageV1,
  encodeMessage,
  encodeMessageV1,
  Framer,
  type Layout,
  MESSAGE_LIMIT,
  PAIR,
  STREAM_LAYOUT,
  STREAM_LAYOUT_V1,
  splitCounts,
  updateFields,
  wireFields,
} from "./codec.js";

import {
  ERRORS,
  errorName,
  type Message,
  type MessageV1,
  STATUSES,
  STOP_AT_ONCE,
  type Task,
  type Unreadable,
  type UnreadableV1,
} from "./messages.js";

type Fields = TracedMessage["fields"];

/** One version of the protocol on a stream. */
export interface StreamFormat<In, Out> {
  readonly name: "fuq" | "fuq1";
  readonly protocol: string;
  readonly layout: Layout;
  readonly decode: (bytes: Uint8Array) => In;
  readonly encode: (message: Out) => Buffer;
  readonly describe: (message: In | Out) => TracedMessage;
}

export const FUQ: StreamFormat<Message | Unreadable, Message> = {
  name: "fuq",
  protocol: "fuq 2",
  layout: STREAM_LAYOUT,
  decode: decodeMessage,
  encode: encodeMessage,
  describe: (message) => ({ name: message.type, fields: { seq: message.seq, ...fieldsOf(message) } }),
};

export const FUQ1: StreamFormat<MessageV1 | UnreadableV1, MessageV1> = {
  name: "fuq1",
  protocol: "fuq 1",
  layout: STREAM_LAYOUT_V1,
  decode: decodeMessageV1,
  encode: encodeMessageV1,
  describe: (message) => ({ name: message.type, fields: fieldsOfV1(message) }),
};

function fieldsOf(message: Message | Unreadable): Fields {
  switch (message.type) {
    case "OK":
      return { nproc: message.nproc, nrun: message.nrun };
    case "HELLO":
      if (message.hello === undefined) return {};
      return { NumProcs: message.hello.numProcs, Running: message.hello.running?.map(taskFields) ?? null };
    case "JOB":
      return { tasks: message.tasks.map(taskFields) };
    case "CANCEL":
      return { tasks: message.pairs.map((pair) => wireFields(PAIR, pair)) };
    case "ERROR":
      return { code: errorName(message.code), ...errorArgument(message.code, message.arg0) };
    case "RESET":
      return { lastReply: message.lastReply };
    case "LIST":
      return { arg0: message.arg0 };
    default:
      return fieldsOfV1(message);
  }
}

function fieldsOfV1(message: MessageV1 | UnreadableV1): Fields {
  switch (message.type) {
    case "OK":
      return { nproc: message.nproc };
    case "JOB":
      return taskFields(message.task);
    case "UPDATE":
      return updateFields(message.update);
    case "STOP":
      return { n: message.count === STOP_AT_ONCE ? "at once" : message.count };
    case "ERROR":
      return { code: errorName(message.code) };
    case "?":
      return { type: message.number };
  }
}

function taskFields({ task, job }: Task): Fields {
  const fields = Object.entries(wireFields(DESCRIPTION, job)).map(([name, value]) => [name, readable(value)]);
  return { Task: task, ...Object.fromEntries(fields), Status: STATUSES[job.status] ?? job.status };
}

function errorArgument(code: number, arg0: number): Fields {
  if (code === ERRORS.no_procs) return splitCounts(arg0);
  return arg0 === 0 ? {} : { arg0 };
}

const readable = (value: unknown): unknown =>
  value instanceof Uint8Array ? Buffer.from(value).toString("latin1") : value;

export const decoder = (): Decoder => new StreamDecoder(FUQ);
export const decoderV1 = (): Decoder => new StreamDecoder(FUQ1);

class StreamDecoder<In extends object, Out> implements Decoder {
  readonly #format: StreamFormat<In, Out>;
  readonly #framers = new Map<string, Framer>();

  constructor(format: StreamFormat<In, Out>) {
    this.#format = format;
  }

  push(direction: string, frames: readonly Uint8Array[]): readonly DecodedMessage[] {
    const { layout, decode, describe } = this.#format;
    const framer = this.#framers.get(direction) ?? new Framer(layout, MESSAGE_LIMIT);
    this.#framers.set(direction, framer);
    const { messages, failure } = framer.push(Buffer.concat(frames));
    const decoded: DecodedMessage[] = messages.map((bytes) => {
      const message = decode(bytes);
      return "why" in message ? { ...describe(message), note: String(message.why) } : describe(message);
    });
    if (failure === undefined) return decoded;
    // The next bytes may be the start of a message.
    this.#framers.delete(direction);
    return [...decoded, { name: "?", fields: {}, note: failure.message }];
  }

  end(): readonly DecodedMessage[] {
    return [...this.#framers.values()]
      .filter(({ pending }) => pending > 0)
      .map(({ pending }) => ({ name: "?", fields: {}, note: `${pending} bytes are not a whole message` }));
  }
}
