/** `laboro fetch`: writes the files that tasks have returned. */
import { mkdirSync } from "node:fs";
import { resolve } from "node:path";
import { Command } from "commander";
import { badInput } from "../../base/errors.js";
import { pluralize } from "../../base/format.js";
import { FileReceiver } from "../../client/task-files.js";
import { contains } from "../../model/ranges.js";
import { addBrokerOptions, type BrokerChoice, withBroker } from "../lib/broker-connection.js";
import { printLines, printNotice } from "../lib/print.js";
import { pages } from "../lib/result-text.js";
import { indicesOf, parseSelector, selectJob } from "../lib/select-jobs.js";

interface Options extends BrokerChoice {
  readonly dir: string;
}

export function fetch(): Command {
  const command = new Command("fetch")
    .description(
      "Write the files that the ended tasks of a job have returned (submit --return), and print their names. " +
        "A file of the same name is replaced. Can be repeated, as long as the job is kept.",
    )
    .argument("<selector>", "one job: last, 3; or tasks of it: 3.1-9,12")
    .option("--dir <dir>", "where to write them", ".")
    .addHelpText("after", "\nExamples:\n  laboro fetch last\n  laboro fetch 3.17 --dir results")
    .action(run);
  return addBrokerOptions(command);
}

async function run(text: string, options: Options): Promise<void> {
  const { jobs, tasks } = parseSelector(text);
  await withBroker(options, async (client) => {
    const job = await selectJob(client, jobs);
    const returns = job.recipe.files?.returns;
    if (returns === undefined) throw badInput(`job ${job.id} returns no files: it was submitted without --return`);
    const chosen = tasks && indicesOf(job, tasks);
    mkdirSync(options.dir, { recursive: true });
    const receiver = new FileReceiver(returns, resolve(options.dir));
    for await (const page of pages((from) => client.ask("tasks", { job: job.id, from })))
      for (const task of page.tasks)
        if (chosen === undefined || contains(chosen, task.index))
          printLines(...(await receiver.receive(client, job.id, task)));
    const { running, waiting } = job.counters;
    if (running + waiting > 0)
      printNotice(`job ${job.id} has ${pluralize(running + waiting, "task")} that did not end yet`);
  });
}
