/** The output of a single task as it comes, each stream to its own. */

import { LaboroError } from "../../../base/errors.js";
import type { Client } from "../../../client/client.js";
import type { OperationOutput } from "../views.js";

const WAIT_MS = 5_000;
const PAUSE_MS = 20;

/** Until the task has ended, or nobody wants it any more. `now` gives the client of the moment. */
export async function streamOutput(currentClient: () => Client, job: number, signal: AbortSignal): Promise<void> {
  let from = 0;
  let attempt: number | undefined;
  while (!signal.aborted) {
    const page = await nextPage(currentClient(), job, from);
    // Between an attempt's end and its record, or the next attempt, the broker does not say whose the output is.
    if (page === undefined || (page.attempt === undefined && page.pieces.length > 0)) {
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
      continue;
    }
    if (page.attempt !== undefined && page.attempt !== attempt) {
      attempt = page.attempt;
      // A new attempt begins its output anew.
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

/** Undefined while the broker is away: whoever watches the batch finds the next one. */
async function nextPage(client: Client, job: number, from: number): Promise<OperationOutput<"output"> | undefined> {
  try {
    return await client.ask("output", { job, index: 0, from, waitMs: WAIT_MS });
  } catch (cause) {
    if (cause instanceof LaboroError && /^LABORO_BROKER_/.test(cause.code)) return undefined;
    throw cause;
  }
}
