/**
 * A submission of more than a megabyte is read in a thread: a million entries would block the event loop for a second.
 * One at a time, because each takes many times its bytes in memory.
 */
import { Worker } from "node:worker_threads";
import { asLaboroError, LaboroError } from "../../base/errors.js";
import { threadFile } from "../../base/package.js";
import type { JobSpec } from "../../model/job.js";
import type { PackedEntries } from "../../model/store.js";

const MAX_MEMORY_MIB = 1024;

export interface SubmissionBytes {
  readonly bytes: Uint8Array;
  readonly format: "json" | "msgpack";
}

export type ReadSubmission =
  | { readonly spec: JobSpec; readonly entries?: PackedEntries }
  | { readonly error: Pick<LaboroError, "code" | "message"> };

let lastTurn: Promise<unknown> = Promise.resolve();

export async function readLargeSubmission(given: SubmissionBytes): Promise<{ spec: JobSpec; entries?: PackedEntries }> {
  const turn = lastTurn.then(() => inThread(given));
  lastTurn = turn.catch(() => {});
  const read = await turn;
  if ("error" in read) throw new LaboroError(read.error.code, read.error.message);
  return read;
}

function inThread(workerData: SubmissionBytes): Promise<ReadSubmission> {
  return new Promise((resolve, reject) => {
    const thread = new Worker(threadFile("large-submission-thread.js", import.meta.url), {
      workerData,
      resourceLimits: { maxOldGenerationSizeMb: MAX_MEMORY_MIB },
    });
    thread.once("message", resolve);
    thread.once("error", (cause: NodeJS.ErrnoException) => {
      const tooLarge = cause.code === "ERR_WORKER_OUT_OF_MEMORY";
      const why = `a submission of ${workerData.bytes.length} bytes takes more than ${MAX_MEMORY_MIB} MiB of memory`;
      reject(tooLarge ? new LaboroError("LABORO_BODY_TOO_LARGE", why, { cause }) : asLaboroError(cause));
    });
  });
}
