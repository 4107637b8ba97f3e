/** `laboro rerun` where a run has left its data: there is no broker to leave the work to, so it is done here and now. */
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
  selection: RerunSelection,
): Promise<void> {
  const interrupt = onInterrupt();
  let home: LocalBroker | undefined;
  const reach = async (): Promise<Client> => {
    await home?.close(false);
    home = await openLocalBroker(dir, availableParallelism());
    return home.client;
  };
  try {
    const jobs = await choose(await reach());
    if (jobs.length === 0) printLines("there is nothing to run again");
    for (const { id } of jobs) {
      if (interrupt.once.aborted) break;
      const options = { keepOrder: false, tag: false, live: false };
      const code = await runBatch(reach, (client) => rerunTasks(client, id, selection), options, interrupt);
      if (code !== EXIT.ok) process.exitCode = code;
    }
  } finally {
    interrupt.dispose();
    await home?.close(!interrupt.twice.aborted);
  }
}
