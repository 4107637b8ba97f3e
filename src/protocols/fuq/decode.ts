/** `laboro decode fuq` and `fuq1`: a stream each way, or messages one by one. */
import type { Decoded, Decoder } from "../decoders.js";
import { decodeMessage, MESSAGE_LIMIT, STREAM } from "./codec.js";
import { decodeMessageV1, STREAM_V1 } from "./codec-v1.js";
import { Framer, type Layout } from "./framer.js";
import { shown, shownV1 } from "./shown.js";

type Read = (bytes: Buffer) => Decoded;

export const decoder = (): Decoder =>
  new StreamDecoder(STREAM, (bytes) => {
    const message = decodeMessage(bytes);
    return noted(shown(message), message.type === "?" ? message.why : undefined);
  });

export const decoderV1 = (): Decoder =>
  new StreamDecoder(STREAM_V1, (bytes) => {
    const message = decodeMessageV1(bytes);
    return noted(shownV1(message), message.type === "?" ? message.why : undefined);
  });

const noted = ({ name, fields }: Decoded, note: string | undefined): Decoded =>
  note === undefined ? { name, fields } : { name, fields, note };

class StreamDecoder implements Decoder {
  readonly #layout: Layout;
  readonly #read: Read;
  readonly #streams = new Map<string, Framer>();

  constructor(layout: Layout, read: Read) {
    this.#layout = layout;
    this.#read = read;
  }

  push(direction: string, frames: readonly Uint8Array[]): readonly Decoded[] {
    const framer = this.#streams.get(direction) ?? new Framer(this.#layout, MESSAGE_LIMIT);
    this.#streams.set(direction, framer);
    const { messages, failure } = framer.push(Buffer.concat(frames));
    const decoded = messages.map((bytes) => this.#read(bytes));
    if (failure === undefined) return decoded;
    // The next piece may begin with a message again.
    this.#streams.delete(direction);
    return [...decoded, { name: "?", fields: {}, note: failure.message }];
  }

  end(): readonly Decoded[] {
    return [...this.#streams.values()]
      .filter(({ pending }) => pending > 0)
      .map(({ pending }) => ({ name: "?", fields: {}, note: `${pending} bytes are no whole message` }));
  }
}
