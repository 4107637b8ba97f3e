/**
 * The small output of an attempt as one value, which its result's row has: varints (the number of parts, then each part's length * 2 +
 * stream), then the bytes.
 */
import { VarintReader, varintSize, writeVarint } from "../base/files/varint.js";
import type { SmallOutput, TaskResult } from "../model/outcome.js";
import type { OutputOptions, OutputPage } from "../model/store.js";
import { OutputPageBuilder } from "./output-page.js";

const headOf = ({ stream, bytes }: SmallOutput): number => bytes.length * 2 + (stream === "stdout" ? 0 : 1);

export function encodeSmallOutput(parts: readonly SmallOutput[]): Uint8Array {
  let size = varintSize(parts.length);
  for (const part of parts) size += varintSize(headOf(part)) + part.bytes.length;
  const value = new Uint8Array(size);
  let at = writeVarint(value, 0, parts.length);
  for (const part of parts) at = writeVarint(value, at, headOf(part));
  for (const { bytes } of parts) {
    value.set(bytes, at);
    at += bytes.length;
  }
  return value;
}

/** The results with bytes of their own: those of output and values are often views of large receive buffers. */
export function withOwnBytes(results: readonly TaskResult[]): readonly TaskResult[] {
  if (results.every(({ output, value }) => output === undefined && value === undefined)) return results;
  return results.map((result) => {
    const output = result.output?.map(({ stream, bytes }) => ({ stream, bytes: new Uint8Array(bytes) }));
    const value = result.value && new Uint8Array(result.value);
    return { ...result, ...(output && { output }), ...(value && { value }) };
  });
}

/** The parts; their bytes are views of the value. */
export function decodeSmallOutput(value: Uint8Array): SmallOutput[] {
  const numbers = new VarintReader(value);
  const heads = Array.from({ length: numbers.next() }, () => numbers.next());
  let at = numbers.at;
  return heads.map((head) => {
    const bytes = value.subarray(at, at + (head >>> 1));
    at += bytes.length;
    return { stream: head % 2 === 0 ? "stdout" : "stderr", bytes };
  });
}

export function pageOfSmallOutput(value: Uint8Array, options: OutputOptions): OutputPage {
  const page = new OutputPageBuilder(options);
  let offset = 0;
  for (const { stream, bytes } of decodeSmallOutput(value)) {
    if (!page.full) page.take(stream, offset, bytes);
    offset += bytes.length;
  }
  return page.at < offset ? { pieces: page.pieces, next: page.at } : { pieces: page.pieces };
}
