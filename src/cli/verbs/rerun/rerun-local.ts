/** `laboro rerun` on the data that a run left in this directory: without a broker, the tasks run in this process. */
import { availableParallelism } from "node:os";
import type { Client } from "../../../client/client.js";
import { type RerunSelection, rerunTasks } from "../../lib/batch/resume.js";
import { runBatch } from "../../lib/batch/run-batch.js";
import { EXIT } from "../../lib/failures.js";
import { onInterrupt } from "../../lib/interrupt.js";
import { type LocalBroker, openLocalBroker } from "../../lib/local-broker.js";
import { printLines } from "../../lib/print.js";
import type { JobView } from "../../lib/views.js";

export async function rerunLocally(
  dir: string,
  choose: (client: Client) => Promise<readonly JobView[]>,
  selectionOf: (job: JobView) => RerunSelection,
  noneText: (job: number) => string,
): Promise<void> {
  const interrupt = onInterrupt();
  let local: LocalBroker | undefined;
  const connectBroker = async (): Promise<Client> => {
    await local?.close(false);
    local = await openLocalBroker(dir, availableParallelism());
    return local.client;
  };
  try {
    const jobs = await choose(await connectBroker());
    if (jobs.length === 0) printLines("there is nothing to run again");
    const selections = jobs.map((job) => ({ id: job.id, selection: selectionOf(job) }));
    for (const { id, selection } of selections) {
      if (interrupt.once.aborted) break;
      const options = { keepOrder: false, tag: false, live: false };
      const start = async (client: Client): ReturnType<typeof rerunTasks> => {
        const started = await rerunTasks(client, id, selection);
        if (started === undefined) printLines(noneText(id));
        return started;
      };
      const code = await runBatch(connectBroker, start, options, interrupt);
      if (code !== EXIT.ok) process.exitCode = code;
    }
  } finally {
    interrupt.dispose();
    await local?.close(!interrupt.twice.aborted);
  }
}
