/** `laboro stop`: end a worker. */
import { Command } from "commander";
import { pluralize } from "../../base/format.js";
import { addBrokerOptions, type BrokerChoice, withBroker } from "../lib/broker-connection.js";
import { findWorker } from "../lib/find-worker.js";
import { parsePositive } from "../lib/option-parsers.js";
import { printLines } from "../lib/print.js";

interface Options extends BrokerChoice {
  readonly slots?: number;
  readonly now?: boolean;
}

export function stop(): Command {
  const command = new Command("stop")
    .description(
      "Let a worker end what it runs, and go. What it has not started goes to others; " +
        "laboro drain keeps it connected.",
    )
    .argument("<worker>", "its name, or its id")
    .option("--slots <n>", "stop only so many of its slots, each when its task has ended", parsePositive)
    .option("--now", "do not let its tasks end: they are stopped and go to others")
    .addHelpText(
      "after",
      "\nExamples:\n  laboro stop node17\n  laboro stop node17 --slots 4\n  laboro stop node17 --now",
    )
    .action(run);
  return addBrokerOptions(command);
}

async function run(name: string, { slots, now, ...broker }: Options): Promise<void> {
  await withBroker(broker, async (client) => {
    const { id, name: known, tasks, prefetched } = await findWorker(client, name);
    await client.stopWorker(id, { ...(slots === undefined ? {} : { slots }), ...(now === true ? { now } : {}) });
    const running = pluralize(Math.max(0, tasks - prefetched), "task");
    if (slots !== undefined) printLines(`worker ${known} stops ${pluralize(slots, "slot")}, each when it is free`);
    else if (now === true) printLines(`worker ${known} stops now. For others: ${running}`);
    else printLines(`worker ${known} stops when it has ended what it runs: ${running}`);
  });
}
