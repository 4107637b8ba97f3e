/** `laboro explain`: why a task is not running. */
import { Command } from "commander";
import { taskNumber } from "../../model/task-numbers.js";
import { addBrokerOptions, type BrokerChoice, withBroker } from "../lib/broker-connection.js";
import { printJson, printLines } from "../lib/print.js";
import { entryOf, taskLabel } from "../lib/result-text.js";
import { indicesOf, parseTaskSelector, selectJob } from "../lib/select-jobs.js";
import { escapeControls } from "../lib/terminal/terminal.js";

interface Options extends BrokerChoice {
  readonly json?: boolean;
}

export function explain(): Command {
  const command = new Command("explain")
    .description("Show why a task is not running, where it runs, or how it ended.")
    .argument("<job.task>", "one task: 3.12, last.1; a job alone means its first task")
    .option("--json", "print one JSON document")
    .addHelpText("after", "\nExample:\n  laboro explain last.1")
    .action(run);
  return addBrokerOptions(command);
}

async function run(text: string, options: Options): Promise<void> {
  const { job: selector, number } = parseTaskSelector(text);
  await withBroker(options, async (client) => {
    const job = await selectJob(client, selector);
    const [task] = number === undefined ? [] : indicesOf(job, [{ first: number, last: number }]);
    const index = task?.first ?? 0;
    const answer = await client.ask("explain", { job: job.id, index });
    if (options.json === true) printJson(answer);
    else {
      const name = taskLabel(taskNumber(job, index), await entryOf(client, job, index));
      printLines(`task ${name} of job ${job.id}: ${escapeControls(answer.reason)}`);
    }
  });
}
