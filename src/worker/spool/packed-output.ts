/**
 * A small ended output as bytes inside a spooled result: varints (format version, cap, length written, bytes lost), then each
 * block as its size and its record.
 */

import { LaboroError } from "../../base/errors.js";
import { RECORD_HEADER } from "../../base/files/records.js";
import { encodeVarints, VarintReader } from "../../base/files/varint.js";
import { Block } from "./block.js";

export interface PackedOutput {
  readonly cap: number;
  readonly end: number;
  readonly lost: number;
  readonly blocks: readonly Block[];
}

const FORMAT_VERSION = 1;

export function packOutput(output: PackedOutput): Uint8Array {
  const parts: Uint8Array[] = [encodeVarints([FORMAT_VERSION, output.cap, output.end, output.lost])];
  for (const block of output.blocks) {
    const record = block.encode();
    parts.push(encodeVarints([record.length]), record);
  }
  return Buffer.concat(parts);
}

export function unpackOutput(bytes: Uint8Array): PackedOutput {
  const numbers = new VarintReader(bytes);
  const version = numbers.next();
  if (version !== FORMAT_VERSION) {
    throw new LaboroError("LABORO_DATA_NEWER", `packed output has the unknown format version ${version}`);
  }
  const [cap, end, lost] = [numbers.next(), numbers.next(), numbers.next()];
  const blocks: Block[] = [];
  while (!numbers.done) {
    const size = numbers.next();
    const record = bytes.subarray(numbers.at, numbers.at + size);
    if (record.length < size) throw new LaboroError("LABORO_DATA_CORRUPT", "packed output is cut off");
    // The result that carries it has a checksum of its own.
    blocks.push(Block.decode(Buffer.from(record.subarray(RECORD_HEADER))));
    numbers.at += size;
  }
  return { cap, end, lost, blocks };
}
