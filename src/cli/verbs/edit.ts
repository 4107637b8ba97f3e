/** `laboro edit` and `laboro close`: change jobs that have not ended, and end the appending of tasks to open ones. */
import { Command } from "commander";
import { badInput } from "../../base/errors.js";
import type { Client } from "../../client/client.js";
import { definedOnly } from "../../model/input.js";
import { addBrokerOptions, type BrokerChoice, withBroker } from "../lib/broker-connection.js";
import { formatDuration, parseTimeLimit, textLike, wholeNumber } from "../lib/option-parsers.js";
import { changeJobs, OPEN_STATES, parseJobSelector } from "../lib/select-jobs.js";

interface EditOptions extends BrokerChoice {
  readonly name?: string;
  readonly priority?: number;
  readonly maxRunning?: number;
  readonly timeLimit?: number;
}

export function edit(): Command {
  const command = new Command("edit")
    .description(
      "Change jobs that have not ended. Tasks that run go on as they are; those that have not started get the new values.",
    )
    .argument("<selector>", "jobs: last, 3, 1-4,7, all")
    .option("--priority <n>", "-1000 to 1000; higher runs first", wholeNumber(5, -1000, 1000))
    .option("--max-running <n>", "at most N tasks of the job run at once", wholeNumber(10, 1))
    .option("--time-limit <duration>", "per task: 90s, 5m, 1h30m; a bare number is seconds", parseTimeLimit)
    .option("--name <name>", "the name of the job", textLike("train"))
    .addHelpText(
      "after",
      "\nExamples:\n  laboro edit last --priority 5 --max-running 10\n  laboro edit all --time-limit 2h",
    )
    .action(editJobs);
  return addBrokerOptions(command);
}

async function editJobs(text: string, options: EditOptions): Promise<void> {
  const { name, priority, maxRunning, timeLimit, ...broker } = options;
  const changes = {
    ...definedOnly({ priority, maxRunning, timeLimitMs: timeLimit, name }),
  };
  if (Object.keys(changes).length === 0)
    throw badInput("nothing to change: give --priority, --max-running, --time-limit or --name");
  const words = [
    priority !== undefined && `priority ${priority}`,
    maxRunning !== undefined && `at most ${maxRunning} at once`,
    timeLimit !== undefined && `${formatDuration(timeLimit)} a task`,
    name !== undefined && `name ${name}`,
  ].filter((word) => word !== false);
  const change = {
    states: OPEN_STATES,
    noneMessage: "to edit: all have ended",
    apply: async (client: Client, { id }: { readonly id: number }) => {
      await client.ask("edit", { job: id, ...changes });
      return `job ${id}: ${words.join(", ")}`;
    },
  };
  const selector = parseJobSelector(text);
  await withBroker(broker, (client) => changeJobs(client, selector, change));
}

export function close(): Command {
  const command = new Command("close")
    .description(
      "Let jobs that were submitted with --open take no more tasks. Each ends with its last task, or now if all have ended.",
    )
    .argument("<selector>", "jobs: last, 3, 1-4,7, all")
    .addHelpText("after", "\nExamples:\n  laboro close last\n  laboro close all")
    .action(async (text: string, options: BrokerChoice) => {
      const selector = parseJobSelector(text);
      await withBroker(options, (client) =>
        changeJobs(client, selector, {
          states: OPEN_STATES,
          noneMessage: "to close: all have ended",
          apply: async (_, { id, open }) => {
            await client.ask("close", { job: id });
            return open === true ? `job ${id} takes no more tasks` : `job ${id} was not open`;
          },
        }),
      );
    });
  return addBrokerOptions(command);
}
