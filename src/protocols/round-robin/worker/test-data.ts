/** The data of the test stream: pieces of an offset, a length and that many bytes of 01, until the lengths make up what was asked for. */

const HEADER = 8;
const FILLING = 1;

/** `random` gives a number from 0 up to 1. */
export function testData(size: number, random: () => number = Math.random): Buffer {
  const pieces: Buffer[] = [];
  for (let left = size; left > 0; ) {
    const length = Math.min(left, 1 + Math.floor(random() * size));
    const piece = Buffer.alloc(HEADER + length, FILLING);
    piece.writeInt32LE(Math.floor(random() * (size - length + 1)), 0);
    piece.writeInt32LE(length, 4);
    pieces.push(piece);
    left -= length;
  }
  return Buffer.concat(pieces);
}

/** What is wrong with it, if anything is. */
export function testDataError(data: Buffer, size: number): string | undefined {
  let got = 0;
  let at = 0;
  while (at < data.length) {
    if (data.length - at < HEADER) return `${data.length - at} bytes after the last piece`;
    const offset = data.readInt32LE(at);
    const length = data.readInt32LE(at + 4);
    if (length < 0 || offset < 0 || offset + length > size) return `a piece of ${length} bytes at ${offset}`;
    const piece = data.subarray(at + HEADER, at + HEADER + length);
    if (piece.length < length) return `a piece of ${length} bytes has ${piece.length}`;
    if (piece.some((byte) => byte !== FILLING)) return `other bytes than 01 at ${offset}`;
    got += length;
    at += HEADER + length;
  }
  return got === size ? undefined : `${got} bytes, where ${size} were asked for`;
}
