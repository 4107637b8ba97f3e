/** `laboro decode round-robin`: messages in their frames, with or without ZeroMQ's routing frame in front. */
import type { DecodedMessage, Decoder } from "../decoders.js";
import { describeMessage } from "./describe.js";

export function decoder(): Decoder {
  return {
    push: (_direction, frames): readonly DecodedMessage[] => {
      const { name, fields, note } = describeMessage(frames);
      return [note === undefined ? { name, fields } : { name, fields, note }];
    },
    end: () => [],
  };
}
