import type { Client } from "../../../client/client.js";
import { escapeLines } from "../print.js";
import type { ProgressBar } from "./progress-bar.js";

/** If nothing runs after this time, the reason is printed. */
export const EXPLAIN_AFTER_MS = 2_000;

interface WaitingJob {
  readonly job: number;
  readonly count: number;
  /** Indexes of tasks that have ended. */
  readonly endedBefore: ReadonlySet<number>;
}

/** Prints why nothing runs yet, as `laboro explain` does. */
export async function explainWaiting(
  client: Client,
  { job, count, endedBefore }: WaitingJob,
  progress: Pick<ProgressBar, "clear">,
): Promise<void> {
  const { tasks } = await client.ask("running", { job, limit: 1 });
  let first = 0;
  while (endedBefore.has(first)) first++;
  if (tasks.length > 0 || first >= count) return;
  const task = await client.ask("task", { job, index: first });
  if (task.state !== "waiting") return;
  progress.clear();
  process.stderr.write(`nothing runs yet: ${escapeLines(task.reason ?? "")}\n`);
}
