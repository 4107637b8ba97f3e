/**
 * Reads SQLite's log as SQLite does when it recovers, without SQLite: https://sqlite.org/fileformat.html#the_write_ahead_log
 *
 * SQLite takes the frames up to the last commit before the first bad one, and ignores the rest without a word. The checksum of a frame
 * continues that of the frame before it, as stored there. So frames behind a bad one can be checked too.
 */
import * as fs from "node:fs";
import { readFully } from "../../base/files/durable.js";

const HEADER = 32;
const FRAME_HEADER = 24;
/** The last bit says whether words are summed as big-endian. */
const MAGIC = 0x377f0682;

export interface WalScan {
  /** Then SQLite ignores the whole log. A log of zeros is one that is not in use yet. */
  readonly headerDamaged: boolean;
  /** Frames up to the last commit that SQLite finds. */
  readonly frames: number;
  /** Commits of the same log behind the first bad frame. One is normal after a power cut: the last, which was not acknowledged. */
  readonly commitsBehind: number;
}

/** Undefined where the file is missing or empty. */
export function scanWal(path: string): WalScan | undefined {
  if (!fs.existsSync(path) || fs.statSync(path).size === 0) return undefined;
  const fd = fs.openSync(path, "r");
  try {
    return scan(fd);
  } finally {
    fs.closeSync(fd);
  }
}

type Checksum = readonly [number, number];

function scan(fd: number): WalScan {
  const header = Buffer.alloc(HEADER);
  const complete = readFully(fd, header, 0) === HEADER;
  const littleEndian = header.readUInt32BE(0) === MAGIC;
  let sum: Checksum = add([0, 0], header, 0, FRAME_HEADER, littleEndian);
  if (!complete || header.readUInt32BE(0) >>> 1 !== MAGIC >>> 1 || !equals(sum, header, FRAME_HEADER)) {
    return { headerDamaged: header.some((byte) => byte !== 0), frames: 0, commitsBehind: 0 };
  }
  const salts = header.subarray(16, 24);
  const frame = Buffer.alloc(FRAME_HEADER + header.readUInt32BE(8));
  const found = { headerDamaged: false, frames: 0, commitsBehind: 0 };
  let bad = false;
  for (let number = 1; readFully(fd, frame, HEADER + (number - 1) * frame.length) === frame.length; number++) {
    const known = frame.readUInt32BE(0) !== 0 && frame.subarray(8, 16).equals(salts);
    if (known) sum = add(add(sum, frame, 0, 8, littleEndian), frame, FRAME_HEADER, frame.length, littleEndian);
    const good = known && equals(sum, frame, 16);
    const isCommit = good && frame.readUInt32BE(4) !== 0;
    bad ||= !good;
    if (isCommit && bad) found.commitsBehind++;
    else if (isCommit) found.frames = number;
    sum = [frame.readUInt32BE(16), frame.readUInt32BE(20)];
  }
  return found;
}

function add([a, b]: Checksum, bytes: Buffer, from: number, to: number, littleEndian: boolean): Checksum {
  const words = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let at = from; at < to; at += 8) {
    a = (a + words.getUint32(at, littleEndian) + b) >>> 0;
    b = (b + words.getUint32(at + 4, littleEndian) + a) >>> 0;
  }
  return [a, b];
}

const equals = ([a, b]: Checksum, bytes: Buffer, at: number): boolean =>
  a === bytes.readUInt32BE(at) && b === bytes.readUInt32BE(at + 4);
