/** `laboro drain`: no new work for a worker, or for all workers of a broker. */
import { Command } from "commander";
import { badInput } from "../../base/errors.js";
import { pluralize } from "../../base/format.js";
import { addBrokerOptions, type BrokerChoice, withBroker } from "../lib/broker-connection.js";
import { findWorker } from "../lib/find-worker.js";
import { printLines } from "../lib/print.js";

interface Options extends Omit<BrokerChoice, "broker"> {
  /** True where no URL follows: the broker itself is meant. */
  readonly broker?: string | true;
  readonly off?: boolean;
}

export function drain(): Command {
  const command = new Command("drain")
    .description(
      "Give a worker nothing new. What it runs goes on, what it has not started goes to others. It stays connected; laboro stop ends it. " +
        "With --broker alone, before maintenance: the broker hands out nothing new, and peers whose protocol can are sent to its group.",
    )
    .argument("[worker]", "its name, or its id")
    .option("--off", "the broker hands out work again")
    .addHelpText("after", "\nExamples:\n  laboro drain node17\n  laboro drain --broker\n  laboro drain --broker --off")
    .action(run);
  addBrokerOptions(command);
  const url = command.options.find(({ long }) => long === "--broker");
  if (url !== undefined) {
    url.flags = "--broker [@file]";
    url.required = false;
    url.optional = true;
    url.description = `${url.description}; alone, it is the broker that is drained`;
  }
  return command;
}

async function run(name: string | undefined, { broker, off = false, ...others }: Options): Promise<void> {
  const whole = broker === true;
  if (name === undefined && !whole) throw badInput("say which worker, or --broker alone for the broker itself");
  if (name !== undefined && whole) throw badInput("a worker or the broker itself, not both");
  if (off && !whole) throw badInput("--off goes with --broker; a worker that is started again is no longer drained");
  await withBroker(typeof broker === "string" ? { ...others, broker } : others, async (client) => {
    if (name === undefined) {
      await client.ask("drainBroker", { draining: !off });
      printLines(off ? "the broker hands out work again" : "the broker hands out nothing new; what runs goes on");
      return;
    }
    const { id, name: known, tasks, prefetched } = await findWorker(client, name);
    await client.ask("drain", { worker: id });
    printLines(`worker ${known} gets nothing new; it runs ${pluralize(Math.max(0, tasks - prefetched), "task")}`);
  });
}
