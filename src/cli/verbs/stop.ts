/** `laboro stop`: end a worker. */
import { Command } from "commander";
import { pluralize } from "../../base/format.js";
import { addBrokerOptions, type BrokerChoice, withBroker } from "../lib/broker-connection.js";
import { findWorker } from "../lib/find-worker.js";
import { printLines } from "../lib/print.js";

export function stop(): Command {
  const command = new Command("stop")
    .description(
      "Let a worker end what it runs, and go. What it has not started goes to others; " +
        "laboro drain keeps it connected.",
    )
    .argument("<worker>", "its name, or its id")
    .addHelpText("after", "\nExample:\n  laboro stop node17")
    .action(run);
  return addBrokerOptions(command);
}

async function run(name: string, options: BrokerChoice): Promise<void> {
  await withBroker(options, async (client) => {
    const { id, name: known, tasks, prefetched } = await findWorker(client, name);
    await client.ask("stop", { worker: id });
    printLines(
      `worker ${known} stops when it has ended what it runs: ${pluralize(Math.max(0, tasks - prefetched), "task")}`,
    );
  });
}
