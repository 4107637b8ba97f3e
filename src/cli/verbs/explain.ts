/** `laboro explain`: why a task is not running. */
import { Command } from "commander";
import { addBrokerOptions, type BrokerChoice, withBroker } from "../lib/broker-connection.js";
import { printJson, printLines } from "../lib/print.js";
import { selectJob } from "../lib/select-jobs.js";
import { parseTaskSelector } from "../lib/selectors.js";

interface Options extends BrokerChoice {
  readonly json?: boolean;
}

export function explain(): Command {
  const command = new Command("explain")
    .description("Say why a task is not running, or where it runs, or how it ended. Tasks are counted from 0.")
    .argument("<job.task>", "one task: 3.12, last.0; the job's first if no task is named")
    .option("--json", "one JSON document")
    .addHelpText("after", "\nExample:\n  laboro explain last.0")
    .action(run);
  return addBrokerOptions(command);
}

async function run(text: string, options: Options): Promise<void> {
  const { job: selector, index } = parseTaskSelector(text);
  await withBroker(options, async (client) => {
    const { id } = await selectJob(client, selector);
    const answer = await client.ask("explain", { job: id, index });
    if (options.json === true) printJson(answer);
    else printLines(`task ${index} of job ${id}: ${answer.reason}`);
  });
}
