/** The filters of the contract, said plainly. */
import type { Job } from "../../src/model/job.js";
import type { TaskResult } from "../../src/model/outcome.js";
import type { JobFilter, ResultFilter } from "../../src/model/store-reads.js";

export function isWantedJob(job: Job, filter: JobFilter = {}): boolean {
  const { states, name, pool, key, batchKey, idempotencyKey, createdFrom, createdBefore, endedBefore } = filter;
  if (states !== undefined && !states.includes(job.ended?.state ?? "open")) return false;
  if (name !== undefined && !matches(name.split("*"), job.name)) return false;
  if (pool !== undefined && job.requirement.pool !== pool) return false;
  if (key !== undefined && job.key !== key) return false;
  if (batchKey !== undefined && job.batchKey !== batchKey) return false;
  if (idempotencyKey !== undefined && job.idempotencyKey !== idempotencyKey) return false;
  if (createdFrom !== undefined && job.created < createdFrom) return false;
  if (createdBefore !== undefined && job.created >= createdBefore) return false;
  return endedBefore === undefined || (job.ended !== undefined && job.ended.at < endedBefore);
}

export function isWantedResult(result: TaskResult, { states, worker }: ResultFilter = {}): boolean {
  if (states !== undefined && !states.includes(result.state)) return false;
  return worker === undefined || result.worker === worker;
}

/** Whether the text is these parts, in order, with any text between them: each where it is first found, the last at the end. */
function matches(parts: readonly string[], text: string): boolean {
  const [first = "", ...others] = parts;
  const last = others.pop();
  if (last === undefined) return text === first;
  if (!text.startsWith(first)) return false;
  let at = first.length;
  for (const part of others) {
    const found = text.indexOf(part, at);
    if (found < 0) return false;
    at = found + part.length;
  }
  return text.length - last.length >= at && text.endsWith(last);
}
