/** `laboro decode fuq` and `fuq1`: a stream each way, or messages one by one. */
import type { DecodedMessage, Decoder } from "../decoders.js";
import { decodeMessage, MESSAGE_LIMIT, STREAM_LAYOUT } from "./codec.js";
import { decodeMessageV1, STREAM_LAYOUT_V1 } from "./codec-v1.js";
import { describeMessage, describeMessageV1 } from "./describe.js";
import { Framer, type Layout } from "./framer.js";

type Read = (bytes: Buffer) => DecodedMessage;

export const decoder = (): Decoder =>
  new StreamDecoder(STREAM_LAYOUT, (bytes) => {
    const message = decodeMessage(bytes);
    return noted(describeMessage(message), message.type === "?" ? message.why : undefined);
  });

export const decoderV1 = (): Decoder =>
  new StreamDecoder(STREAM_LAYOUT_V1, (bytes) => {
    const message = decodeMessageV1(bytes);
    return noted(describeMessageV1(message), message.type === "?" ? message.why : undefined);
  });

const noted = ({ name, fields }: DecodedMessage, note: string | undefined): DecodedMessage =>
  note === undefined ? { name, fields } : { name, fields, note };

class StreamDecoder implements Decoder {
  readonly #layout: Layout;
  readonly #read: Read;
  readonly #streams = new Map<string, Framer>();

  constructor(layout: Layout, read: Read) {
    this.#layout = layout;
    this.#read = read;
  }

  push(direction: string, frames: readonly Uint8Array[]): readonly DecodedMessage[] {
    const framer = this.#streams.get(direction) ?? new Framer(this.#layout, MESSAGE_LIMIT);
    this.#streams.set(direction, framer);
    const { messages, failure } = framer.push(Buffer.concat(frames));
    const decoded = messages.map((bytes) => this.#read(bytes));
    if (failure === undefined) return decoded;
    // The next piece may begin with a message again.
    this.#streams.delete(direction);
    return [...decoded, { name: "?", fields: {}, note: failure.message }];
  }

  end(): readonly DecodedMessage[] {
    return [...this.#streams.values()]
      .filter(({ pending }) => pending > 0)
      .map(({ pending }) => ({ name: "?", fields: {}, note: `${pending} bytes are no whole message` }));
  }
}
