/** What the application and its workers share. This module loads neither a client nor a worker. */
import { bytes, defineTask } from "laboro/task";

/**
 * A grey picture, one byte a pixel, made smaller: one byte of the factor, two of the width, then the pixels. Bytes travel as they are.
 *
 * @type {import("laboro/task").TaskDefinition<Uint8Array, Buffer, Buffer>}
 */
export const shrink = defineTask("shrink", { input: bytes, output: bytes });

/** @type {import("laboro/task").TaskDefinition<{ title: string }, { title: string, pictures: number, bytes: number, failed: number }>} */
export const album = defineTask("album");

export function pack(pixels, width, factor) {
  const head = Buffer.from([factor, width >> 8, width & 0xff]);
  return Buffer.concat([head, pixels]);
}
