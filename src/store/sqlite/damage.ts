/**
 * Acknowledged commits that are missing because a file was damaged, mostly SQLite's log. SQLite goes on from the last commit that it can
 * read and reports nothing. laboro goes on from there too: the rest cannot be restored, and a broker that refuses to start helps nobody.
 * But it reports what is missing, and keeps the damaged log in `damaged/TIME/`. The report is part of `status` and `doctor` until that folder
 * is removed. Output of missing jobs is set aside as any that the store does not know (output-owner.ts).
 */
import * as fs from "node:fs";
import { dirname, join } from "node:path";
import { writeFileAtomically } from "../../base/files/durable.js";
import { openPrivateDirectory } from "../../base/files/private-directory.js";
import { pluralize } from "../../base/format.js";
import type { StoredCounts } from "./inspect.js";
import { type LastCommit, readLastCommit } from "./last-commit.js";
import { scanWal, type WalScan } from "./wal-scan.js";

export interface Damage {
  /** What happened and what is missing. */
  readonly text: string;
  /** What was acknowledged last, where that is known. */
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
  // The same folder where this start fails later on and is repeated.
  const folder = join(dir, FOLDER, new Date(damage.last?.at ?? Date.now()).toISOString().replaceAll(":", "-"));
  openPrivateDirectory(folder);
  const log = `${database}-wal`;
  if (fs.existsSync(log)) writeFileAtomically(join(folder, "store.db-wal"), fs.readFileSync(log));
  const text = `${damage.text}. This is reported until ${folder} is removed`;
  writeFileAtomically(join(folder, REPORT), `${text}\n`);
  return { ...damage, text };
}

/** Those of earlier starts, too. */
export function damageReports(dir: string): string[] {
  const folder = join(dir, FOLDER);
  if (!fs.existsSync(folder)) return [];
  const files = fs.readdirSync(folder).map((name) => join(folder, name, REPORT));
  return files.filter((file) => fs.existsSync(file)).map((file) => fs.readFileSync(file, "utf8").trim());
}
