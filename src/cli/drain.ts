/** `laboro drain`: give a worker nothing new. */
import { Command } from "commander";
import { addBrokerOptions, type BrokerChoice, withBroker } from "./broker.js";
import { workerNamed } from "./named-worker.js";
import { say } from "./print.js";
import { counted } from "./screen/figures.js";

export function drain(): Command {
  const command = new Command("drain")
    .description(
      "Give a worker nothing new. What it runs goes on, what it has not started goes to others. It stays connected; laboro stop ends it.",
    )
    .argument("<worker>", "its name, or its id")
    .addHelpText("after", "\nExample:\n  laboro drain node17")
    .action(run);
  return addBrokerOptions(command);
}

async function run(name: string, options: BrokerChoice): Promise<void> {
  await withBroker(options, async (client) => {
    const { id, name: known, tasks, stock } = await workerNamed(client, name);
    await client.ask("drain", { worker: id });
    say(`worker ${known} gets nothing new; it runs ${counted(Math.max(0, tasks - stock), "task")}`);
  });
}
