/**
 * Which store the segments of a directory belong to: the file `store` in it names its identity. Segments that the store cannot know are
 * those of another store, or of jobs beyond its last number: it was restored from a copy, or its log was damaged. They are moved aside, so
 * that no job of this store is given their output.
 */
import * as fs from "node:fs";
import { dirname, join } from "node:path";
import { syncDirectory } from "../../base/files/durable.js";

/** Returns a message for the operator and the highest job number among the unknown output, if there is any. */
export function setAsideUnknownOutput(directory: string, identity: string, nextJob: number) {
  fs.mkdirSync(directory, { recursive: true, mode: 0o700 });
  const ownerFile = join(directory, "store");
  // A crash may have cost this file its content: then only the numbers count.
  const owner = fs.existsSync(ownerFile) ? fs.readFileSync(ownerFile, "utf8") : "";
  const foreign = owner !== "" && owner !== identity;
  const jobs = fs.readdirSync(directory).filter((name) => /^\d+$/.test(name));
  const unknown = jobs.map(Number).filter((job) => foreign || job >= nextJob);
  const aside = unknown.length > 0 ? fs.mkdtempSync(join(dirname(directory), "unknown-output-")) : undefined;
  if (aside !== undefined) {
    for (const job of unknown) fs.renameSync(join(directory, String(job)), join(aside, String(job)));
    for (const changed of [aside, directory, dirname(directory)]) syncDirectory(changed);
  }
  if (owner !== identity) fs.writeFileSync(ownerFile, identity, { mode: 0o600 });
  if (aside === undefined) return undefined;
  const lastJob = unknown.reduce((most, job) => Math.max(most, job));
  const what = `the store does not know the output of ${unknown.length} jobs, the last is job ${lastJob}`;
  return { lastJob, message: `${what}: it was moved to ${aside}. New jobs get higher numbers` };
}
