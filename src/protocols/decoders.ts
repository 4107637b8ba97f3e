/** The decoders of `laboro decode`, one for each protocol. */

export interface DecodedMessage {
  /** The name in the protocol; `?` if the bytes are no message. */
  readonly name: string;
  readonly fields: Readonly<Record<string, unknown>>;
  /** Why it could not be decoded, or what is unusual about it. */
  readonly note?: string;
}

export interface Decoder {
  /**
   * Takes a part of the capture: bytes of a stream, or the frames of a message. Each `direction` is a separate stream;
   * it is empty if the capture names none. Returns the messages that are now complete. Never throws.
   */
  push(direction: string, frames: readonly Uint8Array[]): readonly DecodedMessage[];
  /** Returns incomplete messages. */
  end(): readonly DecodedMessage[];
}

export const DECODERS: Readonly<Record<string, () => Promise<() => Decoder>>> = {
  fuq: async () => (await import("./fuq/describe.js")).decoder,
  fuq1: async () => (await import("./fuq/describe.js")).decoderV1,
  "round-robin": async () => (await import("./round-robin/frames.js")).decoder,
  runexp: async () => (await import("./runexp/decode.js")).decoder,
  scale0: async () => (await import("./scale0/frames.js")).decoder,
};
