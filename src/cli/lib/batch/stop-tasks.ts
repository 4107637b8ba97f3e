/** Stops the running tasks of a job so that a later run can resume it: the job is held, and the tasks wait again. */
import { LaboroError } from "../../../base/errors.js";
import type { Client } from "../../../client/client.js";

const POLL_MS = 50;
/** Longer than a worker gives a cancelled task to end. */
const DEADLINE_MS = 10_000;

/** Returns false if the job has ended. Rejects if a task has not ended in time, or the broker is gone. */
export async function stopRunningTasks(client: Client, job: number): Promise<boolean> {
  const deadline = Date.now() + DEADLINE_MS;
  if ((await client.ask("wait", { job, timeoutMs: 0 })).ended) return false;
  await client.ask("hold", { job });
  const cancelled = new Set<number>();
  for (;;) {
    const { tasks } = await client.ask("running", { job });
    if (tasks.length === 0) break;
    const added = tasks.map(({ index }) => index).filter((index) => !cancelled.has(index));
    for (const index of added) cancelled.add(index);
    if (added.length > 0)
      await client.ask("cancel", { job, tasks: added.map((index) => ({ first: index, last: index })) });
    if (Date.now() > deadline) throw new LaboroError("LABORO_DEADLINE", `tasks of job ${job} did not stop in time`);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
  if (cancelled.size === 0) return true;
  const tasks = [...cancelled].map((index) => ({ first: index, last: index }));
  await client.ask("rerun", { job, states: ["cancelled"], tasks });
  return true;
}
