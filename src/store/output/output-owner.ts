/**
 * Which store the segments of a directory belong to: the file `store` in it names its identity. Segments that the store cannot know are
 * those of another store, or of jobs beyond its last number after it was restored from a copy. They are moved aside, so that
 * no job of this store is given their output.
 */
import * as fs from "node:fs";
import { dirname, join } from "node:path";
import { errnoOf } from "../../base/errors.js";
import { syncDirectory, writeFileAtomically } from "../../base/files/durable.js";

export interface UnknownOutput {
  readonly message: string;
  /** The highest job number among it. */
  readonly lastJob: number;
}

export function setAsideUnknownOutput(directory: string, identity: string, nextJob: number): UnknownOutput | undefined {
  fs.mkdirSync(directory, { recursive: true, mode: 0o700 });
  const ownerFile = join(directory, "store");
  const own = readOwner(ownerFile) === identity;
  const jobs = fs.readdirSync(directory).filter((name) => /^\d+$/.test(name));
  const unknown = jobs.map(Number).filter((job) => !own || job >= nextJob);
  const aside = unknown.length > 0 ? newDirectory(`${directory}-of-another-store`) : undefined;
  if (aside !== undefined) {
    for (const job of unknown) fs.renameSync(join(directory, String(job)), join(aside, String(job)));
    for (const changed of [aside, directory, dirname(directory)]) syncDirectory(changed);
  }
  if (!own) writeFileAtomically(ownerFile, identity);
  if (aside === undefined) return undefined;
  const lastJob = unknown.reduce((most, job) => Math.max(most, job));
  const count = unknown.length === 1 ? "one job" : `${unknown.length} jobs`;
  const message = `the store does not know the output of ${count}, up to job ${lastJob}: it was moved to ${aside}. New jobs are numbered from ${Math.max(nextJob, lastJob + 1)} on`;
  return { message, lastJob };
}

function readOwner(path: string): string | undefined {
  try {
    return fs.readFileSync(path, "utf8");
  } catch (cause) {
    if (errnoOf(cause) === "ENOENT") return undefined;
    throw cause;
  }
}

/** This directory, or with a number where there is one already. */
function newDirectory(path: string): string {
  for (let number = 1; ; number++) {
    const tried = number === 1 ? path : `${path}-${number}`;
    try {
      fs.mkdirSync(tried, { mode: 0o700 });
      return tried;
    } catch (cause) {
      if (errnoOf(cause) !== "EEXIST") throw cause;
    }
  }
}
