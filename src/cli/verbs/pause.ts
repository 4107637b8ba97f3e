/** `laboro pause` and `laboro resume`: start no task of a pool, and start them again. */
import { Command } from "commander";
import { addBrokerOptions, type BrokerChoice, withBroker } from "../lib/broker-connection.js";
import { textLike } from "../lib/option-parsers.js";
import { printLines } from "../lib/print.js";

interface Options extends BrokerChoice {
  readonly pool: string;
  readonly reason?: string;
}

export function pause(): Command {
  const command = new Command("pause")
    .description(
      "Start no more tasks of a pool, at all brokers of a group, also after restarts. Running tasks finish, " +
        "requests to services are answered. laboro hold does the same for one job, laboro drain for one worker.",
    )
    .requiredOption("--pool <name>", "the pool; that of jobs and workers without --pool is default", textLike("gpu"))
    .option("--reason <text>", "shown by explain, status and workers")
    .addHelpText("after", "\nExamples:\n  laboro pause --pool gpu --reason 'new driver'\n  laboro resume --pool gpu")
    .action(async ({ pool, reason, ...broker }: Options) => {
      await withBroker(broker, (client) => client.pausePool(pool, reason));
      printLines(`pool ${pool} is paused; laboro resume --pool ${pool} continues it`);
    });
  return addBrokerOptions(command);
}

export function resume(): Command {
  const command = new Command("resume")
    .description("Start the tasks of a paused pool again.")
    .requiredOption("--pool <name>", "the pool", textLike("gpu"))
    .addHelpText("after", "\nExample:\n  laboro resume --pool gpu")
    .action(async ({ pool, ...broker }: Options) => {
      const paused = await withBroker(broker, (client) => client.resumePool(pool));
      printLines(paused ? `pool ${pool} continues` : `pool ${pool} was not paused`);
    });
  return addBrokerOptions(command);
}
