/** The handlers, each call in a thread of its own: `laboro worker --handlers ./dist/handlers.js`. */
import { NoRetry } from "laboro/task";
import { type Album, album, shrink } from "./tasks.js";

export const shrinkPicture = shrink.handler((input, { log, progress, signal }) => {
  const [factor = 0, high = 0, low = 0] = input;
  const [width, pixels] = [high * 256 + low, input.subarray(3)];
  if (factor === 0 || width === 0 || pixels.length % width !== 0)
    throw new NoRetry(`no picture of width ${width} to be divided by ${factor}`); // it will not become one
  const [columns, rows] = [Math.floor(width / factor), Math.floor(pixels.length / width / factor)];
  log(`${width} x ${pixels.length / width} becomes ${columns} x ${rows}`);
  const small = Buffer.alloc(columns * rows);
  for (let row = 0; row < rows; row++) {
    signal.throwIfAborted();
    progress({ row, rows });
    for (let column = 0; column < columns; column++)
      small[row * columns + column] = mean(pixels, width, column * factor, row * factor, factor);
  }
  return small;
});

function mean(pixels: Uint8Array, width: number, left: number, top: number, size: number): number {
  let sum = 0;
  for (let y = top; y < top + size; y++) for (let x = left; x < left + size; x++) sum += pixels[y * width + x] ?? 0;
  return Math.round(sum / size ** 2);
}

/** Comes after the pictures, and reads their results: those that failed as well. */
export const makeAlbum = album.handler(async ({ title }, { results }) => {
  const made: Album = { title, pictures: 0, bytes: 0, failed: 0 };
  for await (const { state, value } of results(shrink)) {
    if (state === "succeeded") {
      made.pictures++;
      made.bytes += value.length;
    } else made.failed++;
  }
  return made;
});
