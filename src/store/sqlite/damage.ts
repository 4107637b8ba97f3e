/**
 * Detects acknowledged commits that are missing because a file was damaged, mostly SQLite's log. SQLite continues from
 * the last commit that it can read and reports nothing. laboro continues too, because the rest cannot be restored. But
 * it reports what is missing, and keeps the damaged log in `damaged/TIME/`. `status` and `doctor` show the report until
 * that folder is removed. Output of missing jobs is set aside like any that the store does not know
 * (`setAsideUnknownOutput`).
 */
import * as fs from "node:fs";
import { dirname, join } from "node:path";
import { readFully, writeFileAtomically, writeFully } from "../../base/files/durable.js";
import { openPrivateDirectory } from "../../base/files/private-directory.js";
import { encodeRecords, scanRecords } from "../../base/files/records.js";
import { pluralize } from "../../base/format.js";
import type { StoredCounts } from "./database.js";

/**
 * A record of the last commit, in a file beside the database. SQLite cannot know that commits are missing from its log;
 * the database counts its commits, and the file says how many there must be. It is written after each commit, before
 * that is acknowledged, without a sync. It is exact after a kill of the process. After a power cut it may be older than
 * the database, never newer: there is no false alarm.
 */
export interface LastCommit {
  /** How many commits this store has had. */
  readonly commits: number;
  readonly epoch: number;
  /** The highest number that was given to a job. */
  readonly job: number;
  /** When, by the broker's clock. */
  readonly at: number;
}

const FILE = "last-commit";
/** Together with the record's header smaller than a disk sector, which is written whole or not at all. */
const LENGTH = 200;

/** Undefined if there is no such file. */
function readLastCommit(dir: string): LastCommit | "damaged" | undefined {
  const path = join(dir, FILE);
  if (!fs.existsSync(path)) return undefined;
  const fd = fs.openSync(path, "r");
  try {
    let found: LastCommit | "damaged" = "damaged";
    const record = (_at: number, payload: Buffer): boolean => {
      // The checksum is right, so the content is intact.
      found = JSON.parse(payload.toString()) as LastCommit;
      return false;
    };
    scanRecords(fd, { record }, { maxPayload: LENGTH });
    return found;
  } finally {
    fs.closeSync(fd);
  }
}

export class LastCommitNote {
  readonly #fd: number;

  /** The first note is synced. */
  constructor(dir: string, first: LastCommit) {
    const path = join(dir, FILE);
    const isNew = !fs.existsSync(path);
    if (isNew) writeFileAtomically(path, encode(first));
    this.#fd = fs.openSync(path, "r+");
    if (isNew) return;
    this.write(first);
    fs.fdatasyncSync(this.#fd);
  }

  write(last: LastCommit): void {
    try {
      writeFully(this.#fd, encode(last), 0);
    } catch {
      // The commit is valid. The file is older than the database, as after a power cut.
    }
  }

  close(): void {
    fs.closeSync(this.#fd);
  }
}

const encode = (last: LastCommit): Buffer => encodeRecords([Buffer.from(JSON.stringify(last).padEnd(LENGTH))]);

export interface Damage {
  /** What happened and what is missing. */
  readonly text: string;
  /** The last acknowledged commit, if known. */
  readonly last?: LastCommit;
}

const FOLDER = "damaged";
const REPORT = "report.txt";

/** `stored` is what SQLite finds; it must not have written anything yet. */
export function findDamage(database: string, stored: StoredCounts): Damage | undefined {
  const last = readLastCommit(dirname(database));
  if (last === "damaged")
    return { text: `acknowledged data may be missing: ${dirname(database)}/last-commit is damaged` };
  const path = `${database}-wal`;
  const log = scanWal(path);
  const behind = log?.commitsBehind ?? 0;
  // One commit behind a bad frame is what a power cut leaves: it was not acknowledged.
  const missing = Math.max(behind > 1 ? behind : 0, (last?.commits ?? 0) - stored.commits);
  if (missing === 0 && log?.headerDamaged !== true) return undefined;
  const what = missing === 0 ? "may be missing: the last commits" : `is missing: ${pluralize(missing, "commit")}`;
  const when = last === undefined ? "" : ` up to ${new Date(last.at).toISOString()}`;
  const [first, end] = [stored.job + 1, last?.job ?? 0];
  const jobs = first > end ? "" : first === end ? `job ${first}, ` : `jobs ${first} to ${end}, `;
  const text = `acknowledged data ${what}${when}, with ${jobs}results and other changes of that time. ${path} ${stateOf(log)}`;
  return last === undefined ? { text } : { text, last };
}

function stateOf(log: WalScan | undefined): string {
  if (log === undefined) return "is missing or empty";
  return log.headerDamaged ? "has a damaged header" : `can be read up to frame ${log.frames}`;
}

/** Before SQLite writes: writes a report and copies the log. */
export function keepDamaged(database: string, stored: StoredCounts): Damage | undefined {
  const damage = findDamage(database, stored);
  if (damage === undefined) return undefined;
  const dir = dirname(database);
  // The same folder if this start fails later and is repeated.
  const folder = join(dir, FOLDER, new Date(damage.last?.at ?? Date.now()).toISOString().replaceAll(":", "-"));
  openPrivateDirectory(folder);
  const log = `${database}-wal`;
  if (fs.existsSync(log)) writeFileAtomically(join(folder, "store.db-wal"), fs.readFileSync(log));
  const text = `${damage.text}. This is reported until ${folder} is removed`;
  writeFileAtomically(join(folder, REPORT), `${text}\n`);
  return { ...damage, text };
}

/** Also those of earlier starts. */
export function damageReports(dir: string): string[] {
  const folder = join(dir, FOLDER);
  if (!fs.existsSync(folder)) return [];
  const files = fs.readdirSync(folder).map((name) => join(folder, name, REPORT));
  return files.filter((file) => fs.existsSync(file)).map((file) => fs.readFileSync(file, "utf8").trim());
}

/**
 * Reads SQLite's log as SQLite does when it recovers, without SQLite:
 * https://sqlite.org/fileformat.html#the_write_ahead_log
 *
 * SQLite takes the frames up to the last commit before the first bad one, and silently ignores the rest. The checksum
 * of a frame continues the stored checksum of the frame before it. So frames after a bad one can be checked too.
 */
const HEADER = 32;
const FRAME_HEADER = 24;
/** The last bit: words are summed as big-endian. */
const MAGIC = 0x377f0682;

interface WalScan {
  /** SQLite ignores the whole log. A log of zeros is not in use yet. */
  readonly headerDamaged: boolean;
  /** Frames up to the last commit that SQLite finds. */
  readonly frames: number;
  /** Commits after the first bad frame. One is normal after a power cut: the last, which was not acknowledged. */
  readonly commitsBehind: number;
}

/** Undefined if the file is missing or empty. */
function scanWal(path: string): WalScan | undefined {
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
