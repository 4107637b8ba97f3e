/** `laboro rerun` where a run has left its data: there is no broker to leave the work to, so it is done here and now. */
import { availableParallelism } from "node:os";
import type { Client } from "../../../client/client.js";
import { type Again, again } from "../../lib/batch/resume.js";
import { runBatch } from "../../lib/batch/run-batch.js";
import { EXIT } from "../../lib/failures.js";
import { onInterrupt } from "../../lib/interrupt.js";
import { type Home, openHome } from "../../lib/local-broker.js";
import { say } from "../../lib/print.js";
import type { JobView } from "../../lib/views.js";

export async function rerunAtHome(
  dir: string,
  choose: (client: Client) => Promise<readonly JobView[]>,
  wish: Again,
): Promise<void> {
  const interrupt = onInterrupt();
  let home: Home | undefined;
  const reach = async (): Promise<Client> => {
    await home?.close(false);
    home = await openHome(dir, availableParallelism());
    return home.client;
  };
  try {
    const jobs = await choose(await reach());
    if (jobs.length === 0) say("there is nothing to run again");
    for (const { id } of jobs) {
      if (interrupt.once.aborted) break;
      const options = { keepOrder: false, tag: false, live: false };
      const code = await runBatch(reach, (client) => again(client, id, wish), options, interrupt);
      if (code !== EXIT.ok) process.exitCode = code;
    }
  } finally {
    interrupt.dispose();
    await home?.close(!interrupt.twice.aborted);
  }
}
