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
  const interrupt = onInterrupt({ watchOutput: true });
  let local: LocalBroker | undefined;
  const connectBroker = async (ownJob?: number): Promise<Client> => {
    await local?.close(false);
    local = await openLocalBroker(dir, availableParallelism(), ({ id }) => id !== ownJob);
    return local.client;
  };
  const start = async (client: Client, id: number, selection: RerunSelection): ReturnType<typeof rerunTasks> => {
    const started = await rerunTasks(client, id, selection);
    if (started === undefined) {
      printLines(noneText(id));
      return undefined;
    }
    // What is left of a run that was stopped goes on, too.
    const { held } = await client.ask("job", { job: id });
    if (held) await client.ask("release", { job: id });
    return started;
  };
  try {
    const jobs = await choose(await connectBroker());
    if (jobs.length === 0) printLines("there is nothing to run again");
    const selections = jobs.map((job) => ({ id: job.id, selection: selectionOf(job) }));
    for (const { id, selection } of selections) {
      if (interrupt.once.aborted || interrupt.outputLost.aborted) break;
      const options = { keepOrder: false, tag: false, live: false, dir };
      const code = await runBatch(connectBroker, (client) => start(client, id, selection), options, interrupt);
      if (code !== EXIT.ok) process.exitCode = code;
    }
  } finally {
    interrupt.dispose();
    await local?.close(!interrupt.twice.aborted);
    interrupt.endAfterHangup();
  }
}
