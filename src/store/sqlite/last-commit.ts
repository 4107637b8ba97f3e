/**
 * A note of the last commit, in a file beside the database. SQLite cannot know that commits are missing from its log; the database counts
 * its commits, and the note says how many there have to be. It is written after each commit and before that is acknowledged, without a
 * sync. A kill of the process keeps it exact. After a power cut it may be older than the database, never newer: no false alarm.
 */
import * as fs from "node:fs";
import { join } from "node:path";
import { writeFileAtomically, writeFully } from "../../base/files/durable.js";
import { encodeRecords, scanRecords } from "../../base/files/records.js";

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
/** With the record's header less than a sector of a disk, which is written whole or not at all. */
const LENGTH = 200;

/** Undefined where there is no note. */
export function readLastCommit(dir: string): LastCommit | "damaged" | undefined {
  const path = join(dir, FILE);
  if (!fs.existsSync(path)) return undefined;
  const fd = fs.openSync(path, "r");
  try {
    let found: LastCommit | "damaged" = "damaged";
    const record = (_at: number, payload: Buffer): boolean => {
      // The checksum is right, so this is what was written.
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

  /** The first note waits for the disk. */
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
      // The commit stands. The note is older than the database, as after a power cut.
    }
  }

  close(): void {
    fs.closeSync(this.#fd);
  }
}

const encode = (last: LastCommit): Buffer => encodeRecords([Buffer.from(JSON.stringify(last).padEnd(LENGTH))]);
