/** What the application and its workers share. This module loads neither a client nor a worker. */
import { bytes, defineTask } from "laboro/task";

/**
 * A grey picture, one byte a pixel, made smaller: one byte of the factor, two of the width, then the pixels. Bytes
 * travel as they are.
 */
export const shrink = defineTask("shrink", { input: bytes, output: bytes });

export interface Album {
  title: string;
  pictures: number;
  bytes: number;
  failed: number;
}

export const album = defineTask<{ title: string }, Album>("album");

export function pack(pixels: Uint8Array, width: number, factor: number): Buffer {
  const head = Buffer.from([factor, width >> 8, width & 0xff]);
  return Buffer.concat([head, pixels]);
}
