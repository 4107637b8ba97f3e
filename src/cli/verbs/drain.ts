/** `laboro drain` and `undrain`: no new work for a worker or a broker, and work for a worker again. */
import { Command } from "commander";
import { badInput, LaboroError } from "../../base/errors.js";
import { pluralize } from "../../base/format.js";
import type { Client } from "../../client/client.js";
import { addBrokerOptions, type BrokerChoice, withBroker } from "../lib/broker-connection.js";
import { wholeNumber } from "../lib/option-parsers.js";
import { printLines } from "../lib/print.js";
import type { WorkerView } from "../lib/result-text.js";
import { suggestion } from "../lib/suggest.js";

interface DrainOptions extends Omit<BrokerChoice, "broker"> {
  /** True if no URL follows: the broker itself is drained. */
  readonly broker?: string | true;
  readonly off?: boolean;
}

export function drain(): Command {
  const command = new Command("drain")
    .description(
      "Assign no more tasks to a worker. Its running tasks continue, its waiting tasks go to other workers. It stays connected; " +
        "laboro stop ends it. With --broker alone, for maintenance: the broker assigns no more tasks, and sends peers whose " +
        "protocol allows it to the other brokers of its group.",
    )
    .argument("[worker]", "name or id of the worker")
    .option("--off", "let the broker assign tasks again")
    .addHelpText("after", "\nExamples:\n  laboro drain node17\n  laboro drain --broker\n  laboro drain --broker --off")
    .action(drainWorker);
  addBrokerOptions(command);
  const url = command.options.find(({ long }) => long === "--broker");
  if (url !== undefined) {
    url.flags = "--broker [@file]";
    url.required = false;
    url.optional = true;
    url.description = `${url.description}; without a file, the broker itself is drained`;
  }
  return command;
}

async function drainWorker(name: string | undefined, { broker, off = false, ...others }: DrainOptions): Promise<void> {
  const whole = broker === true;
  if (name === undefined && !whole)
    throw badInput("expected the name of a worker, or --broker without a file for the broker itself");
  if (name !== undefined && whole) throw badInput("expected a worker or --broker without a file, not both");
  if (off && !whole) throw badInput("--off needs --broker; laboro undrain WORKER gives a worker tasks again");
  await withBroker(typeof broker === "string" ? { ...others, broker } : others, async (client) => {
    if (name === undefined) {
      await client.ask("drainBroker", { draining: !off });
      printLines(off ? "the broker assigns tasks again" : "the broker assigns no more tasks; running tasks continue");
      return;
    }
    const { id, name: known, tasks, prefetched } = await findWorker(client, name);
    await client.ask("drain", { worker: id });
    printLines(
      `worker ${known} gets no more tasks; it still runs ${pluralize(Math.max(0, tasks - prefetched), "task")}`,
    );
  });
}

export function undrain(): Command {
  const command = new Command("undrain")
    .description("Assign tasks to a drained worker again. A worker that was told to stop is not kept.")
    .argument("<worker>", "name or id of the worker")
    .addHelpText("after", "\nExample:\n  laboro undrain node17")
    .action(async (name: string, broker: BrokerChoice) => {
      await withBroker(broker, async (client) => {
        const { id, name: known } = await findWorker(client, name);
        const drained = await client.undrain(id);
        printLines(drained ? `worker ${known} gets tasks again` : `worker ${known} was not drained`);
      });
    });
  return addBrokerOptions(command);
}

/** `laboro stop`: end a worker. */
interface StopOptions extends BrokerChoice {
  readonly slots?: number;
  readonly now?: boolean;
}

export function stop(): Command {
  const command = new Command("stop")
    .description(
      "Let a worker finish its running tasks, then end it. Its waiting tasks go to other workers. " +
        "laboro drain keeps it connected.",
    )
    .argument("<worker>", "name or id of the worker")
    .option("--slots <n>", "remove only N of its slots, each when its task has ended", wholeNumber(2, 1))
    .option("--now", "stop the running tasks; they start again at other workers")
    .addHelpText(
      "after",
      "\nExamples:\n  laboro stop node17\n  laboro stop node17 --slots 4\n  laboro stop node17 --now",
    )
    .action(stopWorker);
  return addBrokerOptions(command);
}

async function stopWorker(name: string, { slots, now, ...broker }: StopOptions): Promise<void> {
  await withBroker(broker, async (client) => {
    const { id, name: known, tasks, prefetched } = await findWorker(client, name);
    await client.stopWorker(id, { ...(slots === undefined ? {} : { slots }), ...(now === true ? { now } : {}) });
    const running = pluralize(Math.max(0, tasks - prefetched), "task");
    if (slots !== undefined) printLines(`worker ${known} removes ${pluralize(slots, "slot")}, each when it is free`);
    else if (now === true) printLines(`worker ${known} stops now; other workers get its ${running}`);
    else printLines(`worker ${known} stops when its running tasks have ended: ${running}`);
  });
}

async function findWorker(client: Client, name: string): Promise<WorkerView> {
  const { workers } = await client.ask("workers", {});
  const found = workers.filter((worker) => worker.id === name);
  if (found.length === 0) found.push(...workers.filter((worker) => worker.name === name));
  // A worker that came back with another id may still be listed as disconnected.
  const connectedOnly = found.length > 1 ? found.filter(({ connected }) => connected) : found;
  const [only, ...more] = connectedOnly;
  if (only !== undefined && more.length === 0) return only;
  if (found.length > 1) {
    const ids = found.map(({ id }) => id).join(", ");
    throw badInput(`${found.length} workers have the name ${name}: give an id instead, one of ${ids}`);
  }
  const names = workers.map((worker) => worker.name);
  const hint = suggestion(name, names) || (names.length === 0 ? "; no worker is known" : "; laboro workers lists them");
  throw new LaboroError("LABORO_NO_SUCH_WORKER", `there is no worker ${name}${hint}`);
}
