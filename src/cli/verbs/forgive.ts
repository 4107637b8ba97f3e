/** `laboro forgive`: reset the standing of a worker. */
import { Command } from "commander";
import { addBrokerOptions, type BrokerChoice, withBroker } from "../lib/broker-connection.js";
import { printLines } from "../lib/print.js";

export function forgive(): Command {
  const command = new Command("forgive")
    .description(
      "Reset the standing of a worker: its earlier failures no longer count, and it gets work again. With serve --standing, workers that fail too often are suspended or banned.",
    )
    .argument("<name>", "name of the worker, which need not be connected")
    .addHelpText("after", "\nExample:\n  laboro forgive node17")
    .action(run);
  return addBrokerOptions(command);
}

async function run(name: string, options: BrokerChoice): Promise<void> {
  await withBroker(options, async (client) => {
    const { known } = await client.ask("forgive", { name });
    printLines(known ? `worker ${name} has good standing again` : `there is no record of a worker ${name}`);
  });
}
