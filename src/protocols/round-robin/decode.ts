/** `laboro decode round-robin`: messages in their frames, with or without ZeroMQ's routing frame in front. */
import type { Decoded, Decoder } from "../decoders.js";
import { describe } from "./describe.js";

export function decoder(): Decoder {
  return {
    push: (_direction, frames): readonly Decoded[] => {
      const { name, fields, note } = describe(frames);
      return [note === undefined ? { name, fields } : { name, fields, note }];
    },
    end: () => [],
  };
}
