/** What `laboro decode` knows: a capture of each protocol, in named messages. */

export interface DecodedMessage {
  /** By the protocol's own word; `?` for what is none. */
  readonly name: string;
  readonly fields: Readonly<Record<string, unknown>>;
  /** Why it could not be read, or what is odd about it. */
  readonly note?: string;
}

export interface Decoder {
  /**
   * One piece of the capture: bytes of a stream, or a message in its frames. `direction` is what stood before it, empty where nothing
   * did; each direction is a stream of its own. Gives the messages that are now whole, and never throws for what it is given.
   */
  push(direction: string, frames: readonly Uint8Array[]): readonly DecodedMessage[];
  /** What came and is no whole message. */
  end(): readonly DecodedMessage[];
}

export const DECODERS: Readonly<Record<string, () => Promise<() => Decoder>>> = {
  fuq: async () => (await import("./fuq/decode.js")).decoder,
  fuq1: async () => (await import("./fuq/decode.js")).decoderV1,
  "round-robin": async () => (await import("./round-robin/describe.js")).decoder,
  runexp: async () => (await import("./runexp/decode.js")).decoder,
  scale0: async () => (await import("./scale0/decode.js")).decoder,
};
