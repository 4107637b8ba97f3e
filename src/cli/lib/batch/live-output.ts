/** Prints the output of a single task as it arrives, stdout and stderr separately. */

import { LaboroError } from "../../../base/errors.js";
import type { Client } from "../../../client/client.js";
import type { OperationOutput } from "../views.js";

const WAIT_MS = 5_000;
const PAUSE_MS = 20;

/** Returns when the task has ended, or `signal` is aborted. */
export async function streamOutput(currentClient: () => Client, job: number, signal: AbortSignal): Promise<void> {
  let from = 0;
  let attempt: number | undefined;
  while (!signal.aborted) {
    const page = await nextPage(currentClient(), job, from);
    // Between the end of an attempt and its record, the broker does not say to which attempt the output belongs.
    if (page === undefined || (page.attempt === undefined && page.pieces.length > 0)) {
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
      continue;
    }
    if (page.attempt !== undefined && page.attempt !== attempt) {
      attempt = page.attempt;
      // A new attempt starts its output at 0.
      if (from > 0) {
        from = 0;
        continue;
      }
    }
    for (const { stream, bytes } of page.pieces) (stream === "stdout" ? process.stdout : process.stderr).write(bytes);
    from = page.next ?? page.endOffset;
    if (page.ended) return;
  }
}

/** Undefined while the broker is disconnected: the batch watcher reconnects. */
async function nextPage(client: Client, job: number, from: number): Promise<OperationOutput<"output"> | undefined> {
  try {
    return await client.ask("output", { job, index: 0, from, waitMs: WAIT_MS });
  } catch (cause) {
    if (cause instanceof LaboroError && /^LABORO_BROKER_/.test(cause.code)) return undefined;
    throw cause;
  }
}
