/** `laboro decode fuq` and `fuq1`: a stream each way, or messages one by one. */
import type { DecodedMessage, Decoder } from "../decoders.js";
import { decodeMessage, MESSAGE_LIMIT, STREAM_LAYOUT } from "./codec.js";
import { decodeMessageV1, STREAM_LAYOUT_V1 } from "./codec-v1.js";
import { describeMessage, describeMessageV1 } from "./describe.js";
import { Framer, type Layout } from "./framer.js";

export const decoder = (): Decoder => new StreamDecoder(STREAM_LAYOUT, decodeMessage, describeMessage);
export const decoderV1 = (): Decoder => new StreamDecoder(STREAM_LAYOUT_V1, decodeMessageV1, describeMessageV1);

class StreamDecoder<M extends object> implements Decoder {
  readonly #layout: Layout;
  readonly #read: (bytes: Buffer) => DecodedMessage;
  readonly #streams = new Map<string, Framer>();

  constructor(layout: Layout, decode: (bytes: Buffer) => M, describe: (message: M) => DecodedMessage) {
    this.#layout = layout;
    this.#read = (bytes) => {
      const message = decode(bytes);
      return "why" in message ? { ...describe(message), note: String(message.why) } : describe(message);
    };
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
