/**
 * What a new worker process needs to deliver an ended attempt's output: its length, which part of it is kept, and in which
 * slots of the spill file. It is the file `<path>.index` beside the spill file, one checksummed record of varints, written
 * whole or not at all. A spill file without an index belonged to a task that died with its worker.
 */
import * as fs from "node:fs";
import { join } from "node:path";
import { errnoOf, LaboroError } from "../../base/errors.js";
import { encodeRecords, scanRecords } from "../../base/files/records.js";
import { encodeVarints, VarintReader } from "../../base/files/varint.js";

export interface OutputIndex {
  readonly cap: number;
  readonly blockBytes: number;
  /** How much the task wrote. */
  readonly end: number;
  /** Bytes that could not be written to disk. */
  readonly lost: number;
  readonly blocks: readonly { readonly slot: number; readonly start: number; readonly end: number }[];
}

const FORMAT_VERSION = 1;
const SUFFIX = ".index";

export const indexPath = (path: string): string => path + SUFFIX;

export function encodeIndex(index: OutputIndex): Buffer {
  const numbers = [FORMAT_VERSION, index.cap, index.blockBytes, index.end, index.lost];
  for (const { slot, start, end } of index.blocks) numbers.push(slot, start, end - start);
  return encodeRecords([encodeVarints(numbers)]);
}

function decodeIndex(payload: Uint8Array): OutputIndex {
  const numbers = new VarintReader(payload);
  const version = numbers.next();
  if (version !== FORMAT_VERSION) {
    throw new LaboroError("LABORO_DATA_NEWER", `spooled output has the unknown format version ${version}`);
  }
  const [cap, blockBytes, end, lost] = [numbers.next(), numbers.next(), numbers.next(), numbers.next()];
  const blocks: { slot: number; start: number; end: number }[] = [];
  while (!numbers.done) {
    const [slot, start, length] = [numbers.next(), numbers.next(), numbers.next()];
    blocks.push({ slot, start, end: start + length });
  }
  return { cap, blockBytes, end, lost, blocks };
}

/** The index of this spill file; undefined if there is none. */
export function readIndex(path: string): OutputIndex | undefined {
  let fd: number;
  try {
    fd = fs.openSync(indexPath(path), "r");
  } catch (cause) {
    if (errnoOf(cause) === "ENOENT") return undefined;
    throw new LaboroError("LABORO_DATA_UNUSABLE", `cannot open ${indexPath(path)}`, { cause });
  }
  try {
    let index: OutputIndex | undefined;
    scanRecords(fd, {
      record: (_at, payload) => {
        index = decodeIndex(payload);
        return false;
      },
    });
    if (index === undefined) throw new LaboroError("LABORO_DATA_CORRUPT", `${indexPath(path)} holds no good record`);
    return index;
  } finally {
    fs.closeSync(fd);
  }
}

/** The names of the spooled outputs in this directory. Removes files of attempts that never ended. */
export function spooledOutputs(directory: string): string[] {
  const names = new Set(fs.readdirSync(directory));
  const spooled: string[] = [];
  for (const name of names) {
    if (name.endsWith(SUFFIX)) spooled.push(name.slice(0, -SUFFIX.length));
    else if (!names.has(indexPath(name))) fs.rmSync(join(directory, name), { force: true });
  }
  return spooled;
}
